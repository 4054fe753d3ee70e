"""A run's results, pulled from this machine as a box: what lands, what waits, what is refused."""

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import NotSafeError
from bootstrap.link import LinkLost, LocalStream, LocalWire, NoAnswer
from bootstrap.transfer.destination import MANIFEST, PARTS, Destination, HomeFile
from bootstrap.transfer.frames import BegunFile, BoxFile, BoxLook, GivenFile, LostResult, WantedFile
from bootstrap.transfer.manifest import PulledFile
from bootstrap.transfer.puller import Puller, PullRound, lost_words
from tests.unit.transfer.boxes import KEY, RUN, STOOD_S, ResultsHere, held

pytestmark = pytest.mark.slow  # each starts programs

MIB = 2**20
Given = bytes | BegunFile | GivenFile


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ResultsHere]:
    wire = LocalWire()
    yield ResultsHere(tmp_path / "box", tmp_path / "home", wire)
    wire.close()


@pytest.mark.parametrize("why", ["gone", "changed"])
def test_why_a_result_is_lost_fits_into_a_line_with_its_path(why: str) -> None:
    assert len(lost_words(LostResult((), why, ""))) < 80


def test_results_are_pulled_byte_for_byte_and_only_once(box: ResultsHere) -> None:
    box.write("out/a", "1")
    box.write("out/zero", "")
    box.write("out/sub dir/é", os.urandom(3 * MIB))
    box.write("train.py", "stays")
    first = box.pull()
    assert (len(first.landed), first.missing) == (3, {})
    assert box.here() == {
        str(path.relative_to(box.tree)): path.read_bytes()
        for path in box.out.rglob("*")
        if path.is_file()
    }
    when = (box.out / "a").stat().st_mtime_ns
    assert (box.home / "out/a").stat().st_mtime_ns == when
    # If both sides are unchanged, nothing is read; `taken` would show it.
    taken: list[object] = []
    with box.source() as source, box.pulling() as puller:
        source.get = lambda wanted: taken.append(wanted) or iter(())  # type: ignore[method-assign,func-returns-value]
        again = puller.round(source, live=False)
    assert (again.landed, again.missing, taken) == (set(), {}, [])
    box.write("out/a", "2")
    (box.home / "out/zero").unlink()
    assert box.pull().landed == {"out/a", "out/zero"}
    assert box.here()["out/a"] == b"2"


def test_the_second_list_of_results_of_a_box_lacks_those_deleted_since(box: ResultsHere) -> None:
    box.write("out/a")
    (box.out / "latest").symlink_to("a")
    (box.out / "elsewhere").symlink_to("/etc/passwd")
    with box.source() as source:
        looks = [source.look(live=False) for _ in range(2)]
        (box.out / "elsewhere").unlink()
        (box.out / "a").unlink()
        looks.append(source.look(live=False))
    left, files = {"out/elsewhere": "outside"}, ["out/a", "out/latest"]
    assert [([*look.files], look.left) for look in looks[:2]] == [(files, left)] * 2
    assert (looks[2].left, [*looks[2].files]) == ({"out/latest": "dead"}, [])


def test_pull_leaves_out_results_excluded_by_option_without_until_they_are_included_again(
    box: ResultsHere,
) -> None:
    for path in ("out/a", "out/deep/b.tmp", "out/cache/c", "out/[1]", "ignored/by git"):
        box.write(path)
    (box.out / "elsewhere").symlink_to("/etc/passwd")
    (box.out / "latest").symlink_to("gone")
    (box.out / os.fsdecode(b"\xff")).write_text("1")
    first = box.pull()
    assert (first.never(), first.look.left["out/latest"]) == (
        ["out/elsewhere", "out/\udcff"],
        "dead",
    )
    assert len(first.landed) == 4
    let_go = ["out/elsewhere", "*.tmp", "./out/cache/", "out/[1]", "out/\udcff", "out/typo"]
    let_go.append("ignored/by git")  # no result, and let go of as what goes with the box
    for without in (let_go, None):
        with box.source(without=without) as source:
            look = source.look(live=False)
        assert ([*look.files], [*look.left]) == (["out/a"], ["out/latest"])
        assert (look.without, look.unmet) == (let_go, ["out/typo"])
    with box.source(without=[]) as source:
        assert len(source.look(live=False).files) == 4


