"""Scripts for doors: sizes, limits, and that packing changes only the length."""

from __future__ import annotations

import ast
import base64
import dataclasses
import gzip
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import pytest
import yaml

from bootstrap import shell
from bootstrap.doors import PASTE_LIMIT, door_url, render_door
from bootstrap.errors import UsageError, exit_code
from bootstrap.profile.schema import Profile
from bootstrap.render.door_table import DOORS, FULL, MINIMAL_LIMIT
from bootstrap.render.editions import (
    carried_steps,
    compact_files,
    own_parts,
    render_carrier,
    render_compact,
    render_minimal,
    without_full,
)
from bootstrap.render.script import bare_box_files
from bootstrap.shell import (
    bare_python,
    bare_shell,
    box_files,
    folded,
    functions,
    is_needed,
    paste,
    without_spaces,
)
from tests.cli import User
from tests.unit.render.scripts import SHIPPED, TRAIN, WORK, profile, static_parts
from tests.unit.render.test_lint import shellcheck

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]

LINT = (
    "#!/usr/bin/env bash\n"
    "# shellcheck disable=SC1003,SC1090,SC2016,SC2034,SC2086,SC2088,SC2194,SC2317 # of parts\n"
)
SECOND = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO second"
MADE = profile("vast")
RENTED = [name for name in SHIPPED if name not in {"local", "demo"}]
SECRET = "SECRET_51c0"

each_door = pytest.mark.parametrize("name", DOORS)


@pytest.fixture
def key(tmp_path: Path) -> str:
    """A value for --set that authorizes a second key."""
    (tmp_path / "second.pub").write_text(SECOND + "\n")
    return f'ssh.authorized_keys=["{tmp_path / "second.pub"}"]'


