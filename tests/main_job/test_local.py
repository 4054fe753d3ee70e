"""`--host local`: the same setup on this machine, which leaves the home as it is."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import User
from tests.used_here import seem_set_up
from tests.waiting import wait_until

PROFILE = """\
version: 1
extends: local
box: {workdir: ~/box}
env: {GREETING: "hello"}
train: {command: python train.py}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local") / "home"


@pytest.fixture(scope="module")
def here(home: Path) -> Iterator[User]:
    """A user who has set up this machine."""
    user = User(home)
    (home / ".bashrc").write_text("# mine\n")
    (home / ".ssh").mkdir(mode=0o755)
    (home / ".ssh/authorized_keys").write_text("# none\n")
    user.repository(boxstrap__yaml=PROFILE, requirements__txt="iniconfig>=2\n")
    user.run("setup", "--host", "local").must(0)
    yield user
    user.run("stop", "--host", "local")


def test_setup_on_host_local_reaches_the_first_training_step(here: User) -> None:
    assert "step 1 loss 0.5 hello" in here.run("logs", "--host", "local").must(0).out
    run = here.run("status", "--host", "local", "--json").must(0).json()["runs"][0]
    assert (run["name"], run["state"], run["rc"]) == ("train-1", "finished", 0)


def test_setup_on_host_local_does_not_change_the_users_own_files(here: User) -> None:
    assert (here.home / ".bashrc").read_text() == "# mine\n"
    assert (here.home / ".ssh/authorized_keys").read_text() == "# none\n"
    assert (here.home / ".ssh").stat().st_mode & 0o777 == 0o755
    added = {path.name for path in here.home.iterdir()}
    assert added <= {".bashrc", ".ssh", ".local", ".cache", ".config", "homework", "box"}


def test_setup_on_host_local_leaves_no_process_behind(here: User) -> None:
    def left() -> list[bytes]:
        commands = (_read(line) for line in Path("/proc").glob("[0-9]*/cmdline"))
        mine = (said for said in commands if str(here.home / "box").encode() in said)
        # tmux keeps the session's window open, so that its last output can be read.
        return [said for said in mine if b"tmux" not in said]

    wait_until(lambda: not left(), left)  # bytecode is compiled a little longer


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_setup_after_a_failed_run_exits_with_10_and_names_the_restart_option(user: User) -> None:
    failing = "raise SystemExit('no such set')\n"
    repository = seem_set_up(user, "box").repository(boxstrap__yaml=PROFILE, train__py=failing)
    setup, wait = ("setup", "--host", "local"), ("wait", "--host", "local")
    for more in ((), ("--set", "env.GREETING=other")):
        user.run(*setup, *more).must(10)  # another variable is other work
        again = user.run(*setup, *more).must(10)
        run = f"train-{1 + bool(more)}"
        assert "nothing to do" not in again.text
        assert "  | no such set" in again.out
        assert f"this work was started before, and {run} ended with exit code 1" in again.err
        assert f"boxstrap logs --host local --run {run}" in again.err
        assert "boxstrap setup --restart" in again.err
        assert user.run(*wait).rc == again.rc
    planned = user.run("plan", "--host", "local", "--set", "env.GREETING=other").must(0).out
    assert "train      failed before: --restart" in planned
    # Also when it is gone back to, and if another step has something to do.
    assert "this work was started before, and train-1 " in user.run(*setup).must(10).err
    shutil.rmtree(user.home / "box/homework/.venv")
    mended = user.run(*setup).must(10)
    assert "train      skip   failed before: --restart" in mended.err
    assert (user.home / "box/homework/.venv").exists()
    assert user.run(*setup, "--json").must(10).json()["error"]["what"].startswith("this work was")
    assert len(user.run("status", "--host", "local", "--json").json()["runs"]) == 2
    # What was stopped did not fail, and other files are other work.
    repository.commit({"train.py": "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"})
    user.run(*setup).must(0)
    user.run("stop", "--host", "local").must(0)
    assert "was stopped; to start it again: --restart" in user.run(*setup).must(0).out


def test_setup_does_the_work_if_the_live_run_for_which_it_left_all_as_it_is_ends_at_once(
    user: User,
) -> None:
    """The box left its tree to a live run, which was over as the setup's end was looked at."""
    working = "import os\nprint('step 1', os.environ['GREETING'], flush=True)\n"
    seem_set_up(user, "box").repository(boxstrap__yaml=PROFILE, train__py=working)
    local = ("--host", "local")
    user.run("setup", *local).must(0)
    ends = (
        f"cd {user.home}/box/.boxstrap/setups; touch begun; echo step 1; until grep -qs "
        '\'"step":"train","event":"skip"\' $(find . -name events.jsonl -newer begun) /dev/null; '
        "do sleep 0.01; done"
    )
    user.run("run", *local, "--", ends).must(0)
    done = user.run("setup", *local, "--set", "env.GREETING=other").must(0)
    assert "train      skip   a run is alive" in done.err
    assert "step 1 other" in done.out
