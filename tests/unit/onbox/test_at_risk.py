"""Which of the files that git ignores were made on the box, and are no run's result."""

import os
from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.results.at_risk import MadeHere, Tree, folder_of, told
from bootstrap.onbox.results.run_results import LET_GO, RunResults


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("pred.csv", True),
        ("artifacts/deep/pred.csv", True),
        ("wandb/run-1/log", True),
        ("out/a.pt", False),  # a result
        ("scratch/x", False),  # let go of
        ("old", False),
        ("link", False),
        ("gone", False),
        (".venv/lib/a.py", False),
        ("other/lib/a.py", False),  # an environment too
        ("src/__pycache__/a.pyc", False),
        ("src/mine.egg-info/PKG-INFO", False),
        (".pytest_cache/a", False),
        ("build/lib/a.py", False),
        ("src/build/a", True),
        ("src/mine/_version.py", False),
        ("src/mine/fast.cpython-311-x86_64-linux-gnu.so", False),
        ("src/mine/own.so", True),
    ],
)
def test_down_would_lose_git_ignored_files_made_since_the_first_run_except_caches_and_results(
    tmp_path: Path, path: str, is_one: bool
) -> None:
    tree, run = tmp_path / "tree", tmp_path / "k/train-1"
    run.mkdir(parents=True)
    for name, text in {"dir": f"{tree}\n", "results": "out/\n", LET_GO: '["scratch"]'}.items():
        (run / name).write_text(text)
    for file in (tree / path, tree / "other/pyvenv.cfg", tree / "to"):
        file.parent.mkdir(parents=True, exist_ok=True)
        if path not in ("gone", "link") or file != tree / path:
            file.write_text("four")
    if path == "link":
        (tree / path).symlink_to("to")
    (run / "pid").write_text("1")
    os.utime(run / "pid", (0, 0) if path != "old" else None)
    made = MadeHere(str(tmp_path), str(tree), ".venv", [RunResults(str(run))])
    assert made.size(path) == (4 if is_one else -1)


def test_files_that_down_would_lose_are_listed_by_their_highest_untracked_folder() -> None:
    tracked = {"", "src"}
    for path, folder in {"a/b/c": "a/", "src/out/x": "src/out/", "src/x": "src/x"}.items():
        assert folder_of(path, tracked) == folder
    assert told("a b") == "'a b'"
    assert told("a'\n\udcff1") == r"$'a\x27\x0a\xff1'"


def test_listing_files_that_down_would_lose_raises_gits_error(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/made").write_text("by a setup")
    assert Tree(BoxTree(str(tmp_path), "k", str(tmp_path))).made() == {}, "git need not be asked"
    (tmp_path / "made").write_text("here")
    with pytest.raises(OSError, match="not a git repository"):
        Tree(BoxTree(str(tmp_path), "k", str(tmp_path))).made()
