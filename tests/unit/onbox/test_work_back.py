"""What was made in a tree, as it is told and sent to the machine that asks."""

import json
import os
from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.work.back import WorkThere
from tests.unit.onbox.test_place import Placed

ASKED = {"format": "sha1", "most_mib": 1}


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


@pytest.mark.slow
def test_sync_back_makes_one_commit_of_edits_and_new_files(work: WorkThere, tmp_path: Path) -> None:
    assert not {"edits", "left", "unread"} & told(work).keys()
    tree = tmp_path / "w/homework"
    (tree / "a").write_text("2\n")
    (tree / "deep").mkdir()
    (tree / "deep/$(touch x)\n").write_text("new")
    for made in ("__pycache__/a.pyc", "src/a.egg-info/PKG-INFO", ".ipynb_checkpoints/a.ipynb"):
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
    (tree / "data").mkdir()
    rows = [json.dumps({"target": str(tree / "data")})]
    (tree / "data/link").symlink_to("pushed")
    for name in ("pushed", "changed since", "link"):
        file = tree / "data" / name
        if not file.is_symlink():
            file.write_text("from home")
        rows.append(json.dumps([name, file.lstat().st_size, file.lstat().st_mtime_ns]))
    os.utime(tree / "data/changed since", (1, 1))
    (tmp_path / "w/.boxstrap/data").mkdir()
    (tmp_path / "w/.boxstrap/data/x.jsonl").write_text("\n".join(rows))
    work = WorkThere(work._tree, work.ours.folder, ASKED)
    said = told(work)
    assert said["left"] == "{'path': 'large'}"
    assert said == told(work)  # same edits, same id
    made = said["edits"].split("'")[3]
    listed = work.ours.paths("ls-tree", "-r", "-z", "--name-only", made)
    assert listed == ["a", "data/changed since", "deep/$(touch x)\n"]


def test_sync_back_reports_a_git_error_while_it_lists_new_files(work: WorkThere) -> None:
    Path(work.ours.folder, "index").mkdir()
    with pytest.raises(OSError, match="index"):
        list(work.new_files())
    assert "unread" in told(work)
