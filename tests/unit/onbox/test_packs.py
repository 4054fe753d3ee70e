"""What a bad disk or a kill left in a git folder of a box: packs that shrank, locks of nobody."""

import os
import subprocess
from pathlib import Path

import pytest

from bootstrap.onbox.work import repair
from bootstrap.onbox.work.repair import note_packs, wrong_packs


def packs_right(folder: Path, *, note: bool = False) -> bool:
    """Return whether the packs are as noted; `note` them first."""
    at = (str(folder / "list"), str(folder / "packs"))
    if note:
        note_packs(*at)
    return not wrong_packs(*at)


def test_a_git_pack_counts_as_damaged_if_its_size_changed_but_not_if_another_was_added(
    tmp_path: Path,
) -> None:
    first, second = (tmp_path / "packs" / name for name in ("one.pack", "two.pack"))
    first.parent.mkdir()
    assert packs_right(tmp_path)  # before anything is noted
    first.write_text("whole")
    assert packs_right(tmp_path, note=True)
    first.write_text("whol")
    assert not packs_right(tmp_path)
    assert not packs_right(tmp_path, note=True)  # the folder has no other packs, so none is noted
    first.write_text("whole")
    second.write_text("came")
    os.utime(first.parent)
    assert packs_right(tmp_path, note=True)
    second.write_text("ca")
    assert not packs_right(tmp_path)
    second.unlink()
    assert packs_right(tmp_path)


@pytest.mark.slow
def test_setup_removes_the_lock_file_of_a_killed_git_but_not_that_of_a_git_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store/k.git"
    subprocess.run(["git", "init", "-q", "--bare", store], check=True)
    left, data = store / "refs/heads/main.lock", store / "lfs/weights.lock"
    data.parent.mkdir()
    monkeypatch.setattr(repair, "sleep", lambda _: None)
    for lock in (left, data):
        lock.touch()
    git = ["git", f"--git-dir={store}", "cat-file", "--batch"]
    with subprocess.Popen(git, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as at_work:
        assert at_work.stdin
        assert at_work.stdout
        at_work.stdin.write(b"HEAD\n")
        at_work.stdin.flush()
        assert at_work.stdout.readline() == b"HEAD missing\n"  # until then it has another name
        with pytest.raises(repair.StepError) as refused:
            repair.free_locks(str(store), str(store))
        assert refused.value.code == "git-busy"
        at_work.stdin.close()
    repair.free_locks(str(store), str(store))
    assert not left.exists()
    assert data.exists()


def test_a_git_lock_that_vanishes_during_its_removal_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients may send to one box at the same time."""
    lock = tmp_path / "HEAD.lock"
    lock.touch()
    monkeypatch.setattr(repair, "_is_git_at_work", lambda _: lock.unlink())
    repair.free_locks(str(tmp_path), str(tmp_path))
