"""What was made in a tree, as it is told and sent to the machine that asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.work.back import WorkThere
from tests.unit.box.test_place import Placed

ASKED = {"format": "sha1", "most_mib": 1, "without_results": True}


@pytest.fixture
def work(tmp_path: Path) -> WorkThere:
    placed = Placed(tmp_path)
    assert placed.place(placed.state(a="1\n")) == (0, ""), placed.said
    own = placed.home / "own"
    own.mkdir()
    return WorkThere(BoxTree(str(placed.home), "k", str(placed.tree)), str(own), ASKED)


def told(work: WorkThere) -> dict[str, str]:
    """Return the last of each kind, its rest as text."""
    return {row.pop("kind"): str(row) for row in work.told()}


def test_edits_and_new_files_are_one_commit(work: WorkThere, tmp_path: Path) -> None:
    assert not {"edits", "left", "unread"} & told(work).keys()
    tree = tmp_path / "w/homework"
    (tree / "a").write_text("2\n")
    (tree / "deep").mkdir()
    (tree / "deep/$(touch x)\n").write_text("new")
    for made in ("__pycache__/a.pyc", "src/a.egg-info/PKG-INFO"):
        (tree / made).parent.mkdir(parents=True)
        (tree / made).write_text("")
    (tree / "large").write_bytes(b"")
    os.truncate(tree / "large", 2 << 20)
    run = tmp_path / "w/.boxstrap/runs/k/run-1"
    run.mkdir(parents=True)
    for name, text in {"pid": "", "dir": f"{tree}\n", "results": "out[1]/\n"}.items():
        (run / name).write_text(text)
    (tree / "out[1]").mkdir()
    (tree / "out[1]/result").write_text("weights")
    work = WorkThere(work._tree, work.ours.folder, ASKED)
    said = told(work)
    assert said["left"] == "{'path': 'large'}"
    assert said == told(work)  # same edits, same id
    made = said["edits"].split("'")[3]
    listed = work.ours.paths("ls-tree", "-r", "-z", "--name-only", made)
    assert listed == ["a", "deep/$(touch x)\n"]


def test_where_git_cannot_list_new_files_nothing_is_told(work: WorkThere) -> None:
    Path(work.ours.folder, "index").mkdir()
    with pytest.raises(OSError, match="index"):
        list(work.new_files())
    assert "unread" in told(work)
