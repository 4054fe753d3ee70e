"""A git pack that shrank or grew on a box's disk is damage: it never changes once it is there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bootstrap.steps.shell import shell_part

LIBRARY = "".join(shell_part("lib", name) for name in ("base", "packs", "git"))


def packs_right(folder: Path, *, note: bool = False) -> bool:
    """Return whether the packs are as noted; `note` them first."""
    line = f"{'note_packs packs list;' if note else ''} packs_right list packs"
    done = subprocess.run(["bash", "-c", f"{LIBRARY}\n{line}"], cwd=folder, check=False)
    return done.returncode == 0


def test_a_pack_of_another_size_than_noted_is_damage_and_one_that_came_or_went_is_none(
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
