"""`boxstrap` and `inv` as commands: exit codes, one clear message, one JSON document."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bootstrap.link import KnownBox, record
from bootstrap.repo.local import read_repository
from bootstrap.tasks import NAMES
from bootstrap.tasks.command import own_error
from tests.cases import read_cases
from tests.cli import User
from tests.plain_environment import BIN, HERE
from tests.programs import captured

pytestmark = pytest.mark.slow

PROGRAMS = ["boxstrap", "inv"]
TASKS = sorted(NAMES)
HOSTLESS = {"boxes", "demo", "guard", "init", "oneliner", "profiles", "render", "ssh-config"}
HOSTLESS |= {"completion", "estimate", "mcp", "schema", "skill", "up"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_boxstrap_and_inv_list_the_same_commands(program: str, at: User) -> None:
    shown = at.run("--list", program=program).must(0).out
    listed = [line.split()[0] for line in shown.splitlines() if line[:3].strip() and line[0] == " "]
    assert sorted(name for name in listed if name in TASKS) == TASKS


@pytest.mark.parametrize("task", TASKS)
def test_every_command_has_a_help_text_with_an_example(task: str, at: User) -> None:
    shown = at.run(task, "--help").must(0).out
    assert f"Example: boxstrap {task}" in shown
    assert "--host" in shown or task in HOSTLESS
    options = [line.split()[0] for line in shown.splitlines() if line.startswith("  --")]
    undescribed = [line for line in shown.splitlines() if line.strip() in options]
    assert undescribed == []


def test_starting_a_command_imports_no_heavy_library(at: User) -> None:
    heavy = {"fabric", "paramiko", "rich", "git", "jinja2", "pydantic", "unittest", "invoke"}
    done = at.run("--help", PYTHONPROFILEIMPORTTIME="1").must(0)
    assert done.imported & {*heavy, "yaml"} == set()
    done = at.run("status", "--host", "local", PYTHONPROFILEIMPORTTIME="1").must(0)
    assert done.imported & {*heavy, "textwrap", "hmac"} == set()


def test_an_invoke_yaml_in_the_home_folder_changes_inv_but_not_boxstrap(at: User) -> None:
    (at.home / ".invoke.yaml").write_text("run: {dry: true}\n")
    assert "--dry" in at.run("boxes", "--forget", "x", program="inv").must(2).err
    assert "there is no box 'x'" in at.run("boxes", "--forget", "x").must(2).err


def test_modules_that_open_a_connection_to_a_box_import_no_ssh_library() -> None:
    use = (
        "import bootstrap.link.dial, bootstrap.link.target, bootstrap.setup.sequence, sys;"
        "import bootstrap.setup.new_run, bootstrap.setup.sync, bootstrap.runs.logs;"
        "import bootstrap.runs.status, bootstrap.runs.run_end;"
        "print(*{'paramiko', 'fabric', 'cryptography', 'pydantic', 'yaml'} & {*sys.modules})"
    )
    done = captured([sys.executable, "-c", use])
    assert done.stdout.split() == []


def test_a_command_writes_bytecode_of_its_imports_for_the_next_start(
    tmp_path: Path, at: User
) -> None:
    at.run("profiles", PYTHONPYCACHEPREFIX=str(tmp_path)).must(0)
    assert list(tmp_path.rglob("site-packages/yaml/cyaml.*.pyc"))
    assert list(tmp_path.rglob("bootstrap/profile/schema.*.pyc"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wrong_command_line_with_json_prints_a_json_error(program: str, at: User) -> None:
    error = at.run("up", "--json", "--max-pric", "1", program=program).must(2).json()["error"]
    assert error["what"] == "there is no option '--max-pric' of up."
    assert error["next"].startswith("Did you mean --max-price?\nWhat it takes: boxstrap up --help")
    assert at.run("run", "--nope", "--", "python", "--json", program=program).must(2).out == ""


def test_status_without_any_known_box_says_how_to_rent_or_name_one(at: User) -> None:
    found = at.run("status", "--json").must(0).json()
    assert found["boxes"] == []
    assert found["why"].startswith("No box is known yet.\nSay how it is reached")
    assert "boxstrap up --dry-run" in at.run("status").must(0).out
    gone = record.KnownBox("old", "vast:1").using(read_repository(at.place).key, workdir="/w")
    record.save_box(gone)
    record.retire(gone)
    found = at.run("status", "--json").must(0).json()
    home = "No box is known; old was given back.\nWhat came home from there: boxstrap runs\n"
    assert found["why"].startswith(home)
    error = at.run("pull", "--json").must(2).json()["error"]
    assert error["what"] == "which box? No box is known; old was given back."
    remember(at, "one")
    error = at.run("pull", "--json").must(2).json()["error"]
    assert error["next"].startswith("What came home from there: boxstrap runs\nName the one you")
    assert error["next"].endswith("as in: boxstrap pull --json --host one")


def test_doctor_names_each_program_that_is_not_installed(at: User, tmp_path: Path) -> None:
    told = at.run("doctor", PATH=str(tmp_path), SSH_AUTH_SOCK="/nowhere").must(2).out
    for check in ("ssh", "git", "ssh-agent"):
        assert f"no  {check:<12} is not installed" in told


def test_doctor_names_a_money_cap_that_can_not_be_read(at: User) -> None:
    assert "ok  money " in at.run("doctor").must(0).out
    caps = at.home / ".config/boxstrap/config.yaml"
    caps.parent.mkdir(parents=True, exist_ok=True)
    caps.write_text("money:\n  max_price: cheap\n")
    told = at.run("doctor").must(2).out
    caps.unlink()
    assert "config.yaml:2: money.max_price: 'cheap' is no amount of dollars" in told


def test_doctor_says_that_nothing_ends_a_box_whose_account_is_not_known_here(at: User) -> None:
    lease = {"set": 1.0, "seconds": 3600.0, "held": "no-account"}
    record.save_box(KnownBox("g3", "root@203.0.113.9", "203.0.113.9", lease=lease))
    assert "nothing ends g3, which no account here has" in at.run("doctor").must(0).out


def remember(user: User, *names: str) -> None:
    for number, name in enumerate(names):
        record.save_box(KnownBox(name, f"root@203.0.113.{number}", f"203.0.113.{number}"))


def test_a_command_without_host_among_several_boxes_exits_with_2_and_lists_boxes(at: User) -> None:
    remember(at, "one", "two")
    for task in ("setup", "logs", "stop", "plan", "verify"):
        done = at.run(task).must(2)
        assert "\n  one  203.0.113.0:22, of no repository\n  two  203." in done.err
        assert f"as in: boxstrap {task} --host one" in done.err
    told = at.run("exec", "ls", "--host", "x", "--host", "two").must(2).err  # words of the command
    assert "as in: boxstrap exec --host two -- ls --host x\n" in told


def test_init_writes_a_valid_profile_and_never_overwrites_one(user: User) -> None:
    repository = user.repository(requirements__txt="iniconfig\n")
    (repository.root / "boxstrap.yaml").unlink()
    user.run("init").must(0)
    written = (repository.root / "boxstrap.yaml").read_text()
    assert "#" in written
    user.run("profiles", "--validate", "./boxstrap.yaml").must(0)
    refused = user.run("init").must(2)
    assert "there already" in refused.err
    assert (repository.root / "boxstrap.yaml").read_text() == written


def test_init_says_if_a_repository_or_a_first_commit_is_missing(user: User, tmp_path: Path) -> None:
    user.place = tmp_path
    assert "git init" in user.run("init").must(0).out
    (tmp_path / "boxstrap.yaml").unlink()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=user.env, check=True)
    assert "no commit yet" in user.run("init", "--json").must(0).json()["notes"][-1]


@pytest.mark.parametrize("target", ["nowhere", "../there"])
def test_init_does_not_write_a_profile_through_a_symlink(target: str, user: User) -> None:
    repository = user.repository()
    (repository.root.parent / "there").write_text("mine\n")
    (repository.root / "boxstrap.yaml").unlink()
    (repository.root / "boxstrap.yaml").symlink_to(target)
    before = {*user.home.rglob("*")}
    assert "there already" in user.run("init").must(2).err
    (known,) = user.state.glob("repositories/*.json")  # boxstrap's own record of the repository
    assert {*user.home.rglob("*")} ^ before == {known, *known.parents[:4]}
    assert (repository.root.parent / "there").read_text() == "mine\n"


def test_init_takes_the_likelier_training_script_unless_option_command_gives_one(
    user: User,
) -> None:
    learns = "import torch\nif __name__ == '__main__':\n    optimizer = 1\n"
    repository = user.repository(boxstrap__yaml="", train_a__py=learns, train_bc__py=learns)
    profile = repository.root / "boxstrap.yaml"
    profile.unlink()
    (repository.root / "train.py").unlink()
    said = "may be the training: train_a.py, train_bc.py (taken is train_a.py"
    assert said in user.run("init").must(0).out
    assert (
        'command: "python train_a.py"    # chosen by its name and contents' in profile.read_text()
    )
    # As its notes advise: nobody has touched the file since.
    done = user.run("init", "--command", "python train_bc.py --epochs 3").must(0)
    assert "may be" not in done.out
    assert "boxstrap.yaml (over the one that init wrote, unchanged since)\n" in done.out
    assert 'command: "python train_bc.py --epochs 3"    # as you said' in profile.read_text()
    assert "packages: [torch]    # train_bc.py imports it" in profile.read_text()
    refused = user.run("init", "--command", "a\nb").must(2)
    assert "a line break" in refused.err or "control character" in refused.err
    assert "there already" in user.run("init", "--command", "python train_a.py").must(2).err


def test_an_internal_error_exits_with_1_and_a_crash_report_without_traceback(at: User) -> None:
    state = at.state
    state.mkdir(parents=True)
    (at.home / "broken").mkdir()
    (at.home / "broken" / "sitecustomize.py").write_text(
        "import bootstrap.tasks.doctor\n"
        "def broken(*_):\n    raise RuntimeError('on purpose')\n"
        "bootstrap.tasks.doctor.examine = broken\n"
    )
    done = at.run("doctor", PYTHONPATH=f"{at.home / 'broken'}:{HERE}").must(1)
    assert "boxstrap itself failed: RuntimeError: on purpose" in done.err
    (report,) = (state / "reports").iterdir()
    assert "Traceback" in report.read_text()
    as_json = at.run("doctor", "--json", PYTHONPATH=f"{at.home / 'broken'}:{HERE}").must(1).json()
    assert as_json["exit"] == 1


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("setup", "interrupted here.\nNothing began on the box.\n"),
        (
            "stop",
            "To stop it, or to see that it has ended: boxstrap stop --host root@203.0.113.1\n",
        ),
        ("report", "To make it: boxstrap report --host root@203.0.113.1\n"),
    ],
)
def test_ctrl_c_while_a_command_connects_exits_with_130_and_says_what_began_or_how_to_go_on(
    task: str, said: str, at: User
) -> None:
    """While waiting for a host that doesn't answer."""
    going = at.begin(task, "--host", "root@203.0.113.1")
    time.sleep(1.5)
    going.interrupt()
    assert going.end().must(130).err.endswith(said)


