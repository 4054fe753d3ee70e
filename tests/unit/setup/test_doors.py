"""Scripts for doors: sizes, limits, and that packing changes only the length."""

import ast
import base64
import dataclasses
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import pytest
import yaml

from bootstrap.errors import UsageError, exit_code
from bootstrap.setup import Reporter, SetupRequest, doors
from bootstrap.setup.door_table import DOORS, NARROWEST
from bootstrap.setup.doors import (
    PASTE_LIMIT,
    door_url,
    render_carrier,
    render_door,
    render_fetching,
    too_long,
)
from bootstrap.setup.program import packed_program, program, program_files
from bootstrap.setup.script import RECIPE_HERE
from bootstrap.steps import shell
from bootstrap.steps.plan import NAMES
from bootstrap.steps.shell import bare_python, bare_shell, bare_tree, folded, functions, paste
from tests.cli import User
from tests.programs import captured
from tests.unit.setup.scripts import SHIPPED, TRAIN, WORK, profile, render, static_parts
from tests.unit.setup.test_lint import shellcheck

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]

SECOND = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO second"
REF = "refs/boxstrap/0123456789abcdef"
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
    found = re.search(r"H4sI(?:[A-Za-z0-9+/]|\s|\\n|\\(?=\n))*=*", text.replace('", "', ""))
    assert found
    packed = re.sub(r"\s|\\n|\\", "", found[0])
    unzip = zlib.decompressobj(31)
    script = unzip.decompress(base64.b64decode(packed[: len(packed) // 4 * 4])).decode()
    assert unzip.eof  # the stream is complete; what follows is not part of it
    return script


def test_the_setup_script_without_comments_defines_the_same_functions() -> None:
    """Compared as bash parsed it, ignoring the indentation of multi-line strings."""

    def functions(*texts: str) -> list[str]:
        script = "".join(texts) + "\ndeclare -f"
        done = captured(["bash"], input=script, timeout=120)
        return [line.strip() for line in done.stdout.splitlines()]

    parts = [part.read_text() for part in static_parts() if part.parent.name == "lib"]
    whole = functions(*parts)
    assert functions(*map(bare_shell, parts)) == whole
    assert len(whole) > 600


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in {"local", "demo"}])
def test_a_setup_command_to_paste_is_no_longer_than_a_terminal_takes(name: str, key: str) -> None:
    what = profile(name, key)
    # Random ids, like real ones, compress badly.
    commit, root = (Random(seed).randbytes(20).hex() for seed in (1, 2))
    own = {"commit": commit, "snapshot": commit, "tree": "", "root": root}
    work = dataclasses.replace(WORK, **own, key=f"homework-{root[:8]}")
    assert len(paste(render_carrier(what, work, bare=True))) <= PASTE_LIMIT
    assert len(paste(render_fetching(what, work, REF))) <= NARROWEST


def test_a_paste_with_more_of_the_program_than_gzip_gets_into_the_limit_is_of_bzip2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = profile("vast", "lease.hours=2", "prepare=['true']", "secrets=['KEY']")
    monkeypatch.setattr(doors, "_for_door", lambda *_: doors._Work(what, WORK, "https://host/x"))
    monkeypatch.setattr(doors, "find_program", lambda *_: "")
    push = doors.Pushing(asked_for=False, ask=lambda _: False)
    text = doors.render_paste(SetupRequest(), Reporter(), push=push, uvx="").text
    assert len(text) <= PASTE_LIMIT
    # Where there is no bzip2, Python unpacks it; what is damaged doesn't run.
    for name in ("bash", "base64", "mktemp", "rm", "python3"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    small = paste("echo it ran", 0)
    for path in (str(tmp_path), os.environ["PATH"]):
        monkeypatch.setenv("PATH", path)
        assert captured(["bash"], input=small).stdout == "it ran\n"
        assert captured(["bash"], input=small.replace("QlpoO", "QlpoP"), check=False).stdout == ""


def test_shellcheck_finds_nothing_in_the_scripts_that_render_writes(
    key: str, tmp_path: Path
) -> None:
    what = profile(
        "vast", key, 'secrets=["HF_TOKEN"]', 'packages=["ffmpeg"]', "python.version=3.11"
    )
    for name, script in {
        "inside": render_carrier(what, WORK),
        "fetched": render_fetching(what, WORK, REF),
    }.items():
        file = tmp_path / f"{name}.sh"
        file.write_text(script)
        assert subprocess.run(["bash", "-n", file], check=False).returncode == 0
        assert shellcheck(file) == ""


def test_the_program_sent_to_a_box_is_the_same_for_every_profile() -> None:
    made = program()
    assert made.text == program.__wrapped__().text
    for name in NAMES:
        assert (f"\napply_{name}() " in made.text) != (f"\fonbox/steps/{name}.py\n" in made.text)
    assert made.digest == hashlib.sha256(gzip.decompress(made.packed)).hexdigest()
    assert WORK.commit not in made.text
    assert made.digest in render_fetching(profile("vast"), WORK, REF)


def full_script(door: str) -> str:
    """Return the script that a carrier starts, as its own shell puts it together."""
    script = "whole_script".join(door.rsplit('enter_door "$@"', 1))
    return captured(["bash"], input=script).stdout


def declared(text: str) -> str:
    """Return a file's functions as bash prints them, without comments and indentation."""
    script = f"{text}\ndeclare -f"  # from stdin: too long for one argument
    done = captured(["bash", "--norc", "/dev/stdin"], input=script)
    return done.stdout


def test_removing_comments_from_the_setup_script_keeps_a_quoted_hash_line() -> None:
    assert declared("f() {\n  echo '\n  # no comment\n'\n}") != declared(
        bare_shell("f() {\n  echo '\n  # no comment\n'\n}")
    )


def test_python_packed_for_a_pasted_setup_has_no_types_but_those_of_a_class() -> None:
    text = """\
from __future__ import annotations
from typing import Any, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

class Row(NamedTuple):
    \'\'\'One.\'\'\'
    name: Any
    def of(self, text: Sequence[str]) -> str:
        said: str = text[0]  # first
        count: int
        return said
"""
    imports = "from __future__ import annotations;from typing import Any,NamedTuple"
    row = "class Row(NamedTuple):\n name:Any\n def of(self,text):said=text[0];pass"
    assert bare_python(text) == f"{imports}\n{row};return said"
    plain = "from __future__ import annotations\nfrom typing import Any\nx: Any = 3\n"
    assert bare_python(plain) == "x=3"


def test_python_packed_for_a_pasted_setup_parses_to_the_same_syntax_tree() -> None:
    own = {name: text for name, text in program_files().items() if name.endswith(".py")}
    tricky = (
        """x = f"{a!r:>{b}} , {c if b else ' : '}" + ' - , = ' + " d ' - , " if e else {1: -1}\n"""
    )
    for text in (tricky, *own.values()):
        assert ast.dump(ast.parse(bare_python(text))) == ast.dump(bare_tree(text))


FEW = ("DATA", "LEASE", "PREPARE", "RESULTS_TO", "CONDA", "INSTALLER", "DEPENDENCIES")
FEW += ("TRAIN_NODES",)


@pytest.mark.parametrize("used", [(), FEW])
def test_each_python_module_in_a_short_setup_script_can_be_imported(
    used: tuple[str, ...], tmp_path: Path
) -> None:
    carried = dict(file.split("\n", 1) for file in packed_program(used).text.split("\f")[1:])
    modules = [name for name in carried if name.endswith(".py")]
    assert ({*carried} == {*program_files(bare=True)}) == bool(used)
    for name, text in carried.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        assert not name.endswith(".py") or f"{bare_python(text)}\n" == text
    names = ", ".join(name.removesuffix(".py").replace("/", ".") for name in modules)
    done = subprocess.run(
        [sys.executable, "-B", "-c", f"import {names}"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    door = render_door("runpod", profile("vast"), WORK)
    assert packed_program(()).text in unpacked(door.text)
    assert "\fonbox/conda/" not in packed_program(()).text
    assert "\fonbox/conda/" in packed_program(("CONDA",)).text


def test_a_setup_script_to_paste_has_lines_of_at_most_1000_characters(key: str) -> None:
    text = paste(render_carrier(profile("vast", key), WORK, bare=True))
    assert max(map(len, text.splitlines())) <= 1000
    assert folded("a" * 2500).splitlines() == ["a" * 1000, "a" * 1000, "a" * 500]


@each_door
def test_a_rendered_start_up_script_fits_its_providers_limit_and_has_no_secret(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("GIT_TOKEN", SECRET)
    door = DOORS[name]
    what = profile("vast", key, 'secrets=["HF_TOKEN"]')
    fetched, made = render_door(name, what, WORK, ref=REF), render_door(name, what, WORK)
    assert fetched.fits
    assert made.fits == (name not in ("vast", "ec2", "azure"))
    made = made if made.fits else fetched
    script = made.text if name == "terminal" else unpacked(made.text)
    assert WORK.commit in script
    assert "python train.py" in script or "train" in door.leave
    assert SECOND.split()[1] in script
    assert "HF_TOKEN" in script
    assert SECRET not in made.text + script
    # The command waits for the training only if the machine ends with its command.
    wrapper = made.text.replace(script, "")
    assert door.wait == bool(re.search(r"""\bwait\\?['"\n]""", wrapper))


@pytest.mark.usefixtures("loosely_packed")
@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.limit])
def test_a_rendered_start_up_script_over_its_providers_limit_exits_with_2_and_says_its_size(
    name: str,
) -> None:
    random = Random(1)
    noise = {f"A{n}": random.randbytes(1500).hex() for n in range((DOORS[name].limit or 0) // 1800)}
    big = profile("vast").replace(env=noise)
    made = render_door(name, big, WORK, ref=REF)
    assert not made.fits
    error = too_long(made, big)
    said = error.text()
    assert exit_code(error) == 2
    assert f"{DOORS[name].limit:,} bytes" in said
    assert re.search(r"script needs [\d,]+", said)
    assert "What could go of the profile: env (" in said
    assert "What could go" not in too_long(made, profile("vast")).text()  # nothing of it is large


@pytest.mark.usefixtures("loosely_packed")
def test_a_setup_to_paste_that_is_over_200000_bytes_is_wrong_usage_that_says_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    big = profile("vast").replace(env={"NOISE": Random(1).randbytes(60_000).hex()})
    monkeypatch.setattr(doors, "_for_door", lambda *_: doors._Work(big, WORK, "https://host/x"))
    monkeypatch.setattr(doors, "find_program", lambda *_: "")
    push = doors.Pushing(asked_for=False, ask=lambda _: False)
    with pytest.raises(UsageError, match="a paste takes 200,000 bytes"):
        doors.render_paste(SetupRequest(), Reporter(), push=push, uvx="")


def test_render_for_an_unknown_name_is_wrong_usage_and_lists_the_known_names() -> None:
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
def test_a_script_that_render_writes_has_the_git_url_as_https_without_a_password(
    url: str, want: str
) -> None:
    assert door_url(url) == want


def test_render_for_a_provider_refuses_a_repository_without_a_remote() -> None:
    with pytest.raises(UsageError, match="a door can't carry a repository"):
        door_url(None)


@pytest.mark.usefixtures("loosely_packed")
def test_a_rendered_cloud_config_runs_the_setup_script_as_the_boxs_user() -> None:
    for name, user in (("lambda", "u=ubuntu;"), ("ec2", "$3>=1000")):
        read = yaml.safe_load(render_door(name, profile("ssh"), WORK).text)
        assert user in read["runcmd"][0][2]
        assert read["write_files"][0]["path"] in read["runcmd"][0][2]


@pytest.mark.usefixtures("loosely_packed")
def test_render_for_colab_writes_a_json_notebook_with_valid_python() -> None:
    notebook = json.loads(render_door("colab", profile("ssh"), WORK).text)
    compile(notebook["cells"][1]["source"], "cell", "exec")


def test_render_for_a_devcontainer_refuses_a_value_with_a_devcontainer_variable() -> None:
    container = json.loads(render_door("devcontainer", profile("vast"), WORK).text)
    assert container["workspaceFolder"] == "/workspace/homework"
    script = unpacked("".join(container["onCreateCommand"][4:]))
    assert re.findall(r"^  step ([a-z]+)$", script, re.MULTILINE)[-2:] == ["python", "smoke"]
    assert "step repo" not in script
    taking = profile("vast", "env.A=${localEnv:HF_TOKEN}")
    with pytest.raises(UsageError, match=r"env\.A: a devcontainer fills in"):
        render_door("devcontainer", taking, WORK)


@pytest.mark.usefixtures("loosely_packed")
def test_skypilot_and_dstack_files_ask_for_the_profiles_gpus_nodes_and_spot_machines() -> None:
    wanted = profile("ssh", TRAIN, "train.nodes=2", "rent.spot=true", "gpu.name=A100")
    task = yaml.safe_load(render_door("skypilot", wanted, WORK).text)
    assert task["num_nodes"] == 2
    assert task["resources"] == {"accelerators": "A100:1", "use_spot": True}
    task = yaml.safe_load(render_door("dstack", wanted, WORK).text)
    assert (task["nodes"], task["spot_policy"]) == (2, "spot")
    alone = profile("ssh", TRAIN, "gpu.min_memory_gib=15.5", "gpu.count=2")
    task = yaml.safe_load(render_door("skypilot", alone, WORK).text)
    assert task["resources"] == {"accelerators": "nvidia:16GB+:2"}
    none = profile("ssh", TRAIN, "gpu.require=false")
    assert "resources" not in yaml.safe_load(render_door("skypilot", none, WORK).text)
    for name in ("skypilot", "dstack"):
        task = yaml.safe_load(render_door(name, alone, WORK).text)
        assert {"num_nodes", "nodes", "spot_policy", "use_spot"}.isdisjoint(task)
    with pytest.raises(UsageError, match=r"gcp starts one box, and train\.nodes is 2"):
        render_door("gcp", wanted, WORK)


def test_a_rendered_start_up_script_carries_the_same_script_as_is_sent_over_ssh() -> None:
    over_ssh = render(profile("vast", "git.access=url"))
    assert full_script(render_carrier(profile("vast"), WORK)) == over_ssh
    assert RECIPE_HERE not in over_ssh


@pytest.mark.parametrize(("rc", "says"), [(6, "boxstrap: return this box\n"), (7, "")])
def test_a_pasted_script_says_to_return_the_box_only_if_it_ends_with_exit_code_6(
    rc: int, says: str
) -> None:
    """Exit 6 comes from the smoke test too, which runs once the environment is built."""
    script = functions("doors", "carrier", ("end_failed",))
    call = ["bash", "-c", f"{script}\nend_failed {rc} /dev/null"]
    done = captured(call, check=False)
    assert (done.returncode, done.stderr) == (rc, says)


def test_a_profile_value_with_the_end_marker_does_not_cut_a_rendered_script_short() -> None:
    """A name of several lines could contain the end marker."""
    begin = "x\nEND_OF_SCRIPT\nEND_OF_SCRIPT_\ntouch sprung\n"
    carried = render_carrier(profile("vast"), dataclasses.replace(WORK, branch=begin))
    assert f"REPO_BRANCH='{begin}'" in full_script(carried)
    lines = carried.split("\n")
    (start,) = (at for at, line in enumerate(lines) if line == "recipe_text() {")
    marker = lines[start + 1].removeprefix("cat <<").strip("'")
    ends = [at for at, line in enumerate(lines) if line == marker]
    assert len(ends) == 1
    assert f"REPO_BRANCH='{begin}'" in "\n".join(lines[start : ends[0]])


def test_the_uvx_command_of_oneliner_makes_the_same_script_as_render(
    user: User, tmp_path: Path, key: str
) -> None:
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
    done = captured(
        ["bash", "-c", kept],
        cwd=far.home,
        env={**far.env, "PATH": f"{tmp_path}:{far.env['PATH']}"},
        check=False,
    )
    made = done.stdout
    assert not (far.home / ".boxstrap-door").exists()

    def told(script: str) -> list[str]:
        names = (
            "# boxstrap",
            "  # By the profile",
            "  REPO_BRANCH=",
            "  GIT_USER_",
        )  # differ by user and by current folder
        lines = script.splitlines()
        return [line for line in lines if not line.startswith((*names, "written: "))]

    assert told(made) == told(here), done.stderr


def test_render_keeps_a_git_scheme_url_and_warns_that_it_is_not_encrypted(user: User) -> None:
    user.repository()
    url = "git://127.0.0.1:1/homework.git"
    sets = (f"git.url={url}", "git.access=url", f"git.ref={WORK.commit}")
    words = ("--profile", "vast", *(word for each in sets for word in ("--set", each)))
    made = user.run("render", "--for", "terminal", *words).must(0)
    assert set(re.findall("^  REPO_URL=(.+)$", made.out, re.MULTILINE)) == {f"'{url}'"}
    assert set(re.findall("^  CLONE_URL=(.+)$", made.out, re.MULTILINE)) == {f"'{url}'"}
    assert "git:// is neither encrypted nor signed" in made.err


def test_render_prints_the_whole_script_and_the_same_lines_as_json(user: User) -> None:
    user.repository()
    shown = user.run("render", "--profile", "vast", "--set", TRAIN).must(0)
    assert shown.out.endswith("\nesac\nexit\n}\n")
    assert re.search(r"program +\S+ on a box, templates/ and onbox/ here", shown.err)
    document = user.run("render", "--profile", "vast", "--set", TRAIN, "--json").must(0).json()
    assert len("\n".join(document["lines"])) + 1 == len(shown.out)
    assert document["bytes"] == len(shown.out.encode())
