"""Any value comes out of the script as it went in, and none is ever executed."""

import gzip
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.link import build_query
from bootstrap.onbox.setup.wanted import WantedSetup
from bootstrap.profile import make_profile
from bootstrap.profile.load import read_profile
from bootstrap.setup.program import program, program_files
from bootstrap.setup.request import RunOptions
from bootstrap.setup.script import flat, render_script, variables
from bootstrap.steps.shell import Value, harmless, quote
from tests.unit.profile import hostile
from tests.unit.setup.scripts import WORK, profile, render, variables_part

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200)
SHELLY = st.text(st.sampled_from("'\"`$()\\\n\t !*?{}[]~#=;&|<>%-aé日😀\r"), max_size=60)
EITHER = TEXT | SHELLY


def through_bash(script: str, expressions: Sequence[str]) -> list[str]:
    """Return the expressions' values after bash read a script's variables; printed with NULs."""
    shown = "\n".join(f"printf '%s\\0' {expression}" for expression in expressions)
    done = subprocess.run(
        ["/bin/bash", "--norc", "-s"],
        input=(f"step() {{ :; }}\n{variables_part(script)}\n{shown}\n").encode(),
        capture_output=True,
        env={"LC_ALL": "C", "PATH": "/nowhere"},
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


def rendered(**own: Value) -> str:
    return render_script("x", {"": own}, (), "")


@pytest.mark.slow
@given(st.lists(EITHER, max_size=8), EITHER, st.booleans(), st.integers(-(2**53), 2**53))
def test_any_profile_value_arrives_in_bash_on_the_box_byte_for_byte(
    many: list[str], one: str, flag: bool, number: int
) -> None:
    script = rendered(ONE=one, MANY=many, FLAG=flag, NUMBER=number)
    texts = ['"$ONE"', '"${#MANY[@]}"', '${MANY[@]+"${MANY[@]}"}']
    # Without values printf prints one empty field.
    told = [one, str(len(many)), *(many or [""]), "yes" if flag else "", str(number)]
    assert through_bash(script, [*texts, '"$FLAG"', '"$NUMBER"']) == told


def test_a_profile_value_with_a_nul_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


@given(EITHER)
def test_comments_of_the_setup_script_lose_line_breaks_and_shell_characters(text: str) -> None:
    line = harmless(text)
    assert "\n" not in line
    assert not set(line) & set("'\"`$\\;&|<>()")


def merged(one: object, other: object) -> object:
    """Both documents as one, with the lists of both. Raises TypeError for two values of a key."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: merged(one[key], other[key]) for key in one.keys() & other.keys()}
        return {**one, **other, **both}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *other]
    if one != other:
        raise TypeError
    return one


def together() -> list[object]:
    """Few profiles that have all hostile values that are allowed: a script is run for each."""
    found: list[object] = []
    for document in (yaml.safe_load(case.document()) for case in hostile.ACCEPTED):
        if isinstance(train := document.get("train"), dict):
            train.setdefault("command", "x")
        for at, before in enumerate(found):
            with suppress(TypeError):
                found[at] = merged(before, document)
                break
        else:
            found.append(document)
    return found


TOGETHER = together()
assert all(repr(case.value) in repr(TOGETHER) for case in hostile.ACCEPTED)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TOGETHER)))
def test_hostile_profile_values_run_nothing_in_the_setup_script(
    number: int, tmp_path: Path
) -> None:
    """Both read the same variables, so each value is read by one of them."""
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(TOGETHER[number], default_style='"'))
    sets = () if "train" in file.read_text() else ("train.command=true",)
    profile = read_profile(str(file), sets=sets).profile
    shown = run_script(render(profile), tmp_path / "home", ("preflight", "plan")[number % 2])
    assert "syntax error" not in shown
    assert "command not found" not in shown
    found = [path.name for path in tmp_path.rglob("*")]
    assert hostile.CANARY not in found
    assert set(found) <= {"a.yaml", "home"}, "it wrote"


@pytest.mark.slow
def test_the_canary_file_of_hostile_value_tests_appears_if_a_command_is_run(tmp_path: Path) -> None:
    run_script(f"{{\ntouch {hostile.CANARY}\n# ---- the program\n", tmp_path / "home", "plan")
    assert (tmp_path / "home" / hostile.CANARY).exists()


@pytest.mark.slow
def test_a_hostile_branch_url_or_user_name_runs_nothing_in_the_script(tmp_path: Path) -> None:
    odd = f"a;touch$IFS{hostile.CANARY}$(touch {hostile.CANARY})'"
    work = WORK.__class__(
        key="k-1", name="k", commit="a" * 40, branch=odd, url=odd, user_name=odd, user_email=odd
    )
    script = render(make_profile({"train": {"command": "true"}}), work=work)
    found = through_bash(script, ['"$REPO_BRANCH" "$REPO_URL" "$GIT_USER_NAME"'])
    assert found == [odd] * 3
    run_script(script, tmp_path / "home", "plan")
    assert list((tmp_path / "home").iterdir()) == []


def run_script(script: str, home: Path, mode: str) -> str:
    """Run it as a box does that has no program yet, in its own home and folder."""
    home.mkdir(exist_ok=True)
    packed = gzip.compress(script.encode())
    asked = {"script_bytes": len(packed), "program_bytes": len(program().packed), "words": ""}
    plan = ["-c", build_query("plan", **asked)]
    done = subprocess.run(
        ["bash", "--norc", *(plan if mode == "plan" else ["-c", 'eval "$(cat)"', "setup", mode])],
        input=packed + program().packed if mode == "plan" else script.encode(),
        capture_output=True,
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        check=False,
    )
    return (done.stdout + done.stderr).decode(errors="replace")


def test_a_profile_without_train_gives_runs_the_default_grace_and_log_limit() -> None:
    for what in (profile("vast"), read_profile("vast").profile):
        values = flat(variables(what, WORK, local=False, secrets_id=""))
        assert (values["TRAIN_GRACE"], values["LOG_MAX_MIB"]) == (10, 1024)


def test_the_command_of_a_run_is_hidden_in_the_list_of_processes_of_the_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, variable = "python train.py --name 'é\\x41'\n", 'train.py \\ "%s"'
    wish = RunOptions(command, variables=(("NAME", variable),))
    words = wish.words(profile("ssh"))
    assert not any("train.py" in word for word in words)
    script = tmp_path / "setup.sh"
    script.write_text(render(profile("ssh")))
    (tmp_path / "defaults.sh").write_text(program_files()["defaults.sh"])
    monkeypatch.setattr("bootstrap.onbox.SHELL_PROGRAMS", str(tmp_path))
    wanted = WantedSetup(str(script), words)
    assert wanted.values.train_command == command
    assert wanted.asked["variables"] == f"NAME={variable}"