def test_ctrl_c_while_a_command_cleans_up_exits_with_130(at: User) -> None:
    """Python only prints what is raised in `__del__`, and continues."""
    (at.home / "held").mkdir()
    (at.home / "held" / "sitecustomize.py").write_text(
        "import os, signal, time\n"
        "import bootstrap.tasks.doctor\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Held:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(1)\n"
        "def examine(*_):\n"
        "    for _ in range(2):\n"
        "        Held()\n"
        "    time.sleep(60)\n"
        "bootstrap.tasks.doctor.examine = examine\n"
    )
    done = at.run("doctor", timeout=120, PYTHONPATH=f"{at.home / 'held'}:{HERE}").must(130)
    assert "interrupted" in done.err
    assert "ignored" not in done.err


def test_ctrl_c_before_a_command_has_begun_exits_with_130_and_no_traceback(at: User) -> None:
    (at.home / "early").mkdir()
    (at.home / "early" / "sitecustomize.py").write_text(
        "import bootstrap.tasks.parser\n"
        "def parse_program(*_):\n"
        "    raise KeyboardInterrupt\n"
        "bootstrap.tasks.parser.parse_program = parse_program\n"
    )
    done = at.run("boxes", PYTHONPATH=f"{at.home / 'early'}:{HERE}").must(130)
    assert done.err == ""


