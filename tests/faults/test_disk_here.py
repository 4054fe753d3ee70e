"""This machine's disk is full or read-only, for each thing that boxstrap stores."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.boxes.loopback import LoopbackBox
from tests.cli import Completed, User
from tests.faults.plugin import Faults
from tests.hostile.test_git_url import Host, hosted
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.plain_environment import BIN
from tests.programs import captured
from tests.providers.accounts import SimulatedBox, simulated
from tests.unit.boxes.test_at_home import make_there

__all__ = ["hosted"]
pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    """Mount a small disk over the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", *words, "none", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def small_state(rented: Rented) -> Iterator[Path]:
    """Make a state folder with room for a few files, and the ssh config on the same disk."""
    with mounted(rented.user.state, "-o", "size=256k,mode=0700") as state:
        rented.user.env["BOXSTRAP_SSH_CONFIG"] = str(state / "their" / "config")
        (state / "their").mkdir()
        (state / "their" / "config").write_text("Host *\n    Compression no\n")
        yield state


def fill(state: Path) -> None:
    with (state / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(os.urandom(4096)):
                pass
        except OSError:
            return


def content(state: Path) -> dict[str, bytes]:
    """Return what is stored: all files but the filler, and locks, which are empty."""
    files = (path for path in state.rglob("*") if path.is_file() and path.name != "filler")
    return {str(path): data for path in sorted(files) if (data := path.read_bytes())}


def said(done: Completed) -> list[str]:
    return [line for line in done.text.splitlines() if "can't be used:" in line]


TAKES = "version: 1\nsecrets: [HF_TOKEN]\ntrain: {command: python train.py}\n"
# The command, its exit code on a full disk, and the file that must not be left half-written.
WRITES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "init": (("init", "--repo", "{full}"), 1, "boxstrap.yaml"),
    "render --output": (("render", "--output", "{full}/setup.sh"), 2, "setup.sh"),
}


@pytest.mark.parametrize("what", WRITES)
def test_init_and_render_on_a_full_disk_here_name_the_file_and_leave_no_partial_one(
    user: User, faults: Faults, what: str
) -> None:
    """One sentence, and no partial file that a later command would take for complete."""
    typed, code, name = WRITES[what]
    user.repository()
    with mounted(user.home / "full", "-o", "size=2m") as full:
        fill(full)
        file, words = full / name, [word.format(full=full) for word in typed]
        with faults.attempt("disk here full", what) as attempt:
            refused = user.run(*words).must(code)
            assert "no space left on device" in refused.err.lower()
            assert str(file) in refused.err
            assert "itself failed" not in refused.err
            assert not file.exists()
            attempt.outcome("one sentence; nothing half-written")
        (full / "filler").unlink()
        user.run(*words).must(0)
        assert file.stat().st_size > 100


def test_consent_that_a_full_disk_here_prevents_from_being_saved_is_asked_for_again(
    user: User, faults: Faults
) -> None:
    user.repository(boxstrap__yaml=TAKES)
    ask = ("oneliner", "--json")
    digest = user.run(*ask).must(2).json()["error"]["digest"]
    with mounted(user.state, "-o", "size=16k,mode=0700") as state:
        fill(state)
        with faults.attempt("disk here full", "consent") as attempt:
            refused = user.run(*ask, "--consent", digest).must(1).json()["error"]
            assert "no space left" in refused["what"]
            assert user.run(*ask).must(2).json()["error"]["digest"] == digest
            attempt.outcome("one sentence; not agreed to")
        (state / "filler").unlink()
        user.run(*ask, "--consent", digest)
        assert "digest" not in user.run(*ask).must(2).json()["error"]


def test_render_fails_where_the_mirror_of_git_url_does_not_fit_here_until_there_is_room(
    hosted: Host, user: User, faults: Faults
) -> None:
    there = hosted()
    words = ("render", "--profile", str(there.profile))
    with mounted(user.state, "-o", "size=2m,mode=0700") as state:
        fill(state)
        with faults.attempt("disk here full", "mirror of git.url") as attempt:
            refused = user.run(*words).must(1)
            assert f"{state}/mirrors" in refused.err
            assert "can't be used: no space left on device" in refused.err
            attempt.outcome("one sentence; made anew with room")
        (state / "filler").unlink()
        user.run(*words).must(0)


# Makes /tmp and /var/tmp read-only, except for the user's home.
NOWHERE = """\
mount --bind "$HOME" "$HOME" && mount --rbind /tmp /tmp && mount -o remount,ro,bind /tmp &&
mount --bind /var/tmp /var/tmp && mount -o remount,ro,bind /var/tmp &&
cd . && exec "$@"
"""


def test_commands_without_a_temporary_folder_here_fail_and_write_nothing_into_the_repository(
    user: User, faults: Faults
) -> None:
    """Python would use the current folder, and so put boxstrap's files into the repository."""
    repository = user.repository()
    place, told = str(repository.root), "there is no folder for temporary files"
    user.env["TMPDIR"] = "/proc"
    # The tests' own ssh writes its configuration when it is first run.
    subprocess.run(["ssh", "-V"], env=user.env, capture_output=True, check=True)
    argv = ["unshare", "-m", "sh", "-c", f'cd "{place}"; {NOWHERE}', "sh"]
    for task in (("render",), ("plan",), ("setup", "--host", "root@127.0.0.1:1")):
        with faults.attempt("disk here read-only", f"temporary files, {task[0]}") as attempt:
            done = captured(
                [*argv, str(BIN / "boxstrap"), *task], env=user.env, cwd=place, check=False
            )
            assert (done.returncode, told in done.stderr) == (1, True), done.stderr
            assert "itself failed" not in done.stderr
            assert repository.git("status", "--porcelain") == ""
            attempt.outcome("one sentence; nothing in the repository")


