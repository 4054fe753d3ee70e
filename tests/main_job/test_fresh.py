"""The main job on every kind of box: to the first training step, and then nothing to do."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.boxes.environment_probe import WAYS
from tests.cli import ME, Completed, User
from tests.faults.plugin import Faults
from tests.main_job.rented import Rented

pytestmark = pytest.mark.sampled(of="module")

ODD = 'it\'s $HOME `x` "q" é'
TOKEN = "tok-5f1d0c9a7e"
PROFILE = """\
version: 1
ssh: {authorized_keys: [~/rig.pub, ~/second.pub]}
gpu: {require: false}
env: {GREETING: "it's $HOME `x` \\"q\\" é"}
train: {command: python train.py, session: lesson}
"""
TRAIN = """\
import iniconfig, os, sys
print("step 1 loss 0.5", os.environ["GREETING"], sys.prefix, flush=True)
if len(sys.argv) > 9:
    from iniconfig import _version
"""
SECOND = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO second"
WORKDIRS = {
    "vast": "/workspace",
    "runpod": "/workspace",
    "lambda": "/home/ubuntu",
    "bare": "/root",
    "nosudo": "/home/student",
}
# None of these kinds has systemd; it is counted once.
LACKS = {
    "bare": ("no python3", "no git, curl or tmux", "no systemd"),
    "nosudo": ("no root, no sudo",),
    "runpod": ("no tmux, no rsync",),
}


@dataclasses.dataclass
class Fresh(Rented):
    """A box after its first setup, and what that printed."""

    first: Completed
    commit: str


@pytest.fixture(scope="module", params=WORKDIRS)
def fresh(
    request: pytest.FixtureRequest, mirror_rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fresh]:
    user = User(tmp_path_factory.mktemp(request.param) / "home")
    repository = user.repository(
        boxstrap__yaml=PROFILE, train__py=TRAIN, requirements__txt="iniconfig>=2\n"
    )
    repository.git("remote", "add", "origin", f"https://me:{TOKEN}@example.org/me/homework.git")
    box = mirror_rig.start(request.param)
    public = Path(f"{box.identity}.pub").read_text()
    (user.home / "rig.pub").write_text(public)
    (user.home / "second.pub").write_text(SECOND + "\n")
    user.agree()
    rented = Rented(user, box)
    yield Fresh(user, box, rented.run("setup"), repository.head)
    box.stop()


def test_setup_of_a_fresh_box_reaches_the_first_training_step(fresh: Fresh, faults: Faults) -> None:
    for fault in LACKS.get(fresh.box.kind, ["a box as it is rented"]):
        with faults.attempt(fault) as attempt:
            fresh.first.must(0)
            attempt.outcome("works")
    place = WORKDIRS[fresh.box.kind]
    assert f"step 1 loss 0.5 {ODD} {place}/homework/.venv" in fresh.first.out
    assert "lesson-1: finished" in fresh.first.out
    assert "was not started" not in fresh.first.text
    started = re.findall(r" (\w+) +start ", fresh.first.err)
    assert (started[0], len(started)) == ("preflight", len({*started}))
    assert fresh.tree == f"{place}/homework"


def test_packages_are_compiled_to_bytecode_during_the_training(fresh: Fresh) -> None:
    """Modules that it never imports are compiled too; no bytecode is written into its tree."""
    compiled = f"{fresh.tree}/.venv/lib/python3*/site-packages/iniconfig/__pycache__/_version.*.pyc"
    fresh.box.run(f"timeout 30 sh -c 'until ls {compiled}; do sleep 0.2; done'")
    assert not fresh.box.exists(f"{fresh.tree}/__pycache__")


@pytest.mark.sampled
def test_env_of_the_profile_is_in_every_kind_of_shell_of_a_fresh_box(fresh: Fresh) -> None:
    shown = "printf '<%s>' \"$GREETING\""
    ways = {
        "ssh": fresh.ssh(shown),
        "login": fresh.ssh(f"bash -lc {_quoted(shown)}"),
        "interactive": fresh.ssh(f"bash -ic {_quoted(shown)} 2>/dev/null"),
        "login sh": fresh.ssh(f"sh -lc {_quoted(shown)}"),
    }
    assert {way: f"<{ODD}>" in said for way, said in ways.items()} == dict.fromkeys(ways, True)
    has_tmux = fresh.box.kind != "nosudo"
    seen = {way: has.get("GREETING") for way, has in fresh.environments().items()}
    assert seen == {way: ODD for way in WAYS if has_tmux or "tmux" not in way}


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"


def test_the_run_that_setup_starts_has_the_session_name_of_the_profile(fresh: Fresh) -> None:
    run = fresh.status()["runs"][0]
    assert (run["name"], run["session"]) == ("lesson-1", "lesson")
    assert run["command"] == f"{fresh.tree}/.venv/bin/python train.py"
    assert (run["state"], run["rc"], run["commit"]) == ("finished", 0, fresh.commit)
    sessions = fresh.as_user("tmux -L boxstrap ls -F '#S' 2>/dev/null || true")
    assert sessions == ("" if fresh.box.kind == "nosudo" else "lesson\n")


def test_the_tree_on_the_box_has_the_commit_branch_and_remote_of_here_without_its_credential(
    fresh: Fresh,
) -> None:
    git = f"git -C {fresh.tree}"
    assert fresh.as_user(f"{git} rev-parse HEAD").strip() == fresh.commit
    assert fresh.as_user(f"{git} symbolic-ref --short HEAD") == "main\n"
    assert fresh.as_user(f"{git} remote -v").split()[1] == "https://example.org/me/homework.git"
    assert fresh.as_user(f"{git} status --porcelain --untracked-files=no") == ""


def test_git_identity_is_set_in_the_tree_on_the_box_alone(fresh: Fresh) -> None:
    git = f"git -C {fresh.tree} config"
    assert fresh.as_user(f"{git} --local user.name").strip() == ME["name"]
    assert fresh.as_user(f"{git} --local user.email").strip() == ME["email"]
    assert fresh.as_user("git config --global --list 2>/dev/null || true") == ""
    assert fresh.box.run("git config --system --list 2>/dev/null || true") == ""


def test_ssh_keys_and_known_hosts_are_on_the_box_once_with_private_modes(fresh: Fresh) -> None:
    ssh = f"{fresh.box.home}/.ssh"
    lines = fresh.box.read(f"{ssh}/authorized_keys").splitlines()
    own = Path(f"{fresh.box.identity}.pub").read_text().split()[1]
    assert sum(own in line for line in lines) == 1
    assert sum(SECOND.split()[1] in line for line in lines) == 1
    assert fresh.box.run(f"stat -c %a {ssh} {ssh}/authorized_keys").split() == ["700", "600"]
    known = fresh.box.read(f"{ssh}/known_hosts")
    hosts = ("github.com", "gitlab.com", "bitbucket.org", "ssh.dev.azure.com", "hf.co")
    assert [host for host in hosts if host in known] == [*hosts]
    assert len(known.splitlines()) == len(set(known.splitlines()))


def wait_until_no_more_is_written(fresh: Fresh) -> None:
    """A run's last two files, and the last bytecode, come after the setup has ended."""
    run = f"cd {fresh.folder}/runs/*/lesson-1"
    noted = '[ "$(tail -n 1 times | cut -d " " -f 2)" = "$(wc -c <log)" ]'
    compiled = "! pgrep -f 'python[.]bytecode'"
    wait = f"{run} && until ls results.made && {noted} && {compiled}; do sleep 0.2; done"
    fresh.box.run(["timeout", "30", "sh", "-c", wait])


