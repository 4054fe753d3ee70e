"""Pushes to this machine as a box, with the program sent to boxes: what arrives, what is kept."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import BoxLacksError, BoxstrapError, BusyError, NotSafeError, UsageError
from bootstrap.link import LinkLost, LocalStream, LocalWire, ReconnectingLink
from bootstrap.onbox.results.complete_files import CompleteFiles
from bootstrap.onbox.transfer import serve, take
from bootstrap.onbox.transfer.frames import (
    BLOCK,
    LENGTHS,
    LONGEST_HEADER,
    BadFrame,
    Bundle,
    read_frames,
)
from bootstrap.profile import SentItem
from bootstrap.setup.push import DataSender, LocalItem, links_line
from bootstrap.transfer import frames as transfer
from bootstrap.transfer import source_files as sender
from bootstrap.transfer.frames import Frame, Transfer
from bootstrap.transfer.push import Pushed, push_folder, upload_of_several
from tests.unit.transfer.boxes import pack_frame
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each starts programs

MIB = 2**20
Push = Callable[..., Pushed]


@pytest.fixture
def wire() -> Iterator[LocalWire]:
    wire = LocalWire()
    yield wire
    wire.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "work dir/tree/data"


@pytest.fixture
def push(wire: LocalWire, source: Path, target: Path) -> Push:
    def push(**options: Any) -> Pushed:
        return push_folder(wire, source, "tree/data", workdir=str(target.parents[1]), **options)

    return push


Answer = Callable[..., None]


@pytest.fixture
def answer(source: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Push a file `a` to a box that answers so, in each round; it reads what is sent."""
    write(source, a="1")

    def answer(*rounds: Iterable[dict[str, object]]) -> None:
        left = iter(rounds)

        def run(_: Transfer, frames: Iterable[Frame]) -> Iterator[Frame]:
            list(frames)
            yield from ((header, b"") for header in next(left))

        monkeypatch.setattr(Transfer, "run", run)

    return answer


def contents(folder: Path) -> dict[bytes, tuple[bytes, int, int]]:
    """Bytes, permissions and time of each file in a folder, and its empty folders."""
    found = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.is_file():
            facts = path.stat()
            found[name] = (path.read_bytes(), facts.st_mode & 0o777, facts.st_mtime_ns)
        elif not any(path.iterdir()):
            found[name] = (b"", 0, 0)
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(folder: Path, **files: str | bytes) -> None:
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def test_push_sends_files_byte_for_byte_and_a_second_push_sends_none_again(
    push: Push, source: Path, target: Path
) -> None:
    write(source, a="1", zero="", large=os.urandom(3 * MIB))
    (source / "empty/folder").mkdir(parents=True)
    (source / "a\n\x1b[31m é").write_text("odd")
    odd = source / os.fsdecode(b"\xff\xfe/\x80")
    odd.parent.mkdir()
    odd.write_bytes(b"no text")
    (source / "a").chmod(0o755)
    os.utime(source / "a", ns=(1, 1_234_567_890_123_456_789))
    first = push()
    assert (first.files, first.bytes, first.had) == (5, 3 * MIB + 11, 0)
    assert contents(target) == contents(source)
    # With equal sizes and times neither side is read, or the changed text would show.
    for folder, text in ((source, "2"), (target, "3")):
        times = (folder / "a").stat().st_mtime_ns
        write(folder, a=text)
        os.utime(folder / "a", ns=(times, times))
    again = push()
    assert (again.files, again.had, again.failed) == (0, 5, [])
    assert (target / "a").read_text() == "3"


