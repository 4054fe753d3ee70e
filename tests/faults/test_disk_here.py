"""This machine's own disk: full, or not to be written, at each thing that is kept of a box."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.person import Done

pytestmark = pytest.mark.boxes


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@contextmanager
def small_state(rented: Rented) -> Iterator[Path]:
    """A state folder that holds a few files, and the ssh config on the same disk."""
    state = rented.person.state
    state.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=256k,mode=0700", "none", str(state))
    rented.person.env["BOXSTRAP_SSH_CONFIG"] = str(state / "their" / "config")
    (state / "their").mkdir()
    (state / "their" / "config").write_text("Host *\n    Compression no\n")
    try:
        yield state
    finally:
        subprocess.run(["umount", str(state)], check=True)


def fill(state: Path) -> None:
    with (state / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(os.urandom(4096)):
                pass
        except OSError:
            return


def content(state: Path) -> dict[str, bytes]:
    """What is remembered: every file but the filler, and locks, which hold nothing."""
    files = (path for path in state.rglob("*") if path.is_file() and path.name != "filler")
    return {str(path): data for path in sorted(files) if (data := path.read_bytes())}


def said(done: Done) -> list[str]:
    return [line for line in done.text.splitlines() if "can't be used:" in line]


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
def test_a_state_folder_that_takes_nothing(rent: Rent, faults: Faults, how: str) -> None:
    """A first contact stops before anything is sent; a known box is set up all the same."""
    spoil, mend, why = SPOIL[how]
    rented = rent("vast")
    rented.person.repository()
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
        rented.person.run("boxes").must(0)
        rented.run("status").must(0)
        if how == "read-only":
            name = f"{rented.box.address}-22"
            for words in (["boxes", "--forget", name], ["ssh-config"], ["ssh-config", "--remove"]):
                with faults.attempt(f"disk here {how}", " ".join(words[:1])) as attempt:
                    failed = rented.person.run(*words)
                    assert failed.rc in (1, 2), failed.text
                    assert why in failed.err
                    assert "itself failed" not in failed.must(failed.rc).text
                    attempt.outcome("one sentence")
        assert content(state) == known
        mend(state)
        rented.run("setup").must(0)
