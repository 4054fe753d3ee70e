"""Kill the program, sshd, the script or the box at any moment: running again ends in the same box.

Each try sets up a fresh box and, on the same box, the next commit; both are disturbed. The training
writes a line outside its tree when it starts, so that a second start is seen.
"""

import difflib
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import Completed, User, UserRepository
from tests.faults.kills import (
    DIED,
    KILLS,
    Eye,
    Undisturbed,
    await_notice,
    begun,
    described,
    draw,
    go_on,
    kill_power,
    watched,
)
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

KINDS = ("vast", "vast", "runpod")
"""A box with all its tools, more often, and one that gets them from its package manager."""
TRAIN = """\
import os, time
with open(os.path.expanduser("~/begun"), "a") as file:
    file.write("begun\\n")
print("step 1 loss 0.5", flush=True)
limit = time.monotonic() + 600
while not os.path.exists("/tmp/end") and time.monotonic() < limit:
    time.sleep(0.05)
"""
URL = "https://git.example.org/me/homework.git"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGgsEHGhQK0YcNq5xfbNNBOrtLRuJjb3CtQcYXXCSmnF laptop"
PROFILE = """\
version: 1
gpu: {require: false}
ssh: {authorized_keys: [~/laptop.pub]}
env: {GREETING: "a 'quoted' word"}
train: {command: python train.py}
"""
FIRST = "iniconfig>=2\npathspec\n"
SECOND = "iniconfig>=2\npluggy\npackaging\n"


@dataclass
class KilledWork:
    """A repository with two commits, and what an undisturbed setup makes of each."""

    repository: UserRepository
    rig: Rig
    home: Path
    _usual: dict[str, tuple[Undisturbed, Undisturbed]] = field(default_factory=dict)

    def usual(self, kind: str) -> tuple[Undisturbed, Undisturbed]:
        """Return both undisturbed setups, measured once for each kind of box."""
        if kind not in self._usual:
            rented = Rented(User(self.home / kind), self.rig.start(kind))
            try:
                self.stand(rented, "first")
                first = watched(rented)
                end_training(rented)
                self.stand(rented, "second")
                self._usual[kind] = first, watched(rented)
            finally:
                rented.box.stop()
        return self._usual[kind]

    def stand(self, rented: Rented, branch: str) -> None:
        """Check out this branch in the user's own clone."""
        place = rented.user.home / "homework"
        if not place.exists():
            rented.user.home.joinpath("laptop.pub").write_text(f"{KEY}\n")
            self.repository.git("clone", "-q", "--no-hardlinks", ".", str(place))
        self.repository.git("-C", str(place), "remote", "set-url", "origin", URL)
        self.repository.git("-C", str(place), "checkout", "-q", "-B", "main", f"origin/{branch}")
        rented.user.place = place
        if not rented.user.state.joinpath("consent").exists():
            rented.user.agree()


@pytest.fixture(scope="session")
def work(mirror_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> KilledWork:
    """Make the repository, with binary data, so that sending its objects takes a moment."""
    home = tmp_path_factory.mktemp("work")
    chance = random.Random(7)
    user = User(home / "author")
    made = user.repository(train__py=TRAIN, boxstrap__yaml=PROFILE, requirements__txt=FIRST)
    for number in range(12):
        (made.root / f"data{number}.bin").write_bytes(chance.randbytes(100_000))
    (made.root / "tool").symlink_to("train.py")
    made.commit({f"deep/{n}/text.txt": f"{n}\n" * 500 for n in range(20)}, "First")
    made.git("branch", "first")
    for number in range(6):
        (made.root / f"data{number}.bin").write_bytes(chance.randbytes(100_000))
    (made.root / "deep/0/text.txt").unlink()
    made.commit(
        {"requirements.txt": SECOND, **{f"deep/{n}/text.txt": f"new {n}\n" for n in range(1, 30)}},
        "Second",
    )
    made.git("branch", "second")
    return KilledWork(made, mirror_rig, home)


def end_training(rented: Rented) -> None:
    """Let the training end on its own, and wait for it."""
    rented.box.run("touch /tmp/end")
    rented.box.run("while pgrep -f 'bin/python [t]rain.py'; do sleep 0.05; done; rm /tmp/end")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        tries = metafunc.config.getoption("tries")
        metafunc.parametrize(("number", "tries"), [(at, tries) for at in range(0, tries, 2)])


@pytest.mark.sampled
@pytest.mark.parametrize("what", KILLS)
def test_the_next_setup_after_a_killed_setup_leaves_the_box_as_an_undisturbed_setup_does(
    rent: Rent,
    work: KilledWork,
    seeded: random.Random,
    faults: Faults,
    what: str,
    number: int,
    tries: int,
) -> None:
    rented = rent(kind := seeded.choice(KINDS))
    usual = work.usual(kind)
    for turn, name in enumerate(("first", "second")):
        if number + turn >= tries:
            break
        work.stand(rented, name)
        moment = draw(seeded)
        with faults.attempt(what, at=f"{name} commit on {kind}, {moment}") as attempt:
            before = begun(rented)
            eye = Eye(rented)
            going = rented.begin("setup")
            if eye.await_moment(moment, usual[turn].seconds, going):
                attempt.begin()
                KILLS[what](rented, going, eye, seeded)
                if await_notice(going):
                    attempt.noticed()
            out = go_on(rented, going)[-1].out
            settled(
                rented, usual[turn], out, begun(rented) - before, rebooted=KILLS[what] is kill_power
            )
        end_training(rented)


def settled(rented: Rented, usual: Undisturbed, out: str, times: int, *, rebooted: bool) -> None:
    """Check that the box equals an undisturbed one, and that the training started once or died."""
    again = rented.run("setup")
    if rebooted and started(again) == ["gpu"]:
        # The box rebooted after its setup was over: only its GPU is checked again.
        again = rented.run("setup")
    assert started(again) == [], out + again.text
    if "died with the box" in again.err:
        again.must(DIED)
        assert (times <= 1, rented.trainings()) == (True, 0)
        must_be_alike(usual.box, described(rented), without="at work")
        return
    assert "nothing to do" in again.must(0).out, out + again.text
    assert (" running" in again.out, times, rented.trainings()) == (True, 1, 1), out + again.out
    must_be_alike(usual.box, described(rented))


def started(setup: Completed) -> list[str]:
    """Return the steps that a setup started."""
    return re.findall(r"(\w+) +start ", setup.err)


def must_be_alike(usual: str, found: str, without: str = "") -> None:
    """Fail unless two boxes are set up alike, up to the section `without`."""
    if without:
        usual, found = (text.split(f"\n== {without}")[0] for text in (usual, found))
    lines = difflib.unified_diff(usual.splitlines(), found.splitlines(), "usual", "found", n=0)
    if different := "\n".join(lines):
        pytest.fail(f"the box differs from an undisturbed one:\n{different}", pytrace=False)