def test_push_replaces_only_files_that_a_push_put_there(
    push: Push, source: Path, target: Path
) -> None:
    write(source, ours="1", touched="1", same="1", other="1", longer="1")
    target.mkdir(parents=True)
    write(target, same="1", other="2", longer="made there", more="stays")
    first = push()
    assert (first.files, first.had, first.kept) == (2, 1, ["longer", "other"])
    with pytest.raises(NotSafeError, match=r"2 files on the box.*\n  longer\n  other"):
        first.check("box")
    assert (target / "other").read_text() == "2"
    write(source, ours="22")
    os.utime(source / "touched", ns=(5, 5))
    second = push()
    assert (second.files, second.had, second.kept) == (1, 2, ["longer", "other"])
    assert (target / "ours").read_text() == "22"
    write(target, ours="33")  # as a training might
    write(source, ours="4")
    assert push().kept == ["longer", "other", "ours"]
    third = push(replace=True)
    assert (third.files, third.kept) == (3, [])
    assert {name: file[0] for name, file in contents(target).items()} == {
        **{name: file[0] for name, file in contents(source).items()},
        b"more": b"stays",
    }


def test_push_of_a_folder_names_what_was_sent_of_it_before_and_is_no_longer_in_it(
    push: Push, source: Path, target: Path
) -> None:
    """Else a box trains with what was taken out here, and nothing says so."""
    write(source, a="1", b="2", c="3", d="4", e="5")
    assert push().left_out == []
    (source / "b").rename(source / "f")
    (source / "c").unlink()
    write(target, d="a training's")
    (target / "e").unlink()
    (said,) = push(exclude=["d", "e"]).left_out
    assert said.startswith("b, c: sent before, ")
    assert names(target) == ["a", "b", "c", "d", "f"]
    for file in [*source.iterdir()]:  # another folder that goes there is no older state of this one
        file.unlink()
    write(source, g="7")
    assert push().left_out == []


def test_push_of_one_file_puts_that_file_into_the_folder(wire: LocalWire, tmp_path: Path) -> None:
    write(tmp_path, one="1", other="2")
    pushed = push_folder(wire, tmp_path / "one", "to", workdir=str(tmp_path / "box"))
    assert (pushed.files, names(tmp_path / "box/to")) == (1, ["one"])


def test_files_excluded_by_gitignore_patterns_are_not_pushed(
    push: Push, source: Path, target: Path
) -> None:
    for name in ("keep.txt", "a.log", "sub/b.log", "sub/kept.log", "cache/x", "sub/cache/y"):
        (source / name).parent.mkdir(exist_ok=True, parents=True)
        (source / name).write_text(name)
    push(exclude=["*.log", "!kept.log", "/cache/"])
    assert sorted(contents(target)) == [b"keep.txt", b"sub/cache/y", b"sub/kept.log"]