def test_pull_raises_an_error_if_the_results_would_be_more_files_than_the_limit(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each look has new names of empty files, which take no space themselves."""
    monkeypatch.setattr("bootstrap.transfer.puller.MOST_FILES", 3)
    for name in ("a", "b", "c"):
        box.write(f"out/{name}", "")
    assert len(box.pull().landed) == 3
    (box.out / "a").rename(box.out / "d")
    with pytest.raises(NotSafeError, match="more than 3 files"):
        box.pull()


def test_pull_raises_an_error_if_the_results_would_be_more_folders_than_the_limit(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file in deep folders of its own takes more space than its size says."""
    monkeypatch.setattr("bootstrap.transfer.puller.MOST_FILES", 4)
    box.write("out/a/b/c", "")
    box.write("out/a/d/e", "")
    assert len(box.pull().landed) == 2
    box.write("out/f/g", "")
    with pytest.raises(NotSafeError, match="more than 4 folders"):
        box.pull()


def test_a_result_file_that_is_being_written_is_not_pulled_yet(box: ResultsHere) -> None:
    log, other = box.write("out/log"), box.write("out/done")
    with held(log):
        found = box.pull(live=True)
        assert (found.landed, found.missing) == ({"out/done"}, {"out/log": "held"})
    with box.source() as source, box.pulling() as puller:
        assert puller.round(source, live=True).missing == {"out/log": "young"}
    assert box.pull().missing == {}
    assert other.read_bytes() == box.here()["out/done"]


class ChangedMeanwhile:
    """A source that runs `action` on the box at the first piece of the file at `path`."""

    def __init__(self, source: Any, path: str, action: Callable[[], object]) -> None:
        self._source, self._path, self.stood_s = source, path, source.stood_s
        self._action: Callable[[], object] | None = action

    def look(self, *, live: bool) -> BoxLook:
        return self._source.look(live=live)  # type: ignore[no-any-return]

    def get(self, wanted: Sequence[WantedFile]) -> Iterator[tuple[WantedFile, Given]]:
        for one, item in self._source.get(wanted):
            if self._action and one.file.path == self._path:
                self._action()
                self._action = None
            yield one, item


def pull_while(box: ResultsHere, path: str, action: Callable[[], object]) -> PullRound:
    with box.source() as source, box.pulling() as puller:
        source.look(live=True)
        time.sleep(1.2 * STOOD_S)
        return puller.round(ChangedMeanwhile(source, path, action), live=True)


def test_a_result_that_changes_while_it_is_read_is_pulled_again(box: ResultsHere) -> None:
    # Large enough that the box is still reading when the first piece is here.
    file = box.write("out/a.pt", os.urandom(64 * MIB))
    found = pull_while(box, "out/a.pt", lambda: box.write("out/a.pt", b"new" * 1000))
    assert found.missing == {"out/a.pt": "changed"}
    assert any(map(found.may_come, found.missing))
    assert box.here() == {}
    assert box.pull().missing == {}
    assert box.here() == {"out/a.pt": file.read_bytes()}


def test_a_checkpoint_is_pulled_complete_or_not_at_all(box: ResultsHere) -> None:
    for name in ("a", "b"):
        box.write(f"out/checkpoint-1/{name}", "1")
    found = pull_while(box, "out/checkpoint-1/b", lambda: box.write("out/checkpoint-1/a", "2"))
    assert found.landed == set()
    assert set(found.missing) == {"out/checkpoint-1/a", "out/checkpoint-1/b"}
    assert box.here() == {}
    found = box.pull(live=True)
    assert found.landed == {"out/checkpoint-1/a", "out/checkpoint-1/b"}
    assert box.here() == {"out/checkpoint-1/a": b"2", "out/checkpoint-1/b": b"1"}


def test_the_files_of_a_checkpoint_are_pulled_in_the_order_they_were_written(
    box: ResultsHere,
) -> None:
    """What points to a checkpoint, or lists its files, is written last."""
    paths = [f"out/checkpoint-1/{name}" for name in ("optimizer", "model", "index")]
    for second, path in enumerate(paths, 1):
        os.utime(box.write(path), (second, second))
    landed: list[tuple[str, str]] = []
    with box.source() as source, box.landing() as landing, box.record() as record:
        puller = Puller(
            landing, record, most=MIB, landed=lambda file, place: landed.append((file.path, place))
        )
        puller.round(source, live=False)
    assert landed == [(path, path) for path in paths]


def test_pull_saves_files_it_fetched_early_only_after_the_box_says_they_are_complete(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest files are read first; nothing of a live run is read ahead."""
    monkeypatch.setattr("bootstrap.transfer.puller.AHEAD", 50_000)
    for name in ("out/a", "out/checkpoint-1/a", "out/checkpoint-1/b", "out/checkpoint-2/a"):
        box.write(name, "1")
    log = box.write("out/checkpoint-2/log", "1")
    box.write("out/z", b"1" * 60_000)
    assert box.pull(live=True, ahead=True).landed == set()
    with held(log):
        found = box.pull(ahead=True)
        assert found.landed == {"out/a", "out/checkpoint-1/a", "out/checkpoint-1/b"}
        assert found.missing["out/z"] == "closed"
        assert found.missing["out/checkpoint-2/log"] == "young"
        assert any(map(found.may_come, found.missing))
        assert not (box.home / ".boxstrap-parts").exists()
    assert box.pull(ahead=True).landed == {"out/checkpoint-2/a", "out/checkpoint-2/log"}
    assert box.pull(ahead=True).landed == {"out/z"}


def test_pull_looks_at_the_results_on_the_box_just_twice_to_see_that_they_stay_unchanged(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look goes through all processes of the box."""
    box.write("out/a")
    looks: list[BoxLook] = []
    with box.source(1.0) as source, box.pulling() as puller:
        look = source.look

        def noted(*, live: bool) -> BoxLook:
            looks.append(look(live=live))
            return looks[-1]

        monkeypatch.setattr(source, "look", noted)
        assert puller.round(source, live=False).landed == {"out/a"}
    assert len(looks) == 2


def test_pull_discards_files_it_fetched_early_that_changed_since(box: ResultsHere) -> None:
    others = [f"checkpoint-{number}/{name}" for number in (1, 2) for name in "ab"]
    for name in ("a", "b", "c", *others, "d"):
        box.write(f"out/{name}", "1")
    times = (box.out / "a").stat().st_mtime_ns
    opened = []

    def change() -> None:
        for name in ("a", "checkpoint-1/b"):
            (box.out / name).write_text("2")
            os.utime(box.out / name, ns=(times, times))
        opened.append((box.out / "b").open("ab"))
        (box.out / "c").unlink()
        (box.out / "checkpoint-2/b").unlink()

    with box.source() as source, box.pulling() as puller:
        found = puller.round(ChangedMeanwhile(source, "out/d", change), live=False)
    opened[0].close()
    assert found.landed == {"out/d"}
    assert set(found.missing.values()) == {"changed"}
    assert len(found.missing) == 7
    assert box.pull().missing == {}
    assert set(box.here()) == {f"out/{name}" for name in ("a", "b", "d", *others[:3])}
    assert box.here()["out/a"] == box.here()["out/checkpoint-1/b"] == b"2"


def parts(box: ResultsHere) -> list[Path]:
    return list((box.home / ".boxstrap-parts").iterdir())


def test_pull_deletes_nothing_at_home_and_replaces_only_its_own_files(box: ResultsHere) -> None:
    box.write("out/a", "1")
    box.write("out/b.pt", "1")
    box.pull()
    (box.home / "out/a").write_text("mine")
    (box.home / "out/new").write_text("mine")
    (box.out / "b.pt").unlink()
    box.write("out/a", "22")
    box.write("out/new", "22")
    assert box.pull().missing == {}
    here = {"out/a": b"mine", "out/new": b"mine", "out/b.pt": b"1"}
    here |= {"out/a.from-train-1": b"22", "out/new.from-train-1": b"22"}
    assert box.here() == here
    assert box.pull().landed == set()
    box.write("out/new", "333")
    box.pull()
    assert box.here() == {**here, "out/new.from-train-1": b"333"}
    # Another run pulled into the same folder doesn't own what the first one put there.
    box.write("out/a", "22")
    box.pull(run="train-2")
    assert box.here()["out/a.from-train-1"] == b"22"
    assert box.here()["out/a.from-train-2"] == b"22"


def test_pull_saves_both_if_a_result_is_called_as_anothers_alternative(box: ResultsHere) -> None:
    """Here such a name may hold another file than the one that has this name on the box."""
    (box.home / "out").mkdir(parents=True)
    (box.home / "out/a.pt").write_text("mine")
    for content in ("1", "22"):
        box.write("out/a.pt", f"a{content}")
        box.write("out/a.from-train-1.pt", f"b{content}")
        assert len(box.pull().landed) == 2
        assert set(box.here().values()) == {b"mine", f"a{content}".encode(), f"b{content}".encode()}
        assert box.pull().landed == set()


class CutAnswers(LocalWire):
    """A wire that breaks off after so many bytes of answers."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def start(self, command: str) -> LocalStream:
        stream = super().start(command)
        read = stream.read

        def cut(n: int) -> bytes:
            if self.left <= 0:
                self.close()
                return b""
            piece = read(n)
            self.left -= len(piece)
            return piece

        stream.read = cut  # type: ignore[method-assign]
        return stream


def test_pull_of_20_mib_over_cut_links_fetches_less_than_1_mib_twice(box: ResultsHere) -> None:
    large = box.write("out/large", os.urandom(20 * MIB))
    received = 0
    for after in (6 * MIB, 7 * MIB):
        box.wire = CutAnswers(after)
        with box.source() as source, box.pulling() as puller:
            source.look(live=False)
            time.sleep(1.2 * STOOD_S)
            with pytest.raises(LinkLost):
                puller.round(source, live=False)
            received += puller.received
        assert "out/large" not in box.here()
    box.wire = LocalWire()
    with box.source() as source, box.pulling() as puller:
        source.look(live=False)
        time.sleep(1.2 * STOOD_S)
        assert puller.round(source, live=False).landed == {"out/large"}
        received += puller.received
    assert box.here() == {"out/large": large.read_bytes()}
    assert 20 * MIB <= received < 21 * MIB


def test_pull_discards_a_partial_file_that_differs_from_the_boxs(box: ResultsHere) -> None:
    box.write("out/large", os.urandom(3 * MIB))
    with box.landing() as landing, box.source() as source:
        file = source.look(live=False).files["out/large"]
        partial = landing.partial(file.path, file.state, file.size)
        partial.write(b"x" * MIB)
        partial.close()
    assert box.pull().missing == {"out/large": "changed"}
    assert box.pull().missing == {}
    assert box.here() == {"out/large": (box.out / "large").read_bytes()}


@pytest.mark.parametrize("ahead", [False, True])
def test_pull_on_a_full_disk_saves_what_fits_and_names_each_missing_result(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> None:
    for name in "abc":
        box.write(f"out/{name}", name * 10)
    write = os.write

    def full(file: int, piece: bytes) -> int:
        if piece.startswith(b"b"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, piece)

    monkeypatch.setattr(os, "write", full)
    found = box.pull(ahead=ahead)
    assert found.landed == {"out/a"}
    why = "can't be written here: no space left on device"
    assert found.reasons() == {"out/b": why, "out/c": why}
    assert not any(map(found.may_come, found.missing))
    monkeypatch.undo()
    assert box.pull().landed == {"out/b", "out/c"}


def test_a_small_result_that_could_not_be_saved_comes_whole_with_the_next_pull(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        box.write(f"out/{name}", name * 10)
    land = Destination.land

    def broken(landing: Destination, path: str, *more: Any) -> object:
        if path == "out/a":
            raise OSError(errno.EIO, "Input/output error")
        return land(landing, path, *more)

    monkeypatch.setattr(Destination, "land", broken)
    assert box.pull().missing == {"out/a": "can't be written here: input/output error"}
    monkeypatch.undo()
    assert box.pull().landed == {"out/a"}
    assert box.here() == {f"out/{name}": name.encode() * 10 for name in "abc"}


def test_pull_saves_small_results_of_a_new_folder_all_at_once_or_not_at_all(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for one that comes in several pieces, and what comes after that. A kill before leaves
    none of them, and the next pull removes what it left."""
    for name in ("out/a", "out/b", "out/z", "out/sub/c"):
        box.write(name)
    rename = os.rename

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as kill:
        kill.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            box.pull()
    assert box.here() == {}
    assert sorted(file.name for file in (box.home / PARTS).glob("*/*")) == ["a", "b", "c"]
    box.write("out/m", os.urandom(MIB))
    links, names, link = list[str](), list[str](), os.link
    monkeypatch.setattr(os, "link", lambda *a, **k: (links.append(a[1]), link(*a, **k)))
    monkeypatch.setattr(os, "rename", lambda *a, **k: (names.append(a[1]), rename(*a, **k)))
    assert len(box.pull().landed) == 5
    assert (sorted(links), sorted(names)) == (["m", "z"], ["out", "sub"])
    assert not (box.home / PARTS).exists()
    assert {name: len(content) for name, content in box.here().items()} == {
        **dict.fromkeys(("out/a", "out/b", "out/z", "out/sub/c"), 1),
        "out/m": MIB,
    }
    assert box.pull().landed == set()


@pytest.mark.parametrize("there", ["a file", "a link", "a folder with files", "nothing, but cut"])
def test_pull_overwrites_nothing_in_a_folder_that_someone_else_makes_meanwhile(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    for name in "ab":
        box.write(f"out/sub/{name}", name)
    place, rename, write = box.home / "out/sub", os.rename, os.write

    def late(*names: Any, **folders: int) -> None:
        if there == "a file":
            place.write_text("mine")
        elif there == "a link":
            place.symlink_to(box.tree)
        elif there == "a folder with files":
            place.mkdir()
            (place / "a").write_text("mine")
        rename(*names, **folders)

    def cut(file: int, piece: bytes) -> int:
        if piece == b"b" and there == "nothing, but cut":
            raise OSError(errno.EIO, "Input/output error")
        return write(file, piece)

    monkeypatch.setattr(os, "rename", late)
    monkeypatch.setattr(os, "write", cut)
    found = box.pull()
    if there == "a folder with files":
        assert box.here() == {
            "out/sub/a": b"mine",
            "out/sub/a.from-train-1": b"a",
            "out/sub/b": b"b",
        }
    elif there == "nothing, but cut":
        assert box.here() == {"out/sub/a": b"a"}
        assert "input/output error" in found.reasons()["out/sub/b"]
    else:
        assert "not a folder here" in found.reasons()["out/sub/a"]
        assert not (box.tree / "a").exists()
    monkeypatch.undo()
    if there not in ("a file", "a link"):
        assert box.pull().missing == {}
        assert not (box.home / PARTS).exists()


def test_pull_raises_an_error_before_it_transfers_results_larger_than_max_size(
    box: ResultsHere,
) -> None:
    box.write("out/a", "1" * 600)
    assert box.pull(most=600).missing == {}
    with box.record() as record:
        record.add(MANIFEST, PulledFile((), "0" * 64, MANIFEST, HomeFile(700, 1, 1)))
    (box.out / "a").unlink()
    box.write("out/b", "1" * 500)
    with pytest.raises(NotSafeError, match=r"1\.1 kB, and 1\.1 kB are allowed"):
        box.pull(most=1099)
    sparse = box.write("out/sparse")
    os.truncate(sparse, 10**13)
    with pytest.raises(NotSafeError, match="--max-size 10001G"):
        box.pull()
    assert set(box.here()) == {"out/a"}


class LyingSource:
    """A hostile box that announces `out/a` with two bytes, and sends `items` for it."""

    stood_s = 0.0

    def __init__(self, items: Sequence[Given], path: str = "out/a") -> None:
        self.items = items
        self.file = BoxFile(path, "", "", (1, 2, 2, 3, 4))

    def look(self, *, live: bool) -> BoxLook:
        return BoxLook({self.file.path: self.file})

    def get(self, wanted: Sequence[WantedFile]) -> Iterator[tuple[WantedFile, Given]]:
        for one in wanted:
            for item in self.items:
                yield one, item


OF_AB = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"
LIES: dict[str, tuple[list[Given], str]] = {
    "shorter": ([b"a", GivenFile("", OF_AB)], "damaged"),
    "another digest": ([b"ab", GivenFile("", "0" * 64)], "damaged"),
    "no digest": ([b"ab", GivenFile("", "")], "damaged"),
    "begun, unasked": ([BegunFile(2, OF_AB), b"ab", GivenFile("", OF_AB)], "changed"),
    "nothing": ([GivenFile("", "")], "damaged"),
}


@pytest.mark.parametrize("lie", LIES)
def test_pull_saves_no_result_a_box_lied_about_but_the_true_one(box: ResultsHere, lie: str) -> None:
    items, why = LIES[lie]
    with box.pulling() as puller:
        found = puller.round(LyingSource(items), live=False)
    assert (found.landed, found.missing) == (set(), {"out/a": why})
    assert "out" not in {path.name for path in box.home.iterdir()}
    with box.pulling() as puller:
        assert puller.round(LyingSource([b"ab", GivenFile("", OF_AB)]), live=False).missing == {}
        assert puller.received == 2


def test_a_result_that_grows_beyond_its_announced_size_ends_the_pull(box: ResultsHere) -> None:
    with box.pulling() as puller, pytest.raises(NotSafeError, match="more of out/a than the 2 B"):
        puller.round(LyingSource([b"ab", b"c" * MIB]), live=False)
    assert sum(path.stat().st_size for path in parts(box)) == 2


@pytest.mark.parametrize(
    "path", ["../a", "/etc/x", "out/a\x1b[2J\nb", "out/.git/config", "a" * 300]
)
def test_pull_names_results_whose_file_name_is_not_allowed_here_as_missing(
    box: ResultsHere, path: str
) -> None:
    with box.pulling() as puller:
        found = puller.round(LyingSource([b"ab", GivenFile("", OF_AB)], path), live=False)
    ((name, why),) = found.reasons().items()
    assert name.isprintable()
    assert why
    assert box.here() == {}
    assert not (box.home.parent / "a").exists()


ANSWERS: list[dict[str, object]] = [
    {"files": [["out/a", "", "", 1, 2, -1, 3, 4]]},
    {"files": [["out/a", "", "", 1, 2, True, 3, 4]]},
    {"files": [["out/a", "", "", 1, 2, 3.5, 3, 4]]},
    {"files": [["out/a", "", "", 1, 2, 2**70, 3, 4]]},
    {"files": [["out/a", "odd", "", 1, 2, 3, 4, 5]]},
    {"files": [["x" * 10_000, "", "", 1, 2, 3, 4, 5]]},
    {"files": [[["out"], "", "", 1, 2, 3, 4, 5]]},
    {"files": [None]},
    {"left": [["x", "odd"]]},
    {"looked": ["out"], "without": [f"{number}" for number in range(1001)]},
]


@pytest.mark.parametrize(
    ("kind", "more"), [("left", ["outside"]), ("files", ["", "", "own", 1, 2, 3, 4, 5, "x" * 20])]
)
def test_pull_ends_with_an_error_if_the_box_lists_more_result_names_than_allowed(
    box: ResultsHere, kind: str, more: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.transfer.frames._MOST_TEXT", 100)
    with box.source() as source:
        answers = [({kind: [[f"{n}" + "x" * 20, *more]]}, b"") for n in range(9)]
        monkeypatch.setattr(source._transfer, "run", lambda _: iter(answers))
        with pytest.raises(NoAnswer, match="more names"):
            source.look(live=False)


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_pull_raises_no_answer_for_a_senseless_list_of_results_from_a_box(
    box: ResultsHere, answer: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with box.source() as source:
        monkeypatch.setattr(source._transfer, "run", lambda _: iter([(answer, b"")]))
        with pytest.raises(NoAnswer):
            source.look(live=False)


def test_pull_refuses_a_box_that_sends_another_file_than_requested(
    box: ResultsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.write("out/a", "1")
    with box.source() as source, box.pulling() as puller:
        source.look(live=False)
        time.sleep(1.2 * STOOD_S)
        run = source._transfer.run

        def other(requests: Any) -> Iterator[Any]:
            for header, body in run(requests):
                yield ({**header, "i": 5} if "i" in header else header), body

        monkeypatch.setattr(source._transfer, "run", other)
        with pytest.raises(NoAnswer, match="was not asked for"):
            puller.round(source, live=False)


def test_a_run_without_a_list_of_result_paths_has_those_of_the_profile(box: ResultsHere) -> None:
    (box.workdir / f".boxstrap/runs/{KEY}/{RUN}/results").unlink()
    box.write("logs/a", "1")
    with box.source() as source:
        source._asked["paths"] = ["logs/"]
        assert list(source.look(live=False).files) == ["logs/a"]
        assert source.paths == ["logs/"]


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([], "does not give all"),
        ([{"i": 0, "given": [["", "x", 0]] * 2}], "gives more"),
        ([{"i": 0, "given": [["", "x", 0]]}, {}], "gives more"),
        ([{"i": 0, "given": [["", "x"]]}], "invalid"),
        ([{"i": 0, "given": [["", "x", True]]}], "invalid"),
    ],
)
def test_pull_refuses_a_box_that_sends_fewer_or_more_digests_than_requested(
    box: ResultsHere, answers: list[dict[str, Any]], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.write("out/a", "1")
    with box.source() as source:
        files = [*source.look(live=False).files.values()]
        monkeypatch.setattr(source._transfer, "run", lambda _: ((one, b"") for one in answers))
        with pytest.raises(NoAnswer, match=says):
            list(source.digests(files))
