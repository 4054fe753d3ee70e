"""The same cases by every way of the script, on real boxes: all leave the same."""

import re
import subprocess
from pathlib import Path

import pytest

from bootstrap.setup.door_table import NARROWEST
from tests.boxes import Rig, RigBox
from tests.cli import User
from tests.doors.conftest import Hosted
from tests.doors.static_index import static_index
from tests.doors.terminal import terminal
from tests.doors.test_folders import typed
from tests.doors.test_paste import login, settled
from tests.main_job.conftest import Rent
from tests.programs import captured

pytestmark = pytest.mark.sampled(of="module")

WAYS = ("setup", "file", "paste", "pushed")
"""Over SSH; through doors as a file, as a paste with everything in it, and as a short one for which
the box fetches the program from the git host."""
KINDS = {
    "vast": ("vast", "/workspace"),
    "bare": ("ssh", "/root"),
    "nosudo": ("ssh", "/home/student"),
}
"""Kind of box -> profile, working folder."""
SAMPLED = {"vast": WAYS, "bare": ("pushed",), "nosudo": ("paste",)}
"""The ways that go first in a usual test run; `--every`, as in `make chaos`, tries all."""

RECORD = r"""
cd "$1"
for file in commit dir venv command session exit; do echo "$file $(cat "$2/$file")"; done
git -C homework rev-parse HEAD refs/heads/main
git -C homework status --porcelain
git -C homework remote get-url origin
(cd homework && find . -name .git -prune -o -name .venv -prune -o -printf '%P %M\n') | sort
ls homework/.venv/lib/python*/site-packages | grep -v -e '^_' -e '\.pth$' | sort
grep -v -e '/\.boxstrap/cache/' -e HF_TOKEN_PATH .boxstrap/env
stat -c '%a' .boxstrap/env ~/.ssh ~/.ssh/authorized_keys
sort ~/.ssh/authorized_keys
grep -c boxstrap ~/.bashrc ~/.profile
readlink -f ~/.boxstrap
"""
"""What a finished training leaves: its record, the tree, the environment, the shell."""

WAIT = r"""
for run in "$1"/.boxstrap/runs/*/*; do
  until [ -f "$run/exit" ]; do sleep 0.1; done
  echo "$run"
done
"""
WIPE = r"""
rm -rf "$1/.boxstrap" "$1/homework" ~/.boxstrap ~/.ssh/known_hosts
sed -i '/# boxstrap$/d' ~/.bashrc ~/.profile 2>/dev/null || :
"""


