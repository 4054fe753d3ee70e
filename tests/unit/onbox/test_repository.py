"""Which repository of a box is meant, by the notes that setups left."""

from pathlib import Path

import pytest

from bootstrap.onbox.work.repository import find_repository

ROOT, OTHER = "a" * 40, "b" * 40


def note(home: Path, of: str, **notes: str) -> None:
    (home / "steps" / of).mkdir(parents=True)
    for name, text in notes.items():
        (home / "steps" / of / f"repo.{name}").write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("homework-1", ROOT), ("homework-1", "hw")),
        (("fork-2", ROOT), ("homework-1", "hw")),  # another client's name for it
        (("named-3", ""), ("homework-1", "hw")),
        (("homework-1", OTHER), (f"homework-{'b' * 8}", "homework")),
        (("hw-4", OTHER), ("hw-4", "hw-4")),  # its usual folder has another one
        (("hw-4", ""), ("hw-4", "hw-4")),
        (("new-5", OTHER), ("new-5", "new")),
    ],
)
def test_a_repository_is_found_on_a_box_by_its_first_commit_and_has_a_folder_of_its_own(
    asked: tuple[str, str], found: tuple[str, str], tmp_path: Path
) -> None:
    home = tmp_path / ".boxstrap"
    note(home, "homework-1", root=ROOT, dir=f"{tmp_path}/hw")
    note(home, "named-3", key="homework-1")
    key, folder = find_repository(str(home), *asked, "")
    assert (key, folder) == (found[0], f"{tmp_path}/{found[1]}")