@pytest.fixture
def loosely_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack with plain gzip: the best packing takes ten times as long."""
    monkeypatch.setattr(shell, "squeezed", gzip.compress)


def unpacked(text: str) -> str:
    """Return the script that is packed inside `text`."""
    found = re.search(r"H4sI(?:[A-Za-z0-9+/]|\s|\\n|\\(?=\n))*=*", text)
    assert found
    packed = re.sub(r"\s|\\n|\\", "", found[0])
    unzip = zlib.decompressobj(31)
    script = unzip.decompress(base64.b64decode(packed[: len(packed) // 4 * 4])).decode()
    assert unzip.eof  # the stream is complete; what follows is not part of it
    return script


def test_shell_without_comments_means_the_same() -> None:
    """Compared as bash parsed it, ignoring the indentation of multi-line strings."""

    def functions(*texts: str) -> list[str]:
        script = "".join(texts) + "\ndeclare -f"
        done = subprocess.run(
            ["bash"], input=script, capture_output=True, text=True, check=True, timeout=120
        )
        return [line.strip() for line in done.stdout.splitlines()]

    parts = [part.read_text() for part in static_parts() if part.parent.name in ("lib", "steps")]
    whole = functions(*parts)
    assert functions(*map(bare_shell, parts)) == whole
    assert len(whole) > 2000


@pytest.mark.parametrize("name", RENTED)
def test_a_paste_fits_its_limit(name: str, key: str) -> None:
    what = profile(name, key)
    # Random ids, like real ones, compress badly.
    commit, root = (Random(seed).randbytes(20).hex() for seed in (1, 2))
    own = {"commit": commit, "snapshot": commit, "tree": "", "root": root}
    work = dataclasses.replace(WORK, **own, key=f"homework-{root[:8]}")
    assert len(paste(render_compact(what, work))) <= PASTE_LIMIT
    assert len(paste(render_minimal(what, work))) <= MINIMAL_LIMIT


@pytest.mark.parametrize("name", ["ssh", "vast"])
def test_every_edition_is_read_by_bash_and_shellcheck(name: str, key: str, tmp_path: Path) -> None:
    what = profile(name, key, 'secrets=["HF_TOKEN"]', 'packages=["ffmpeg"]', "python.version=3.11")
    editions = {
        **({"full": render_carrier(what, WORK)} if name == "vast" else {}),
        "compact": f"{LINT}{render_compact(what.replace(prepare=['make']), WORK)}",
        "minimal": render_minimal(what, WORK, for_lint=True),
    }
    for edition, script in editions.items():
        file = tmp_path / f"{edition}.sh"
        file.write_text(script)
        assert subprocess.run(["bash", "-n", file], check=False).returncode == 0
        assert shellcheck(file) == ""


def declared(text: str) -> str:
    """Return a file's functions as bash prints them, without comments and indentation."""
    script = f"{text}\ndeclare -f"  # from stdin: too long for one argument
    done = subprocess.run(
        ["bash", "--norc", "/dev/stdin"], input=script, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_packing_shell_leaves_its_meaning() -> None:
    for part in own_parts():
        assert declared(bare_shell(part)) == declared(part)
    assert declared("f() {\n  echo '\n  # no comment\n'\n}") != declared(
        bare_shell("f() {\n  echo '\n  # no comment\n'\n}")
    )


def test_what_is_carried_is_the_library_s_own() -> None:
    """Each function of the compact script is from a shipped part, without its `# full` lines."""
    kinds = {"lib", "steps", "doors", "compact"}
    files = [file for file in static_parts() if file.parent.name in kinds]
    shipped_ones = "\n".join(without_full(file.read_text()) for file in files)
    theirs, ours = functions_of(shipped_ones), functions_of(render_compact(MADE, WORK))
    del ours["unpack_box"], ours["main"]
    assert {name: theirs.get(name) for name in ours} == ours
    assert len(ours) > 100


def functions_of(script: str) -> dict[str, str]:
    """Return each function as bash parsed it."""
    text = declared(script.replace('\nmain "$@"\nexit\n', "\n"))
    found = re.split(r"^([a-z_]+) \(\) \n", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_packing_python_leaves_its_meaning() -> None:
    own = dict(box_files())
    for name, text in compact_files():
        if name.endswith(".py"):
            packed, full = defined(text), defined(bare_python(without_full(own[name])))
            assert {each: full[each] for each in packed} == packed, name
    tricky = (
        """x = f"{{ {a!r:>{b}} }} {{ {a if b else c} " 'd' if b in "e" else (1 if b else -1)\n"""
    )
    for text in (tricky, *own.values()):
        if not text.startswith("#"):
            assert ast.dump(ast.parse(without_spaces(text))) == ast.dump(ast.parse(text))
    assert "in ''" in without_spaces("a in ''")
    # Removed names are not used anywhere else.
    left = {name for text in own.values() for name in defined(text, python=text.startswith('"'))}
    everything = "\n".join(text for _, text in compact_files())
    gone = left - set(defined(everything, python=False))
    assert "links" in gone


def test_what_narrow_doors_carry_of_python_runs(tmp_path: Path) -> None:
    modules = [name for name, _ in bare_box_files() if name.endswith(".py")]
    assert {*modules} == {name for name, _ in box_files() if name.endswith(".py")}
    for name, text in bare_box_files():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    names = ", ".join(name.removesuffix(".py").replace("/", ".") for name in modules)
    done = subprocess.run(
        [sys.executable, "-B", "-c", f"import {names}"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    door = render_door("runpod", profile("vast"), WORK)
    assert door.edition == FULL
    carried = [text for name, text in bare_box_files() if is_needed(name, ())]
    assert all(text in unpacked(door.text) for text in carried)


def defined(text: str, *, python: bool = True) -> dict[str, str]:
    """Return the functions and classes of a module by name."""
    if not python:
        return dict.fromkeys(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE), "")
    found = [x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef | ast.ClassDef)]
    return {each.name: ast.unparse(each) for each in found}


def test_lines_are_what_a_terminal_takes(key: str) -> None:
    text = paste(render_compact(profile("vast", key), WORK))
    assert max(map(len, text.splitlines())) <= 1000
    assert folded("a" * 2500).splitlines() == ["a" * 1000, "a" * 1000, "a" * 500]


@each_door
def test_what_a_door_gets_fits_and_holds_the_script_and_no_secret(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("GIT_TOKEN", SECRET)
    door = DOORS[name]
    made = render_door(name, profile("vast", key, 'secrets=["HF_TOKEN"]'), WORK)
    assert door.limit is None or made.size <= door.limit
    assert made.edition in door.editions
    script = made.text if name == "terminal" else unpacked(made.text)
    assert WORK.commit in script
    assert "python train.py" in script or "train" in door.leave
    assert SECOND.split()[1] in script
    assert "HF_TOKEN" in script
    assert SECRET not in made.text + script
    # The command waits for the training only if the machine ends with its command.
    assert door.wait == bool(re.search(r"""\bwait\\?['"\n]""", made.text))


@pytest.mark.usefixtures("loosely_packed")
@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.limit])
def test_over_its_limit_a_door_says_the_size_and_what_to_drop(name: str) -> None:
    random = Random(1)
    noise = {f"A{n}": random.randbytes(1500).hex() for n in range((DOORS[name].limit or 0) // 1800)}
    big = profile("vast").replace(env=noise)
    with pytest.raises(UsageError) as found:
        render_door(name, big, WORK)
    said = found.value.text()
    assert exit_code(found.value) == 2
    assert f"{DOORS[name].limit:,} bytes" in said
    assert re.search(r"script needs [\d,]+", said)
    assert "What could go: env (" in said


def test_a_door_that_is_none_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no door azur\.\nThere are: vast"):
        render_door("azur", profile("vast"), WORK)


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("git@github.com:me/homework.git", "https://github.com/me/homework.git"),
        ("ssh://git@gitlab.com:22/me/homework", "https://gitlab.com/me/homework"),
        ("https://me:tok@example.org/x.git", "https://example.org/x.git"),
        ("http://10.0.0.1:80/x.git", "http://10.0.0.1:80/x.git"),
        ("git://git.example:9418/x.git", "git://git.example:9418/x.git"),
    ],
)
def test_an_address_becomes_one_without_a_key(url: str, want: str) -> None:
    assert door_url(url) == want


def test_without_an_address_it_says_how_else() -> None:
    with pytest.raises(UsageError, match="a door can't carry a repository"):
        door_url(None)


@pytest.mark.usefixtures("loosely_packed")
def test_cloud_config_runs_as_the_boxs_user() -> None:
    for name, user in (("lambda", "u=ubuntu;"), ("ec2", "$3>=1000")):
        read = yaml.safe_load(render_door(name, profile("ssh"), WORK).text)
        assert user in read["runcmd"][0][2]
        assert read["write_files"][0]["path"] in read["runcmd"][0][2]


@pytest.mark.usefixtures("loosely_packed")
def test_a_notebook_is_json() -> None:
    notebook = json.loads(render_door("colab", profile("ssh"), WORK).text)
    compile(notebook["cells"][1]["source"], "cell", "exec")


def test_a_devcontainer_is_json() -> None:
    container = json.loads(render_door("devcontainer", profile("vast"), WORK).text)
    assert container["workspaceFolder"] == "/workspace/homework"
    script = unpacked(container["onCreateCommand"][2])
    assert "apply_train()" not in script
    assert "apply_repo()" not in script


@pytest.mark.usefixtures("loosely_packed")
def test_other_engines_begin_the_nodes_and_spot_machines() -> None:
    wanted = profile("ssh", TRAIN, "train.nodes=2", "rent.spot=true", "gpu.name=A100")
    task = yaml.safe_load(render_door("skypilot", wanted, WORK).text)
    assert task["num_nodes"] == 2
    assert task["resources"] == {"accelerators": "A100:1", "use_spot": True}
    task = yaml.safe_load(render_door("dstack", wanted, WORK).text)
    assert (task["nodes"], task["spot_policy"]) == (2, "spot")
    alone = profile("ssh", TRAIN)
    for name in ("skypilot", "dstack"):
        task = yaml.safe_load(render_door(name, alone, WORK).text)
        assert {"num_nodes", "nodes", "spot_policy", "use_spot"}.isdisjoint(task)
    with pytest.raises(UsageError, match=r"gcp starts one box, and train\.nodes is 2"):
        render_door("gcp", wanted, WORK)


def test_a_training_that_died_is_begun_again_where_the_profile_says_so() -> None:
    def script(*sets: str) -> str:
        return unpacked(render_door("gcp", profile("ssh", *sets), WORK).text)

    assert "\nWORDS=''\n" in script()
    assert "\nWORDS='revive'\n" in script("train.at_boot=restart")


@pytest.mark.usefixtures("loosely_packed")
def test_the_full_script_is_carried_unchanged() -> None:
    from bootstrap.render.script import render_script, variables

    what: Profile = profile("vast", "git.access=url")
    steps = carried_steps(what, ())
    script = render_script("vast", variables(what, WORK, steps, local=False, secrets_id=""), steps)
    assert DOORS["gcp"].editions == (FULL,)
    assert f"\n{script}\n" in unpacked(render_door("gcp", profile("vast"), WORK).text)


@pytest.mark.parametrize(("rc", "says"), [(6, "boxstrap: return this box\n"), (7, "")])
def test_a_door_says_to_return_the_box_and_not_what_was_built(rc: int, says: str) -> None:
    """Exit 6 comes from the smoke test too, which runs once the environment is built."""
    script = functions("doors", "terminal", ("end_failed",))
    call = ["bash", "-c", f"{script}\nend_failed {rc} /dev/null"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (rc, says)


def test_no_value_ends_the_carried_script() -> None:
    """A name of several lines could contain the end marker."""
    begin = "x\nEND_OF_FULL_SCRIPT\nEND_OF_FULL_SCRIPT_\ntouch sprung\n"
    carried = render_carrier(profile("vast"), dataclasses.replace(WORK, user_name=begin))
    lines = carried.split("\n")
    (start,) = (at for at, line in enumerate(lines) if line == "full_script() {")
    marker = lines[start + 1].removeprefix("cat <<").strip("'")
    ends = [at for at, line in enumerate(lines) if line == marker]
    assert len(ends) == 1
    assert f"GIT_USER_NAME='{begin}'" in "\n".join(lines[start : ends[0]])
    assert lines[ends[0] - 2 : ends[0]] == ["}", ""]


def test_the_compact_script_has_every_function_that_it_calls() -> None:
    """A function left out of the library might still be called by one that is kept."""
    # The functions of queries are in no script.
    parts = (file for file in static_parts() if file.parent.name != "queries")
    whole = "\n".join(file.read_text() for file in parts)
    ours = render_compact(profile("vast"), WORK)
    defined = set(re.findall(r"^([a-z_]+)\(\)", ours, re.MULTILINE))
    library = set(re.findall(r"^([a-z_]+)\(\)", whole, re.MULTILINE)) - defined
    code = re.sub(r"'[^'\n]*'", "", ours)
    missing = {
        name
        for name in library
        if re.search(rf"(?:^|[;&|({{!]|then|do|until) *{name}\b(?!=)", code, re.MULTILINE)
    }
    assert missing == set()
    assert "find_work" in defined


def test_what_uvx_is_told_there_makes_the_same_script(user: User, tmp_path: Path, key: str) -> None:
    repository = user.repository()
    url = "http://127.0.0.1:9/homework.git"
    repository.git("remote", "add", "origin", url)
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    words = ("--profile", "vast", "--set", TRAIN, "--set", key, "--set", "gpu.count=2")
    paste = user.run("oneliner", "--uvx", "boxstrap==1", *words).must(0).out
    here = user.run("render", "--for", "terminal", *words).must(0).out
    assert max(map(len, paste.splitlines())) < 4095
    far = User(tmp_path / "far")
    # Pasted on the box: this uvx runs the boxstrap under test.
    (tmp_path / "uvx").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    (tmp_path / "uvx").chmod(0o755)
    kept = paste.replace("&&bash ~/.boxstrap-door/box.sh", "&&cat ~/.boxstrap-door/box.sh")
    done = subprocess.run(
        ["bash", "-c", kept],
        cwd=far.home,
        env={**far.env, "PATH": f"{tmp_path}:{far.env['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    made = done.stdout
    assert not (far.home / ".boxstrap-door").exists()

    def told(script: str) -> list[str]:
        names = (
            "# boxstrap",
            "REPO_BRANCH=",
            "GIT_USER_",
        )  # differ by user and by current folder
        lines = script.splitlines()
        return [line for line in lines if not line.startswith((*names, "written: "))]

    assert told(made) == told(here), done.stderr


def test_an_address_of_gits_own_protocol_is_kept_and_warned_of(user: User) -> None:
    user.repository()
    url = "git://127.0.0.1:1/homework.git"
    sets = (f"git.url={url}", "git.access=url", f"git.ref={WORK.commit}")
    words = ("--profile", "vast", *(word for each in sets for word in ("--set", each)))
    made = user.run("render", "--for", "terminal", *words).must(0)
    for name in ("CLONE_URL", "REPO_URL"):
        assert set(re.findall(rf"^{name}=(.*)$", made.out, re.MULTILINE)) == {f"'{url}'"}
    assert "git:// is neither encrypted nor signed" in made.err


def test_the_readable_script_is_shown_whole(user: User) -> None:
    user.repository()
    shown = user.run("render", "--profile", "vast", "--set", TRAIN).must(0)
    assert shown.out.endswith('\nmain "$@"\nexit\n}\n')
    document = user.run("render", "--profile", "vast", "--set", TRAIN, "--json").must(0).json()
    assert len("\n".join(document["lines"])) + 1 == len(shown.out)
    assert document["bytes"] == len(shown.out.encode())
