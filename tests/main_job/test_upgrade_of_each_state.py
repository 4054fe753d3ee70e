"""A box set up by the version before the layers, in each state that a box can be in.

The present version follows it, stops it and sets it up again: nothing trains twice, and nothing
is built again. This must hold for every later version too.
"""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.cli import PROFILE
from tests.main_job.conftest import Rent
from tests.main_job.earlier import ARCHIVES, archive, before, kept, unpacked
from tests.main_job.rented import Rented
from tests.main_job.slow import await_nothing, await_step, go_on, setups, slow

pytestmark = pytest.mark.boxes

EARLIER = "d9bc910"
PROFILES = {
    "idle": "version: 1\ngpu: {require: false}\n",
    "live": PROFILE.replace("train:", 'env: {LINGER: "600"}\ntrain:'),
    "finished": PROFILE,
}
RUNS = {"idle": [], "live": ["train-1"], "finished": ["train-1"]}
BUILT = "cd {}/agent && stat -c '%n %i %Y' pyvenv.cfg lib/python3*/site-packages/*"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(EARLIER, tmp_path_factory.mktemp("earlier"))


@pytest.fixture(params=PROFILES)
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rented(rent: Rent, earlier: Path, state: str) -> Rented:
    """A box that the earlier version brought into this state."""
    rented = rent("vast", by=earlier)
    rented.user.repository(boxstrap__yaml=PROFILES[state], requirements__txt="iniconfig>=2\n")
    before(rented, earlier, "setup").end().must(0)
    assert (runs(rented), rented.trainings()) == (RUNS[state], state == "live")
    return rented


def runs(rented: Rented) -> list[str]:
    """The runs that were ever started; a box that is only set up has no folder for them."""
    return rented.runs() if rented.box.exists(f"{rented.folder}/runs") else []


def as_it_was(rented: Rented) -> dict[str, str]:
    """What must not be made again: tree, environments, trainings, what they were started for."""
    return {**kept(rented, rented.tree), "agent": rented.as_user(BUILT.format(rented.folder))}


@pytest.mark.sampled
def test_it_is_set_up_again(rented: Rented, state: str) -> None:
    was = as_it_was(rented)
    planned = rented.run("plan", "--json").must(0).json()["steps"]
    assert {"repo", "python", "train"}.isdisjoint(row["step"] for row in planned if row["runs"])
    again = rented.run("setup").must(0)
    assert state == "idle" or f"train-1: {'running' if state == 'live' else state}" in again.out
    assert (as_it_was(rented), runs(rented)) == (was, RUNS[state])
    assert "nothing to do" in rented.run("setup").must(0).out
    assert (as_it_was(rented), runs(rented)) == (was, RUNS[state])


@pytest.mark.sampled
def test_it_is_followed_and_stopped(rented: Rented, state: str) -> None:
    was = as_it_was(rented)
    found = {run["name"]: run["state"] for run in rented.status()["runs"]}
    assert found == {name: {"live": "running"}.get(state, state) for name in RUNS[state]}
    if state == "live":
        following = rented.begin("logs", "-f")
        assert following.line().startswith("step 1 loss")
        assert "stopped: train-1" in rented.run("stop").must(0).out
        assert "train-1 was stopped after" in following.end().must(0).text
        was["training"] = ""
    elif state == "finished":
        assert rented.run("logs").must(0).out == "step 1 loss 0.5 -\nstep 2 loss 0.4\n"
        assert "nothing was running" in rented.run("stop").must(0).out
    else:
        for task in ("logs", "stop"):
            assert "no run was started on this box" in rented.run(task).must(2).err
    assert (as_it_was(rented), runs(rented)) == (was, RUNS[state])
    # A run that ended is started again only on request.
    rented.run("setup").must(0)
    assert (as_it_was(rented), runs(rented)) == (was, RUNS[state])


@pytest.mark.parametrize("how", ["waited for", "stopped"])
def test_its_setup_that_is_at_work(rent: Rent, earlier: Path, how: str) -> None:
    rented = rent("vast", by=earlier)
    slow(rented)
    going = before(rented, earlier, "setup")
    setup = await_step(rented, "python")
    assert rented.status()["setup"] == {"id": setup, "state": "at work"}
    if how == "stopped":
        assert "stopped: setup" in rented.run("stop", "--setup").must(0).out
        going.end().must(7)
        await_nothing(rented, "[s]low")
        go_on(rented)
    else:
        second = rented.begin("setup")
        second.await_said(setup)
        go_on(rented)
        second.end().must(0)
        going.end().must(0)
    rented.run("setup").must(0)
    assert setup in setups(rented)
    assert (runs(rented), rented.trainings()) == (["train-1"], 1)


@pytest.mark.parametrize(
    "kept_archive", sorted(ARCHIVES.glob("*.tar.xz")), ids=lambda path: path.name
)
def test_what_is_kept_is_what_was_committed(kept_archive: Path) -> None:
    commit = kept_archive.name.partition(".")[0]
    made = archive(commit)
    if not made:
        pytest.skip(f"this clone has no commit {commit} to compare with")
    with tarfile.open(kept_archive) as tar, tarfile.open(fileobj=BytesIO(made)) as committed:
        assert contents(tar) == contents(committed)


def contents(tar: tarfile.TarFile) -> dict[str, bytes]:
    files = [member for member in tar if member.isfile()]
    return {member.name: tar.extractfile(member).read() for member in files}  # type: ignore[union-attr]
