"""Whose word counts for what a run's results are: its own note, or the profile of who asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.onbox.results.run_results import RunFolder


@pytest.mark.parametrize(
    ("rank", "noted", "results"),
    [
        ("", "", ["asked/"]),
        ("", "own/\n", ["own/"]),
        ("0\n", "", ["asked/"]),
        ("1\n", "", []),
        ("1\n", "own/\n", ["own/"]),
    ],
)
def test_a_later_node_without_a_note_has_none(
    tmp_path: Path, rank: str, noted: str, results: list[str]
) -> None:
    """What it wrote would be taken for results of every run in its tree."""
    run = tmp_path / "homework/train-1"
    (run / "nodes").mkdir(parents=True)
    for name, text in {"nodes/rank": rank, "results": noted}.items():
        if text:
            (run / name).write_text(text)
    assert RunFolder(str(run), str(tmp_path), ["asked/"]).results == results