def test_a_second_setup_of_a_box_finds_nothing_to_do_and_changes_no_file(fresh: Fresh) -> None:
    wait_until_no_more_is_written(fresh)
    before = fresh.listing()
    again = fresh.run("setup").must(0)
    assert "nothing to do" in again.out
    assert "lesson-1 finished" in again.out
    assert fresh.listing() == before
    assert fresh.runs() == ["lesson-1"]


@pytest.mark.sampled
def test_plan_status_and_logs_write_nothing_on_the_box(fresh: Fresh) -> None:
    wait_until_no_more_is_written(fresh)
    before = fresh.listing()
    planned = fresh.run("plan", "--json").must(0).json()
    assert {step["step"]: step["runs"] for step in planned["steps"]} == dict.fromkeys(
        [step["step"] for step in planned["steps"]], False
    )
    fresh.run("status").must(0)
    assert "step 1 loss" in fresh.run("logs").must(0).out
    assert "adopted" not in fresh.run("logs", "--step", "python").must(0).out
    assert fresh.listing() == before


@pytest.mark.parametrize("fresh", ["nosudo"], indirect=True)
def test_two_runs_at_once_work_on_a_box_without_tmux_too(fresh: Fresh) -> None:
    words = ("--json", "--session", "live", "--", "echo $GREETING; sleep 60")
    live = fresh.run("run", *words).must(0).json()
    beside = fresh.run("run", "--json", "--", "echo", "beside").must(0).json()
    assert (live["first_lines"], beside["first_lines"]) == ([ODD], ["beside"])
    assert (live["tree"], beside["tree"]) == (fresh.tree, f"{fresh.tree}@2")
    assert "tmux" in "".join(live["warnings"])
    assert fresh.status()["runs"][1]["state"] == "running"
    fresh.run("stop", "--all").must(0)
