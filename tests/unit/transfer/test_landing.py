"""Files land whole, only in their folder, and replace no file of the user's."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.errors import BusyError, NotSafeError
from bootstrap.transfer import destination
from bootstrap.transfer.destination import (
    PARTS,
    Destination,
    LocalFolder,
    TooLong,
    name_beside,
    why_refused,
)

STATE = (1, 2, 3, 4, 5)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def landing(home: Path) -> Iterator[Destination]:
    with Destination(home, ("box", "train-2"), "train-2") as landing:
        yield landing


def land(landing: Destination, path: str, text: str, ours: tuple[str, ...] = ()) -> str:
    partial = landing.partial(path, STATE, len(text))
    partial.write(text.encode())
    assert partial.finish(partial.sha256, 5_000_000_000)
    return landing.land(path, partial, lambda *_: ours, lambda *_: None)[0]


def digest_of(landing: Destination, path: str) -> tuple[str, ...]:
    return (landing.digest(path),)


def test_a_file_being_pulled_has_a_temporary_name_until_it_is_whole(landing: Destination) -> None:
    partial = landing.partial("out/a", STATE, 4)
    partial.write(b"ab")
    assert [path.name for path in landing.place.rglob("*")] == [PARTS, partial.name]
    partial.write(b"cd")
    with pytest.raises(TooLong):
        partial.write(b"e")
    assert partial.finish(partial.sha256, 5_000_000_000)
    landed = landing.land("out/a", partial, lambda *_: (), lambda *_: None)
    assert landed == ("out/a", landing.look("out/a"))
    file = landing.place / "out/a"
    assert (file.read_text(), file.stat().st_mtime, file.stat().st_nlink) == ("abcd", 5, 1)


def test_pull_continues_a_partial_file_and_never_writes_into_a_complete_file(
    landing: Destination,
) -> None:
    partial = landing.partial("a", STATE, 4)
    partial.write(b"ab")
    partial.close()
    assert (landing.begun("a", STATE, 4), landing.begun("a", (*STATE, 6), 4)) == (2, 0)
    assert landing.begun("a", STATE, 1) == 0
    partial = landing.partial("a", STATE, 4)
    partial.write(b"cd")
    assert partial.finish(partial.sha256, 0)
    # A kill between linking the final name and removing the partial one leaves both.
    os.link(landing.place / PARTS / partial.name, landing.place / "a")
    assert landing.begun("a", STATE, 4) == 0
    again = landing.partial("a", STATE, 4)
    again.restart()
    again.write(b"xxxx")
    again.close()
    assert (landing.place / "a").read_text() == "abcd"
    landing.forget_others([])
    assert list((landing.place / PARTS).iterdir()) == []


def test_pull_replaces_only_files_that_a_pull_wrote(landing: Destination) -> None:
    assert land(landing, "m.pt", "one") == "m.pt"
    first = digest_of(landing, "m.pt")
    assert land(landing, "m.pt", "two", first) == "m.pt"
    (landing.place / "m.pt").write_text("mine")
    assert land(landing, "m.pt", "three", first) == "m.from-train-2.pt"
    second = digest_of(landing, "m.from-train-2.pt")
    assert land(landing, "m.pt", "four", second) == "m.from-train-2.pt"
    assert land(landing, "m.pt", "five") == "m.from-train-2.2.pt"
    assert land(landing, "m.pt", "mine") == "m.pt"  # the same content: nothing to do
    texts = {path.name: path.read_text() for path in landing.place.glob("m*")}
    assert texts == {"m.pt": "mine", "m.from-train-2.pt": "four", "m.from-train-2.2.pt": "five"}


def test_pull_writes_through_no_symlink_and_over_no_folder(
    landing: Destination, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("mine")
    for name, to in {"out": outside, "x": outside / "x", "nowhere": outside / "new"}.items():
        (landing.place / name).symlink_to(to)
    (landing.place / "folder").mkdir()
    (landing.place / "file").write_text("mine")
    os.mkfifo(landing.place / "pipe")
    for path in ("out/x", "file/x"):
        with pytest.raises(NotSafeError, match="is not a folder here"):
            land(landing, path, "evil")
    for path in ("x", "nowhere", "folder", "pipe"):
        assert land(landing, path, "evil") == f"{path}.from-train-2"
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"x": "mine"}
    assert (landing.place / "file").read_text() == "mine"


def test_pull_writes_nothing_through_a_symlink_that_replaced_a_folder_meanwhile(
    landing: Destination, tmp_path: Path
) -> None:
    land(landing, "sub/a", "1")
    (landing.place / "sub").rename(tmp_path / "moved")
    (landing.place / "sub").symlink_to(tmp_path)
    land(landing, "sub/b", "2")  # into the folder that it had opened
    assert (tmp_path / "moved/b").is_file()
    landing.look_again()
    with pytest.raises(NotSafeError):
        land(landing, "sub/c", "3")
    assert not (tmp_path / "c").exists()


def test_pull_refuses_a_repositorys_symlink_as_results_folder_unless_given_by_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/results").symlink_to(tmp_path)
    with pytest.raises(NotSafeError, match="--to"):
        Destination(tmp_path / "repo", ("results", "box"), "train-1")
    assert not (tmp_path / "box").exists()
    with Destination(tmp_path / "repo/results", (), "train-1") as landing:  # the user's own link
        land(landing, "a", "1")
    assert (tmp_path / "a").is_file()


def test_pull_renames_the_second_of_results_that_differ_only_in_case(landing: Destination) -> None:
    """As on a case-insensitive file system: the second finds a file that is not its own."""
    land(landing, "Model.pt", "one")
    os.link(landing.place / "Model.pt", landing.place / "model.pt")
    assert land(landing, "model.pt", "two") == "model.from-train-2.pt"
    assert (landing.place / "Model.pt").read_text() == "one"


def test_a_second_pull_into_one_folder_at_once_raises_busy_error(
    landing: Destination, home: Path
) -> None:
    with pytest.raises(BusyError):
        Destination(home, ("box", "train-2"), "train-2")
    land(landing, "a", "1")
    with Destination(home, ("box", "train-3"), "train-3"):
        pass
    assert [path.name for path in (home / "box/train-3").iterdir()] == []


def test_reading_a_results_folder_at_home_creates_no_file(home: Path) -> None:
    home.mkdir()
    with LocalFolder(home) as folder:
        assert folder.digest("a/b/c") == ""
        assert folder.look("a/b") is None
    assert list(home.iterdir()) == []


REFUSED = [
    *(".Boxstrap-Parts/a", ".boxstrap\u200c-PARTS/a", "Boxstrap-Manifest.json"),
    *("", "/etc/passwd", "../a", "a/../b", "a/./b", "a//b", "a/", "a/..", "..", "."),
    *(
        "a\nb", "a\x1b[2Jb", "a\tb", "a\x7fb", "a\x9b1mb", "a\u202eb", "a\u2028b", "a\udcffb",
        "a\0b",
    ),
    *(".git/config", "out/.GIT/hooks/x", "out/.git ./x", "git~1/x", "out/.g\u200cit/config"),
    *("x" * 256, "é" * 128, "/".join("a" * 70), "a/" * 1100 + "a"),
    *(PARTS, f"{PARTS}/x", "boxstrap-manifest.json"),
]  # fmt: skip


def test_pull_gives_a_reason_for_refusing_each_result_path_that_is_dangerous_here() -> None:
    assert [path for path in REFUSED if not why_refused(path)] == []


@pytest.mark.parametrize(
    "path",
    [
        *("out/a", "a b/c d", "é/日本", "-x", "out/.gitignore", "out/.github/x", "..a", "a..b"),
        *("x" * 255, "out/boxstrap-manifest.json", "CON", "a:b", "a\\b", "\u00a0a", "👩\u200d💻"),
    ],
)
def test_pull_refuses_no_result_path_that_is_merely_unusual(path: str) -> None:
    assert why_refused(path) == ""


def test_the_alternative_name_of_a_pulled_file_has_at_most_255_bytes() -> None:
    assert name_beside("out/.bashrc", "train-2", 1) == "out/.bashrc.from-train-2"
    assert name_beside("a.tar.gz", "train-2", 3) == "a.tar.from-train-2.3.gz"
    for name in ("é" * 127, "x" * 250 + ".pt"):
        beside = name_beside(name, "train-2", 2)
        assert len(beside.encode()) <= 255
        assert not why_refused(beside)


def test_a_local_symlink_is_not_read_as_a_pulled_file(landing: Destination, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x")
    (landing.place / "link").symlink_to(tmp_path / "elsewhere")
    assert landing.digest("link") == ""
    assert landing.look("link") is None


def test_on_a_disk_without_hard_links_pull_saves_beside_and_not_over_a_users_file(
    landing: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on exFAT or some network disks."""

    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    assert land(landing, "out/a", "one") == "out/a"
    assert land(landing, "out/a", "two") == "out/a.from-train-2"
    assert land(landing, "out/a", "six", ours=digest_of(landing, "out/a")) == "out/a"
    found = {file.name: file.read_text() for file in (landing.place / "out").iterdir()}
    assert found == {"a": "six", "a.from-train-2": "two"}


def test_pull_replaces_no_file_when_all_alternative_names_are_taken(
    landing: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "_MOST_BESIDE", 3)
    assert [land(landing, "a", text) for text in "123"] == [
        "a",
        "a.from-train-2",
        "a.from-train-2.2",
    ]
    with pytest.raises(NotSafeError, match="other files have its name, and 3 more"):
        land(landing, "a", "4")
    assert sorted(file.read_text() for file in landing.place.glob("a*")) == ["1", "2", "3"]


def test_pull_does_not_continue_a_partial_file_that_is_hard_linked_or_a_symlink(
    landing: Destination,
) -> None:
    partial = landing.partial("a", STATE, 4)
    partial.write(b"ab")
    partial.close()
    assert landing.begun("a", STATE, 4) == 2
    assert landing.begun("a", STATE, 1) == 0  # longer than the file
    part = landing.place / PARTS / partial.name
    os.link(part, landing.place / "other")
    assert landing.begun("a", STATE, 4) == 0  # somebody else has it too
    (landing.place / "other").unlink()
    part.unlink()
    assert landing.begun("a", STATE, 4) == 0