def test_symlinks_within_a_pushed_folder_arrive_as_symlinks(
    push: Push, source: Path, target: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s")
    (source / "sub").mkdir()
    write(source / "sub", a="1", b="2", left="3")
    links = {"file": "sub/a", "folder": "sub", "sub/back": "b", "chain": "file"}
    out = {"out": "../secret", "circle": ".", "nowhere": "gone", "to-left": "sub/left"}
    for name, to in {**links, **out}.items():
        (source / name).symlink_to(to)
    os.mkfifo(source / "pipe")
    pushed = push(exclude=["left"])
    assert sorted(contents(target)) == [b"chain", b"file", b"sub/a", b"sub/b", b"sub/back"]
    there = {name: (target / name).readlink() for name in links}
    assert {name: str(to) for name, to in there.items()} == {**links, "chain": "sub/a"}
    assert sorted(line.partition(":")[0] for line in pushed.left_out) == [
        "circle", "nowhere", "out", "pipe", "to-left",
    ]  # fmt: skip
    assert push(exclude=["left"]).files == 0
    (source / "file").unlink()
    (source / "file").symlink_to("sub/b")
    assert push(exclude=["left"]).files == 1
    assert (target / "file").read_text() == "2"


class CutStream(LocalStream):
    """A stream that is lost after so many bytes were written to it."""

    left = 0
    wire: CutWire

    def write(self, b: bytes) -> None:
        self.left -= len(b)
        if self.left < 0:
            self.wire.close()
            raise LinkLost("box")
        super().write(b)

    def read(self, n: int) -> bytes:
        piece = super().read(n)
        if not piece and not self.wire.alive():
            raise LinkLost("box")
        return piece


class CutWire(LocalWire):
    """A login that is cut in the middle of what is sent over it."""

    def __init__(self, lives: int) -> None:
        super().__init__()
        self.lives = lives

    def start(self, command: str) -> LocalStream:
        stream = CutStream("/bin/sh", command)
        stream.left, stream.wire = self.lives, self
        self._streams.append(stream)
        return stream


def test_after_each_cut_of_a_push_only_the_file_under_way_is_sent_again(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, large=os.urandom(40 * MIB), **{f"small{n}": str(n) for n in range(50)})
    lives = iter([1 * MIB, 9 * MIB, 0, 12 * MIB, 5 * MIB])
    back: list[None] = []
    link = ReconnectingLink(
        lambda: CutWire(next(lives, 10**12)),
        lost=lambda _seconds: None,
        back=lambda: back.append(None),
        warn=str,
    )
    counts: list[int] = []
    written = LocalStream.write
    monkeypatch.setattr(
        LocalStream, "write", lambda self, b: (counts.append(len(b)), written(self, b))[1]
    )
    pushed = push_folder(link, source, "tree/data", workdir=str(target.parents[1]))
    link.close()
    assert contents(target) == contents(source)
    assert (pushed.files, len(back)) == (51, 5)
    # Each cut costs what was in pipes, a block, and the questions about 51 files.
    assert sum(counts) < 40 * MIB + 5 * 2 * MIB
    assert not (target / ".boxstrap-parts").exists()


def test_a_file_that_changes_while_it_is_pushed_arrives_with_its_new_content(
    push: Push, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, large=bytes(2 * MIB), small="1")
    looked, is_as_listed = [0], sender._is_as_listed

    def changed(file: Any, listed: Any) -> bool:
        looked[0] += 1
        if looked[0] == 2:  # the large one was read, but doesn't have its name yet
            write(source, large=bytes(2 * MIB) + b"more")
        return is_as_listed(file, listed)

    monkeypatch.setattr(sender, "_is_as_listed", changed)
    assert push().files == 2
    assert contents(target) == contents(source)


def _then(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do this once what is sent is listed."""
    listed = sender.read_source
    monkeypatch.setattr(
        "bootstrap.transfer.push.read_source", lambda *named: (listed(*named), act())[0]
    )


def test_a_file_deleted_during_a_push_is_named_as_left_out(
    push: Push, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, a="1", gone="2")
    _then(monkeypatch, (source / "gone").unlink)
    pushed = push()
    assert (pushed.files, pushed.failed) == (1, [])
    assert pushed.left_out == ["gone: it is no longer here"]
    pushed.check("box")  # nothing that is here is missing there


@pytest.mark.parametrize("what", ["inner", "inner/key"])
@pytest.mark.parametrize("size", [1, 2 * MIB])
def test_push_sends_nothing_through_a_symlink_that_takes_the_place_of_a_file_meanwhile(
    push: Push, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, what: str, size: int
) -> None:
    home = source.parent / "home"
    for folder, text in ((source / "inner", b"x"), (home / "inner", b"secret")):
        folder.mkdir(parents=True)
        (folder / "key").write_bytes((text * size)[:size])
        os.utime(folder / "key", (5, 5))

    def swap() -> None:
        (source / what).rename(source.parent / "aside")
        (source / what).symlink_to(home / what)

    _then(monkeypatch, swap)
    assert push().failed
    assert not contents(target)


def test_push_names_files_that_change_while_they_are_read_or_are_gone(
    push: Push, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, a="1", b="2")
    as_listed = sender._is_as_listed
    monkeypatch.setattr(
        sender, "_is_as_listed", lambda file, row: row.path == "a" and as_listed(file, row)
    )
    pushed = push()
    assert (pushed.files, pushed.failed) == (1, ["b: it changes while it is read"])
    with pytest.raises(NotSafeError, match="1 file could not be sent"):
        pushed.check("box")
    # One that goes away between two tries is no longer here either.
    monkeypatch.setattr(
        sender, "_is_as_listed", lambda *_: (source / "b").unlink(missing_ok=True) or False
    )
    assert push().left_out == ["b: it is no longer here"]


def test_a_push_that_does_not_fit_on_the_box_is_refused_before_anything_is_sent(
    push: Push, source: Path, target: Path
) -> None:
    write(source, a="1")
    os.truncate(source / "a", 2**43)
    with pytest.raises(BoxLacksError, match=r"8.8 TB are to be sent, and .* are free"):
        push()
    assert names(target) == []


@pytest.mark.parametrize("place", ["../out", "/etc/boxstrap-test", "tree/../../out"])
def test_a_push_to_a_place_outside_the_working_folder_is_refused(
    wire: LocalWire, source: Path, tmp_path: Path, place: str
) -> None:
    write(source, a="1")
    with pytest.raises(UsageError, match="below the box's working folder"):
        push_folder(wire, source, place, workdir=str(tmp_path / "work"))
    assert names(tmp_path) == ["here"]


def test_a_second_push_waits_for_another_to_the_folder_and_ends_one_with_a_lost_link(
    wire: LocalWire, source: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The box program of a push whose link is lost may live on; the same push again ends it."""
    write(source, a="1")
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", b="1")
    reached, go_on = threading.Event(), threading.Event()
    frames = sender.FileSender.frames

    def slow(self: sender.FileSender, files: Any) -> Any:
        reached.set()
        go_on.wait(PATIENCE_S)
        yield from frames(self, files)

    monkeypatch.setattr(sender.FileSender, "frames", slow)
    failed: list[BaseException] = []

    def first() -> None:
        try:
            push_folder(wire, source, "tree/data", workdir=str(target.parents[1]))
        except BoxstrapError as error:
            failed.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert reached.wait(PATIENCE_S)
    monkeypatch.setattr(sender.FileSender, "frames", frames)
    with pytest.raises(BusyError, match="another push"):
        push_folder(wire, tmp_path / "other", "tree/data", workdir=str(target.parents[1]))
    assert push_folder(wire, source, "tree/data", workdir=str(target.parents[1])).files == 1
    go_on.set()
    thread.join()
    assert len(failed) == 1


def test_push_raises_an_error_at_the_first_message_of_an_endless_answer_of_the_box(
    push: Push, answer: Answer
) -> None:
    """Otherwise it would fill this machine's memory."""
    endless = iter([{"states": "a" * 1000, "begun": {"5": 1}}] * 100)
    answer(endless)
    with pytest.raises(BoxstrapError, match="did not report which of the files it has"):
        push()
    assert len([*endless]) == 99


def test_push_sends_more_empty_folders_than_fit_into_one_message(
    push: Push, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More names than one frame takes."""
    monkeypatch.setattr("bootstrap.transfer.push.AT_ONCE", 2)
    asked: list[int] = []
    add = Bundle.add

    def added(bundle: Bundle, header: Any, body: bytes = b"") -> None:
        asked.append(len(header.get("paths", ())))
        add(bundle, header, body)

    monkeypatch.setattr(Bundle, "add", added)
    for name in "abcde":
        (source / name).mkdir()
    push()
    assert names(target) == [*"abcde"]
    assert max(asked) == 2


def test_push_kills_no_process_named_in_its_lock_file_that_does_not_hold_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a volume shared by two boxes, the process id in the lock may be the other box's."""
    monkeypatch.setattr(take.time, "sleep", lambda _: None)
    ended: list[int] = []
    monkeypatch.setattr(take.os, "kill", lambda process, _: ended.append(process))
    file = tmp_path / "lock"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other, file.open("w+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for process, expected in ((other.pid, []), (os.getpid(), [os.getpid()] * 100)):
            lock.seek(0), lock.truncate(), lock.write(f"{process} me\n"), lock.flush()
            assert not take.hold(os.fsencode(file), "me")
            assert ended == expected


def test_push_finishes_with_a_second_process_on_the_box_if_the_first_hangs(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link stays alive all the time."""
    monkeypatch.setattr(transfer, "SILENT_S", 3)
    monkeypatch.setattr(transfer, "_TICK_S", 0.2)
    write(source, large=os.urandom(4 * MIB))
    lost: list[float] = []
    stood: list[int] = []

    def stand_still(progress: sender.PushProgress) -> None:
        lock = next((target.parents[1] / ".boxstrap/data").glob("*.lock"))
        if not stood and progress.bytes:
            stood.append(int(lock.read_text().split()[0]))
            os.kill(stood[0], signal.SIGSTOP)

    link = ReconnectingLink(LocalWire, lost=lost.append, back=lambda: None, warn=lambda _: None)
    where = str(target.parents[1])
    pushed = push_folder(link, source, "tree/data", workdir=where, progress=stand_still)
    assert pushed.files == 1
    assert contents(target) == contents(source)
    assert len(stood) == len(lost) == 1
    link.close()


def test_the_last_progress_that_push_reports_is_all_files_and_bytes(
    push: Push, source: Path
) -> None:
    write(source, **{f"part{i}": bytes(1000) for i in range(50)})
    told: list[tuple[int, int]] = []
    push(progress=lambda now: told.append((now.files, now.bytes)))
    assert told[-1] == (50, 50_000)


def test_push_kills_a_suspended_push_of_this_machine_that_holds_its_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with file.open("w+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(["sleep", "60"], stdin=lock) as holder:
            lock.write(f"{holder.pid} me\n"), lock.close()
            holder.send_signal(signal.SIGSTOP)
            os.waitpid(holder.pid, os.WUNTRACED)
            assert take.hold(os.fsencode(file), "me")
            assert holder.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("every", "is_left"), [(0.5, False), (600, True)])
def test_push_waits_as_long_as_the_box_reports_progress_and_else_gives_up_the_link(
    wire: LocalWire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, every: float, is_left: bool
) -> None:
    # In all it takes longer than it may be silent.
    monkeypatch.setattr(transfer, "SILENT_S", 0.5 if is_left else 2.0)
    monkeypatch.setattr(transfer, "_TICK_S", 0.1)
    frames = [pack_frame({"v": 1}) for _ in range(5)] + [pack_frame({"end": 1})]
    says = f"import os,time\nfor one in {frames}: os.write(1, one), time.sleep({every})"
    monkeypatch.setattr(transfer, "sent_program", lambda _: says)
    with Transfer(wire, str(tmp_path)) as one:
        if is_left:
            with pytest.raises(LinkLost, match=r"said nothing of the transfer for 0\.5 s"):
                list(one.run([]))
        else:
            assert list(one.run([])) == []


def test_the_box_sends_push_signs_of_life_during_a_slow_digest_or_disk_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a digest, a look, or a sync to a slow disk."""
    monkeypatch.setattr(take, "SYNC_S", 0.01)
    file = tmp_path / "a"
    file.write_bytes(bytes(3 * MIB))
    said: list[int] = []
    take.sha256_of(os.fsencode(file), lambda: said.append(1))
    assert len(said) == 3
    looker = CompleteFiles(str(tmp_path), ["."])
    looker.between = lambda: said.append(2)
    looker.note()
    assert said[3:] == [2]
    fsync, disk = os.fsync, os.open(file, os.O_RDWR)
    monkeypatch.setattr("os.fsync", lambda one: (wait_until(lambda: len(said) > 7), fsync(one)))
    take.sync(disk, lambda: said.append(3))
    monkeypatch.undo()
    os.close(disk)
    with pytest.raises(OSError, match="Bad file descriptor"):
        take.sync(disk, lambda: None)


def test_a_transfer_sends_a_sign_of_life_only_after_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came: list[bytes] = []
    monkeypatch.setattr("os.write", lambda _, piece: came.append(bytes(piece)) or len(piece))
    channel = serve.Channel()
    channel.beat()
    assert not came
    channel.flushed -= serve.BEAT + 1
    channel.beat(), channel.beat()
    assert came == [pack_frame({"v": 1})]


def test_small_files_sent_as_one_bundle_arrive_intact() -> None:
    bundle = Bundle()
    frames: list[Frame] = [({"i": 1}, b"ab"), ({}, b""), ({}, b"c" * 9), ({"a": "é"}, b"")]
    assert bundle.take() == b""
    for many in (frames[:1], frames):
        for header, body in many:
            bundle.add(header, body)
        assert read_frames(io.BytesIO(bundle.take()).read) == many
    assert bundle.has_room(bytes(BLOCK))
    bundle.add({}, b"1")
    assert not bundle.has_room(bytes(BLOCK))


class DyingFile(io.FileIO):
    """A file whose disk fails in the middle."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() or size == 1:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(size) or b""


def test_push_skips_only_the_files_that_a_failing_disk_here_can_not_read(
    push: Push, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, good="12", small="1", large=bytes(MIB))
    dying = lambda self, file: DyingFile(self.path(file))  # noqa: E731
    monkeypatch.setattr(sender.FileSender, "_open", dying)
    pushed = push()
    assert [one.partition(":")[0] for one in sorted(pushed.failed)] == ["large", "small"]
    assert names(target) == ["good"]
    with pytest.raises(BoxstrapError, match="2 files could not be sent"):
        pushed.check("box")


ALL_NEW: dict[str, object] = {"states": "a", "free": 9}


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([{"problem": "magic"}], "the box refuses it"),
        ([{**ALL_NEW, "begun": {"0": -5, "x": 1, "7": 1}}, {"problem": "full"}], "full"),
        ([{"states": "z"}], "did not report which"),
        ([{"states": ""}], "did not report which"),
    ],
)
def test_push_refuses_a_malformed_answer_of_the_box(
    push: Push, answer: Answer, answers: list[dict[str, object]], says: str
) -> None:
    answer(answers)
    with pytest.raises(BoxstrapError, match=says):
        push()


@pytest.mark.parametrize(
    ("answers", "failed", "kept"),
    [
        ([{"i": 0}, {"i": 0, "problem": "odd"}, {"i": 5}], [], []),  # the first word counts
        ([{"i": 0, "problem": "odd"}], ["a: refused"], []),
        ([{"i": 0, "problem": "foreign"}], [], ["a"]),
        ([], ["a: the box did not report on it"], []),
    ],
)
def test_push_ignores_answers_of_the_box_about_other_files(
    push: Push, answer: Answer, answers: list[dict[str, object]], failed: list[str], kept: list[str]
) -> None:
    answer([ALL_NEW], answers)
    pushed = push()
    assert (pushed.failed, pushed.kept) == (failed, kept)
    assert pushed.files == (0 if failed or kept else 1)


def test_a_pipe_missing_file_or_bad_pattern_to_push_is_a_usage_error(source: Path) -> None:
    os.mkfifo(source / "pipe")
    for named, patterns, says in (
        (source / "pipe", (), "only files and folders can be sent"),
        (source / "gone", (), "it can't be read: no such file"),
        (source, ("!",), "not a .gitignore pattern"),
    ):
        with pytest.raises(UsageError, match=says):
            sender.read_source(named, patterns)


NO_FRAMES: list[Any] = [1, [1], [[{}]], [[{}, 1]], [[{}, 3]], [[{}, "2"]], [[1, 2]], [[{}, None]]]
NO_FRAMES += [[[{}, 3], [{}, -1]]]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"", None),
        (b"\0\0\0", None),
        (LENGTHS.pack(4, 0) + b"{}", None),
        (LENGTHS.pack(2, 9) + b"{}body", None),
        (LENGTHS.pack(LONGEST_HEADER + 1, 0), "an impossible length"),
        (LENGTHS.pack(0, BLOCK + 1), "an impossible length"),
        (LENGTHS.pack(1, 0) + b"{", "no JSON"),
        (LENGTHS.pack(50_000, 0) + b"[" * 50_000, "no JSON"),
        (LENGTHS.pack(2, 0) + b"[]", "no object"),
        *((pack_frame({"frames": rows}, b"ab"), "frames") for rows in NO_FRAMES),
    ],
)
def test_a_cut_message_ends_a_transfer_and_a_malformed_one_raises_an_error(
    frame: bytes, says: str | None
) -> None:
    """The other side may be hostile: it gets no memory, and nothing of it is guessed."""
    if says is None:
        assert read_frames(io.BytesIO(frame).read) is None
    else:
        with pytest.raises(BadFrame, match=says):
            read_frames(io.BytesIO(frame).read)


def test_the_total_upload_to_several_boxes_is_announced_where_it_is_large(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, a="12345", b="no")
    sent = [(source, ("b",))]
    assert upload_of_several(sent, 3) == ""
    monkeypatch.setattr("bootstrap.transfer.push.COSTLY", 15)
    assert upload_of_several(sent, 3).startswith("each of 3 boxes is sent 5 B from here, 15 B in")
    assert upload_of_several(sent, 2) == ""


def test_a_disk_that_fills_on_the_box_ends_the_push_and_says_what_arrived(
    push: Push, source: Path, answer: Answer
) -> None:
    write(source, b="2")
    answer([{"states": "aa", "free": 9}], [{"i": 0}, {"i": 1, "problem": "full"}])
    with pytest.raises(BoxLacksError, match="its disk is full; 1 files have arrived"):
        push()


def test_a_folder_that_can_not_be_listed_is_left_out_of_a_push_and_named(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir
    failures = {"locked": PermissionError(errno.EACCES, "Permission denied"), "gone": None}
    for name in (*failures, "open"):
        (source / name).mkdir()
        write(source / name, a="1")

    def scan(folder: Any) -> Any:
        if (name := Path(folder).name) in failures:
            raise failures[name] or FileNotFoundError(errno.ENOENT, "No such file or directory")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    found = sender.read_source(source)
    assert [file.path for file in found.files] == ["open/a"]
    assert found.left_out == [f"gone: {sender.GONE}", "locked: permission denied"]


def test_setup_does_not_tell_the_box_that_its_data_arrived_if_a_file_failed(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The box waits for all of it, and would train on half."""
    failed: list[str] = []
    wire: Any = None
    item = LocalItem(4, source, (), SentItem("tree/data", "x"))
    data = DataSender(
        wire=wire,
        items=[item],
        workdir="/w",
        setup="1",
        progress=lambda _: None,
        failed=lambda one: failed.append(one.text()),
    )

    def sends(pushed: Pushed | BoxstrapError) -> bool:
        failed.clear()

        def push(*_: object, **__: object) -> Pushed:
            if isinstance(pushed, BoxstrapError):
                raise pushed
            return pushed

        monkeypatch.setattr("bootstrap.setup.push.push_folder", push)
        return data._send(item, {4: "/w/tree/data"})

    assert sends(Pushed())
    assert sends(Pushed(left_out=["pipe: no file"]))
    assert failed == ["data[4]: not sent: pipe: no file"]
    assert not sends(Pushed(kept=["a"]))
    assert "a: the box has another file there" in failed[0]
    assert not sends(Pushed(failed=["b: it arrived damaged"]))
    assert failed == ["data[4]: not sent: b: it arrived damaged"]
    assert not sends(BoxstrapError("no room."))
    assert failed == ["no room."]
    with pytest.raises(LinkLost):  # it is sent again once the link is back
        sends(LinkLost("box"))


def test_push_advises_profile_key_shared_for_a_folder_that_the_profile_does_not_share() -> None:
    for inside in ("data", "data/corpus"):
        assert "shared: [" not in links_line(inside, ["out", "data"])
    said = links_line("database", ["data"])
    assert said.endswith(
        "if git ignores all of it, to all of it with shared: [database/] in the profile"
    )
    assert links_line(".", ["data"]) == "other trees get links to these files"
    assert "get none of it" in links_line("out/a", [], ["out/"])
    assert "get none of it" in links_line(".git/hooks", [])