class Doors:
    """A box, and the same commit through each edition."""

    def __init__(self, user: User, box: RigBox, folder: str) -> None:
        self.user = user
        self.box = box
        self.folder = folder
        self.there = ("--host", box.host_string, "--identity", str(box.identity))

    def go(self, way: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Go one way on the box; its exit code and output."""
        if way == "setup":
            done = self.user.run("setup", *self.there, *words)
            return subprocess.CompletedProcess([], done.rc, done.out, done.err)
        if way != "file":
            push = ("--push",) if way == "pushed" else ()
            return typed(self.box, self.user.run("oneliner", *push, *words).must(0).out)
        script = self.user.run("render", "--for", "terminal", *words).must(0).out
        return captured(
            self.box.ssh_command(
                "f=$(mktemp); cat >$f; bash $f </dev/null; rc=$?; rm $f; exit $rc"
            ),
            input=script,
            check=False,
            timeout=120,
        )

    def sh(self, script: str, *words: str) -> str:
        """Run a script of the test on the box, as the box's own user; its output."""
        command = ["bash", "-c", script, "bash", self.folder, *words]
        return self.box.run(command, user=self.box.user)

    def runs(self) -> list[str]:
        """The folders of all runs, once all of them are over."""
        return self.sh(WAIT).split()

    def state(self) -> list[tuple[str, str, int]]:
        """Name, state and exit code of each run, as this machine reads them."""
        document = self.user.run("status", "--json", *self.there).must(0).json()
        return [(run["name"], run["state"], run["rc"]) for run in document["runs"]]

    def listing(self, *, times: bool) -> list[str]:
        """All files in the home and the working folder, once the log is written to its end."""
        self.sh("while grep -qas 'keep_lo[g].sh' /proc/[0-9]*/cmdline; do sleep 0.1; done")
        lines = self.box.listing([self.box.home, self.folder]).splitlines()
        return [line for line in lines if times or re.match(r"[0-9a-f]{64} ", line)]


@pytest.fixture(params=KINDS)
def doors(request: pytest.FixtureRequest, rent: Rent, hosted: Hosted, user: User) -> Doors:
    """A box of each kind, and a commit that it can fetch."""
    profile, folder = KINDS[request.param]
    box = rent(request.param).box
    hosted(box, extends=profile)
    return Doors(user, box, folder)


def test_each_way_to_set_up_leaves_the_same_files_and_a_second_way_starts_no_second_run(
    doors: Doors, request: pytest.FixtureRequest
) -> None:
    """Each way goes first once, followed by every other one."""
    firsts = WAYS if request.config.getoption("every") else SAMPLED[doors.box.kind]
    left: dict[str, str] = {}
    for first in firsts:
        doors.sh(WIPE)
        said = doors.go(first)
        assert said.returncode == 0, f"{first}: {said.stdout}{said.stderr}"
        (run,) = doors.runs()
        left[first] = doors.sh(RECORD, run)
        assert doors.state() == [("train-1", "finished", 0)], first
        # A second time it changes nothing.
        before = doors.listing(times=True)
        assert doors.go(first).returncode == 0
        assert doors.runs() == [run], first
        assert doors.listing(times=True) == before, first
        for other in sorted({*WAYS} - {first}):
            said = doors.go(other)
            assert said.returncode == 0, f"{other} after {first}: {said.stdout}{said.stderr}"
            assert doors.runs() == [run], f"{other} after {first}"
    assert left == dict.fromkeys(firsts, left[firsts[0]])


def test_each_way_to_set_up_starts_one_new_run_for_a_changed_command_or_environment(
    rent: Rent, hosted: Hosted, user: User, request: pytest.FixtureRequest
) -> None:
    """All ways tell work apart by the same things: command, `python:` and variables."""
    box = rent("vast", used=True).box
    hosted(box, extends="vast")
    doors = Doors(user, box, "/workspace")
    every = request.config.getoption("every")
    changes = ("train.command=python train.py --other", "python.torch_backend=cpu")
    runs = 0
    for number, way in enumerate(WAYS if every else ("paste", "pushed")):
        words = ("--set", f"env.TURN={number}")
        assert doors.go(way, *words).returncode == 0
        runs += 1
        assert len(doors.runs()) == runs, way
        for change in changes if every else (changes[number],):
            for each in (way, *WAYS):
                assert doors.go(each, *words, "--set", change).returncode == 0
            runs += 1
            assert len(doors.runs()) == runs, f"{way}: {change}"


def test_a_pushed_setup_program_that_was_changed_at_the_ref_does_not_run(
    rent: Rent, hosted: Hosted, user: User, tmp_path: Path
) -> None:
    box = rent("vast", used=True).box
    made, _ = hosted(box, extends="vast")
    doors, bare = Doors(user, box, "/workspace"), str(tmp_path / "host/homework.git")
    short = user.run("oneliner", "--push", "--json").must(0).json()
    assert short["bytes"] <= NARROWEST
    paste = "\n".join(short["lines"]) + "\n"
    (ref,) = made.git("ls-remote", bare, "refs/boxstrap/*").split()[1::2]
    # It is there now, so nothing is asked and nothing pushed; a hook gets it as well.
    assert user.run("oneliner", "--json").must(0).json()["lines"] == short["lines"]
    assert len(user.run("render", "--for", "vast").must(0).out) <= NARROWEST
    folders = "find /tmp -mindepth 1 -name 'tmp.*' -type d"
    before = (box.listing(["/root", "/workspace"]), box.run(folders))
    # A commit with a file of that name, which is another one.
    made.commit({"program.sh": "touch /tmp/sprung\n"})
    made.git("push", "-q", "-f", bare, f"HEAD:{ref}")
    made.git("reset", "-q", "--hard", "HEAD^")
    said = typed(box, paste)
    assert said.returncode == 5
    assert "is not the program that was rendered" in said.stderr
    made.git("push", "-q", bare, f":{ref}")
    said = typed(box, paste)
    assert (said.returncode, "render it again, with --push" in said.stderr) == (5, True)
    assert (box.listing(["/root", "/workspace"]), box.run(folders)) == before
    assert doors.go("pushed").returncode == 0
    # A host that takes only branches and tags gets a branch.
    made.git("push", "-q", bare, f":{ref}")
    subprocess.run(["git", "-C", bare, "config", "receive.hideRefs", "refs/boxstrap"], check=True)
    branch = user.run("oneliner", "--push").must(0)
    assert "refs/heads/boxstrap/" in branch.err
    assert "nothing to do" in typed(box, branch.out).stdout


FAILURES = {
    "python-version": ("python.version=3.99",),
    "requirements-missing": ("python.requirements=[none.txt]",),
    "package-missing": ("python.requirements=[odd.txt]",),
    "no-gpu": ("gpu.require=true",),
}
"""Code -> settings of a profile that fail with it on a box of the rig."""


def test_a_failed_setup_prints_the_same_message_by_a_file_and_by_a_pushed_program(
    rent: Rent, hosted: Hosted, user: User, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    box = rent("vast", used=True).box
    made, _ = hosted(box, extends="vast")
    made.commit({"odd.txt": "no-such-package-51c0>=2\n"})
    made.git("push", "-q", str(tmp_path / "host/homework.git"), "main")
    made.git("fetch", "-q")
    doors = Doors(user, box, "/workspace")
    every = request.config.getoption("every")
    for code in FAILURES if every else ("requirements-missing", "no-gpu"):
        sets = FAILURES[code]
        words = [word for each in sets for word in ("--set", each)]
        said = {way: doors.go(way, *words) for way in ("file", "pushed")}
        rc = 6 if code == "no-gpu" else 7
        for way, done in said.items():
            assert done.returncode == rc, f"{way}: {code}"
            assert re.search(rf"^[a-z]+ fail {code}$", done.stdout, re.MULTILINE), f"{way}: {code}"
        # The step's last line is the reason.
        assert sentences(said["pushed"].stderr)[-1] in sentences(said["file"].stderr), code
    assert not box.exists("/workspace/.boxstrap/runs") or "train" not in box.run(
        "ls /workspace/.boxstrap/runs/*"
    )


def sentences(said: str) -> list[str]:
    """The lines that are not blank."""
    return [line.strip() for line in said.splitlines() if line.strip()]


@pytest.mark.parametrize("words", [(), ("--push",)], ids=["paste", "pushed"])
def test_a_pasted_setup_fetches_uv_from_an_index_of_static_pages(
    words: tuple[str, ...],
    mirror_rig: Rig,
    rent: Rent,
    hosted: Hosted,
    user: User,
    tmp_path: Path,
) -> None:
    box = rent("vast-nouv").box
    hosted(box, extends="vast")
    gateway = box.address.rpartition(".")[0] + ".1"
    assert mirror_rig.mirror
    with static_index(gateway, mirror_rig.mirror.index_url) as index:
        box.run("rm -rf /etc/uv /etc/xdg/uv ~/.config/uv; mkdir -p ~/.config/pip")
        box.write("/etc/pip.conf", f"[global]\nindex-url = {index.url}\ntrusted-host = {gateway}\n")
        with terminal(tmp_path, login(box)) as shown:
            settled(shown)
            shown.type_lines(user.run("oneliner", *words).must(0).out)
            shown.wait_for("its log: ")
    assert "step 1" in box.run("cat /root/.boxstrap/runs/*/train-1/log")