def test_render_names_the_full_folder_of_temporary_files_and_leaves_nothing_in_it(
    user: User, faults: Faults
) -> None:
    user.repository()
    with (
        mounted(user.home / "tmp", "-o", "size=4k") as small,
        faults.attempt("disk here full", "temporary files") as attempt,
    ):
        refused = user.run("render", TMPDIR=str(small)).must(1)
        assert f"{small} can't be used: no space left on device" in refused.err
        assert list(small.iterdir()) == []
        attempt.outcome("one sentence; nothing left behind")


Change = Callable[[Path], None]
SPOIL: dict[str, tuple[Change, Change, str]] = {
    "full": (fill, lambda state: (state / "filler").unlink(), "no space left on device"),
    "read-only": (
        lambda state: mount("-o", "remount,ro", str(state)),
        lambda state: mount("-o", "remount,rw", str(state)),
        "read-only file system",
    ),
}


@pytest.mark.parametrize("how", SPOIL)
def test_the_first_setup_exits_with_1_if_the_state_folder_here_is_unwritable_but_later_setups_work(
    rent: Rent, faults: Faults, how: str
) -> None:
    """A first contact stops before anything is sent; a known box is still set up."""
    spoil, mend, why = SPOIL[how]
    rented = rent("vast", used=True)
    rented.user.repository()
    with small_state(rented) as state:
        before = content(state)
        spoil(state)
        listing = rented.listing()
        for task in ("status", "setup"):
            with faults.attempt(f"disk here {how}", f"first contact, {task}") as attempt:
                refused = rented.run(task).must(1)
                assert why in said(refused)[0]
                assert "run the same command again" in refused.err
                assert "BUG" not in refused.text
                assert "itself failed" not in refused.text
                attempt.outcome("one sentence; nothing sent, nothing half-written")
        assert rented.listing() == listing
        assert content(state) == before
        mend(state)
        rented.run("setup").must(0)
        known = content(state)
        spoil(state)
        with faults.attempt(f"disk here {how}", "setup of a known box") as attempt:
            again = rented.run("setup").must(0)
            assert "nothing to do" in again.out
            assert why in said(again)[0]
            attempt.outcome("said; the box is as it should be")
        rented.user.run("boxes").must(0)
        rented.run("status").must(0)
        if how == "read-only":
            name = f"{rented.box.address}-22"
            for words in (["boxes", "--forget", name], ["ssh-config"], ["ssh-config", "--remove"]):
                with faults.attempt(f"disk here {how}", " ".join(words[:1])) as attempt:
                    failed = rented.user.run(*words)
                    assert failed.rc in (1, 2), failed.text
                    assert why in failed.err
                    assert "itself failed" not in failed.must(failed.rc).text
                    attempt.outcome("one sentence")
        assert content(state) == known
        mend(state)
        rented.run("setup").must(0)


@pytest.mark.parametrize("discard", [False, True], ids=["room again", "discard"])
def test_down_keeps_the_box_while_a_run_log_does_not_fit_at_home_unless_discard_is_given(
    user: User, faults: Faults, *, discard: bool
) -> None:
    """`down` destroys nothing while the log of a run is only on the box."""
    box, down = LoopbackBox(), ("down", "--host", "runpod:pod-a")
    with simulated("runpod") as account:
        user.env |= account.environment()
        account.boxes = [SimulatedBox("pod-a", port=box.port, user=box.user)]
        there = make_there(user, box, "runpod:pod-a")
        there.write(b"line\n" * 20_000)
        with mounted(there.root / "boxstrap-results", "-o", "size=64k") as results:
            with faults.attempt("disk here full", "log of a run") as attempt:
                refused = user.run(*down).must(9).err
                assert "train-1: the log of train-1 is not here:" in refused
                assert "no space left on device" in refused
                assert account.destroyed == []
                assert "no space left on device" in there.do("pull").must(9).err
                attempt.outcome("exit 9, and the box is kept")
            if discard:
                said = user.run(*down, "--discard").must(0)
                assert "train-1: its log (100 kB) and record are not at home" in said.out
            for left in results.rglob("*/*/*/*"):
                left.unlink()
        if not discard:
            there.write(b"line\n" * 2000)
            user.run(*down).must(0)
            assert there.log == b"line\n" * 2000
        assert account.destroyed == ["pod-a"]
    box.stop()


def test_pull_and_plan_on_a_full_disk_here_name_what_does_not_fit_and_claim_no_file_is_here(
    user: User, faults: Faults
) -> None:
    box = LoopbackBox()
    try:
        there = make_there(user, box, box.host_string)
        there.write(b"step 1 loss 0.5\n", results="out/\n")
        out = Path(box.home, "homework/out")
        out.mkdir(parents=True)
        for name in ("a.pt", "b.pt"):
            (out / name).write_bytes(b"1" * 1_000_000)
        with (
            mounted(there.root / "boxstrap-results", "-o", "size=1500k"),
            faults.attempt("disk here full", "pull") as attempt,
        ):
            refused = there.do("pull").must(9)
            assert "1 file of train-1 was not pulled" in refused.err
            assert "the log of train-1 is not here" in refused.err
            (listed,) = user.run("runs", "--json").must(0).json()["runs"]
            assert (listed["results"]["where"], listed["log"]["where"]) == ("partly", "box")
            attempt.outcome("what is not here is named, the log too")
        with mounted(Path(user.env["XDG_CACHE_HOME"]), "-o", "size=64k") as cache:
            fill(cache)
            refused = there.do("plan").must(1)
            assert f"{cache}/boxstrap/" in refused.err
            assert "can't be used: no space left on device" in refused.err
    finally:
        box.stop()