@pytest.mark.parametrize("arguments", [["boxes"], ["boxes", "--json"], ["--list"]], ids=" ".join)
def test_a_command_whose_output_fills_the_disk_prints_a_single_error_line(
    arguments: list[str], at: User
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [BIN / "boxstrap", *arguments],
            cwd=at.place,
            env=at.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("can't be used: no space left on device.") == 1
    assert len(done.stderr.splitlines()) == 2


UNREAD = {
    "boxes >&3": 141,
    "boxes >&-": 141,
    "boxes 2>&- <&-": 0,
    "boxes --forget x >&3 2>&3": 2,
    "boxes --forget x >&- 2>&-": 2,
    "setup --committed-only --host root@127.0.0.1:1 2>&1 | head -n 1": 3,
}
"""Command lines whose 3 is a pipe that nobody reads any more, and their exit codes."""


@pytest.mark.parametrize(
    ("program", "line"),
    [
        *(("boxstrap", line) for line in UNREAD),
        *(("inv", line) for line in ("boxes >&3", "boxes 2>&- <&-")),
    ],
)
def test_a_command_whose_output_pipe_is_closed_ends_without_traceback(
    line: str, program: str, at: User
) -> None:
    reading, unread = os.pipe()
    os.close(reading)
    shell_line = line.replace("&3", f"&{unread}")
    done = captured(
        ["bash", "-o", "pipefail", "-c", f"{BIN / program} {shell_line}"],
        cwd=at.place,
        env=at.env,
        pass_fds=[unread],
        check=False,
    )
    os.close(unread)
    found = (done.returncode, "Traceback" in done.stdout + done.stderr)
    assert found == (UNREAD[line], False)


def test_a_broken_pipe_of_a_socket_exits_with_1_unlike_that_of_closed_output(at: User) -> None:
    (at.home / "sitecustomize.py").write_text(
        "import bootstrap.tasks.doctor\n"
        "def broken(*_):\n    raise BrokenPipeError(32, 'of a socket')\n"
        "bootstrap.tasks.doctor.examine = broken\n"
    )
    done = at.run("doctor", PYTHONPATH=f"{at.home}:{HERE}").must(1)
    assert "of a socket" in done.err


def test_an_internal_error_is_shown_even_where_no_crash_report_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boxstrap").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    told = own_error(ValueError("broken"), str).text()
    assert "boxstrap itself failed: ValueError: broken" in told
    assert "No report was kept of it: " in told
    assert "not a directory" in told


CASES = dict(read_cases(Path(__file__).with_name("typed.txt"))[1:])


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_each_typed_command_ends_with_its_exit_code_and_says_its_words_alone(
    text: str, reader: User
) -> None:
    before = sorted(reader.place.rglob("*"))
    for typed in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, code, *said = typed.splitlines()
        program, *words = shlex.split(line)
        rc = int(code.removeprefix("exit "))
        done = reader.run(*words, program=program).must(rc)
        for one in said:
            assert (one.removeprefix("! ") in done.text) is not one.startswith("! "), (line, one)
        if "--json" in words:
            document = json.loads(done.out)
            assert (document["v"], document["exit"], done.out.count("\n")) == (1, rc, 1)
            assert done.err == "" if rc == 0 else document["error"]["what"]
            assert rc == 0 or document["error"]["exit"] == rc
        elif rc == 2:
            assert done.out == ""
            assert 1 <= len(done.err.strip().splitlines()) <= 14, done.err
    assert sorted(reader.place.rglob("*")) == before
