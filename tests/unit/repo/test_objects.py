"""Objects sent to a real `git receive-pack --stateless-rpc`, as a box runs it."""

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import pytest

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.target import Once
from bootstrap.repo.git import run_git, start_git
from bootstrap.repo.local import LocalRepository, read_repository
from bootstrap.repo.objects import PIECE, ObjectStream, have_locally, missing_objects, parse_report
from bootstrap.repo.snapshot import take_snapshot
from bootstrap.setup.payload import nothing_is_missing
from tests.programs import captured
from tests.unit.repo.repositories import SampleRepository, listing

pytestmark = pytest.mark.slow

New = Callable[..., SampleRepository]


class ObjectStore:
    """The bare repository of a box."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        self.git("init", "-q", "--bare", *options, str(root))
        self.git("config", "receive.shallowUpdate", "true")
        self.git("config", "receive.unpackLimit", "1")
        self.git("config", "receive.autogc", "false")

    def git(self, *arguments: str) -> str:
        folder = self.root if self.root.exists() else self.root.parent
        command = ["git", "-C", str(folder), *arguments]
        return captured(command).stdout.strip()

    def receive(self, pieces: Iterable[bytes]) -> tuple[bytes, bytes]:
        """Send the pieces to receive-pack, and return its stdout and stderr."""
        child = subprocess.Popen(
            ["git", "receive-pack", "--stateless-rpc", str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # or closing the pipe would flush the rest to a git that was killed
        )
        with child:
            assert child.stdin
            assert child.stdout
            assert child.stderr
            try:
                for piece in pieces:
                    child.stdin.write(piece)
                child.stdin.close()
            except BrokenPipeError:
                pass
            except BaseException:
                child.kill()
                raise
            return child.stdout.read(), child.stderr.read()

    def refs(self) -> dict[str, str]:
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)


def send(here: LocalRepository, store: ObjectStore, **options: object) -> ObjectStream:
    stream = ObjectStream(here, **options)  # type: ignore[arg-type]
    parse_report(*store.receive(stream))
    return stream


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "store.git")


def test_the_whole_history_of_a_commit_is_sent_to_a_new_box(
    repo: SampleRepository, store: ObjectStore, untouched: Callable[[], None]
) -> None:
    repo.commit("Second", a="1")
    untouched()
    here = read_repository(repo.root)
    stream = send(here, store)
    assert store.refs() == {f"refs/boxstrap/{here.commit}": here.commit}
    store.git("fsck", "--strict", "--full")
    assert store.git("rev-list", "--count", here.commit) == "2"
    assert stream.objects_done == stream.objects_total == 7


def test_setup_sends_three_git_objects_under_1_kb_for_a_line_added_to_a_big_file(
    repo: SampleRepository, store: ObjectStore
) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    repo.commit("Big", big=text)
    first = read_repository(repo.root)
    all_bytes = send(first, store).bytes_sent
    repo.commit("Bigger", big=text + "one more\n")
    second = read_repository(repo.root)
    stream = send(second, store, have=have_locally(second, [first.commit]))
    assert stream.objects_total == 3
    assert stream.bytes_sent < 1000 < all_bytes / 10
    assert store.git("show", f"{second.commit}:big").endswith("one more")
    assert set(store.refs().values()) == {first.commit, second.commit}
    store.git("fsck", "--strict")


def test_a_repository_with_sha256_object_ids_is_sent_to_a_box(new: New, tmp_path: Path) -> None:
    repo = new("homework", "--object-format=sha256")
    repo.commit(a="1")
    store = ObjectStore(tmp_path / "store.git", "--object-format=sha256")
    first = read_repository(repo.root)
    send(first, store)
    repo.commit(a="2")
    second = read_repository(repo.root)
    send(second, store, have=[first.commit])
    assert set(store.refs().values()) == {first.commit, second.commit}


def test_a_shallow_clone_is_sent_without_its_missing_history(
    repo: SampleRepository, store: ObjectStore, tmp_path: Path
) -> None:
    for number in range(5):
        repo.commit(f"Commit {number}", a=str(number))
    repo.git("clone", "-q", "--depth=2", f"file://{repo.root}", str(tmp_path / "shallow"))
    shallow = SampleRepository(tmp_path / "shallow")
    here = read_repository(shallow.root)
    before = listing(shallow.root / ".git")
    send(here, store)
    assert listing(shallow.root / ".git") == before
    assert store.git("rev-list", "--count", here.commit) == "2"
    store.git("fsck", "--strict")
    shallow.commit("Mine", a="mine")
    send(read_repository(shallow.root), store, have=[here.commit])
    assert store.git("rev-list", "--count", "--all") == "3"


def test_a_shallow_clone_is_sent_to_a_box_that_has_the_whole_history(
    repo: SampleRepository, store: ObjectStore, tmp_path: Path
) -> None:
    repo.commit("Second", a="1")
    whole = read_repository(repo.root)
    send(whole, store)
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "shallow"))
    shallow = SampleRepository(tmp_path / "shallow")
    shallow.commit("Third", a="2")
    here = read_repository(shallow.root)
    send(here, store, have=have_locally(here, [whole.commit]))
    assert store.git("rev-list", "--count", here.commit) == "3"


def test_the_next_send_of_a_shallow_clone_contains_only_what_changed(
    repo: SampleRepository, store: ObjectStore, tmp_path: Path
) -> None:
    repo.commit("Many", **{f"f{number}": str(number) for number in range(50)})
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "shallow"))
    shallow = SampleRepository(tmp_path / "shallow")
    first = read_repository(shallow.root)
    send(first, store)
    repo.commit("Next", f1="changed")
    shallow.git("fetch", "-q", "--depth=1", "origin", "main")
    shallow.git("reset", "-q", "--hard", "FETCH_HEAD")
    second = read_repository(shallow.root)
    stream = send(second, store, have=have_locally(second, [first.commit]))
    assert stream.objects_total == 3


@pytest.fixture
def part(repo: SampleRepository, tmp_path: Path) -> SampleRepository:
    """A clone without the blobs that its checkout doesn't need, whose host is gone."""
    repo.commit("Second", train_py="print(2)\n")
    repo.git("config", "uploadpack.allowFilter", "true")
    made = tmp_path / "part"
    repo.git("clone", "-q", "--filter=blob:none", f"file://{repo.root}", str(made))
    repo.root.rename(tmp_path / "gone")
    return SampleRepository(made)


def test_the_box_gets_the_newest_commit_of_a_partial_clone_without_its_history(
    part: SampleRepository, store: ObjectStore
) -> None:
    here = read_repository(part.root)
    send(here, store)
    assert store.git("show", f"{here.commit}:train.py") == "print(2)"
    assert store.git("rev-list", "--count", here.commit) == "1"
    store.git("fsck", "--strict")
    part.commit("Third", train_py="print(3)\n")
    there = read_repository(part.root)
    send(there, store, have=have_locally(there, [here.commit]))
    assert store.git("show", f"{there.commit}:train.py") == "print(3)"


def test_a_snapshot_of_a_partial_clone_is_sent_with_its_commit(
    part: SampleRepository, store: ObjectStore
) -> None:
    part.write("train.py", "print(3)\n")
    here = read_repository(part.root)
    snapshot = take_snapshot(here)
    assert snapshot.id != here.commit
    stream = ObjectStream(here, snapshot=snapshot)
    parse_report(*store.receive(stream))
    assert store.git("show", f"{snapshot.id}:train.py") == "print(3)"
    assert store.git("rev-list", snapshot.id).split() == [snapshot.id, here.commit]
    store.git("fsck", "--strict")


def test_setup_names_objects_that_a_partial_clone_lacks_and_fetches_none(
    part: SampleRepository,
) -> None:
    here = read_repository(part.root)
    assert not missing_objects(here)
    old = read_repository(part.root, "HEAD~1")
    before = listing(part.root / ".git")
    assert missing_objects(old) == ["train.py"]
    with pytest.raises(UsageError, match=r"1 files of commit .*\n  train.py"):
        nothing_is_missing(old)
    assert listing(part.root / ".git") == before


@pytest.mark.parametrize("state", ["detached", "worktree", "alternates", "bare"])
def test_commits_of_a_worktree_detached_or_bare_repository_are_sent(
    repo: SampleRepository, store: ObjectStore, tmp_path: Path, state: str
) -> None:
    root = repo.root
    if state == "detached":
        repo.git("checkout", "-q", "--detach")
    elif state == "worktree":
        root = tmp_path / "tree"
        repo.git("worktree", "add", "-q", str(root))
    else:
        root = tmp_path / "clone"
        option = {"alternates": "--shared", "bare": "--bare"}[state]
        repo.git("clone", "-q", option, ".", str(root))
    here = read_repository(root)
    send(here, store)
    assert list(store.refs().values()) == [here.commit]


def test_a_commit_arrives_whole_whatever_pack_settings_the_users_git_has(
    repo: SampleRepository, store: ObjectStore
) -> None:
    for setting in ("pack.packSizeLimit=1m", "pack.threads=1", "pack.writeReverseIndex=true"):
        repo.git("config", *setting.split("="))
    repo.commit("Big", big=noise(3_000_000))
    here = read_repository(repo.root)
    send(here, store)
    store.git("fsck", "--strict")


# Interrupted, broken


def test_a_commit_whose_sending_is_cut_leaves_no_ref_and_can_be_sent_again(
    repo: SampleRepository, store: ObjectStore
) -> None:
    repo.commit("Big", big=noise(400_000))
    here = read_repository(repo.root)
    whole = b"".join(ObjectStream(here))
    cuts = [0, 1, 50, 150, len(whole) // 2, len(whole) - 21, len(whole) - 1]
    for cut in cuts:
        with pytest.raises(BoxstrapError):
            parse_report(*store.receive([whole[:cut]]))
        assert store.refs() == {}, cut
    send(here, store)
    assert list(store.refs().values()) == [here.commit]


def test_damaged_git_objects_are_refused_by_git(repo: SampleRepository, store: ObjectStore) -> None:
    repo.commit("Big", big=noise(100_000))
    here = read_repository(repo.root)
    whole = bytearray(b"".join(ObjectStream(here)))
    whole[len(whole) // 2] ^= 1
    with pytest.raises(BoxstrapError) as caught:
        parse_report(*store.receive([bytes(whole)]))
    assert store.refs() == {}
    assert "run again" in caught.value.hint


def children() -> set[psutil.Process]:
    """Direct child processes. A rig that this worker keeps may have some: compare with before."""
    return set(psutil.Process().children())


def test_a_send_of_git_objects_that_is_cut_ends_its_processes(repo: SampleRepository) -> None:
    repo.commit("Big", big=noise(4_000_000))
    here = read_repository(repo.root)
    before = children()
    for how in ("iterator", "stream"):
        stream = ObjectStream(here)
        pieces = iter(stream)
        next(pieces)
        next(pieces)
        assert children() - before, how
        if how == "iterator":
            pieces.close()  # type: ignore[attr-defined]
        else:
            stream.close()
        assert not children() - before, how


def test_ending_a_send_of_git_objects_does_not_wait_for_a_busy_git(
    repo: SampleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = read_repository(repo.root)
    (tmp_path / "git").write_text("#!/bin/sh\necho PACK\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    before = children()
    pieces = iter(ObjectStream(here))
    assert [next(pieces)[-4:], next(pieces)] == [b"0000", b"PACK\n"]
    begin = time.monotonic()
    pieces.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begin < 30
    assert not children() - before


def test_closing_a_send_of_git_objects_from_another_thread_raises_an_error_in_it(
    repo: SampleRepository,
) -> None:
    repo.commit("Big", big=noise(8_000_000))
    before = children()
    stream = ObjectStream(read_repository(repo.root))
    pieces = iter(stream)
    next(pieces)
    next(pieces)
    closing = threading.Thread(target=stream.close)
    closing.start()
    closing.join()
    with pytest.raises(BoxstrapError):
        list(pieces)
    assert not children() - before


# Size, progress


def test_a_big_file_is_sent_to_a_box_in_pieces_with_flat_memory(repo: SampleRepository) -> None:
    repo.git("config", "core.compression", "0")  # noise doesn't compress, and trying takes long
    repo.commit("Big", big=noise(50_000_000))
    here = read_repository(repo.root)
    seen: list[tuple[int, int, int]] = []
    stream = ObjectStream(here, progress=lambda *numbers: seen.append(numbers))
    process = psutil.Process()
    before = process.memory_info().rss
    peak, total = before, 0
    for piece in stream:
        assert 0 < len(piece) <= PIECE
        total += len(piece)
        peak = max(peak, process.memory_info().rss)
    assert total == stream.bytes_sent > 50_000_000
    assert peak - before < 4_000_000
    assert [numbers[2] for numbers in seen] == sorted(numbers[2] for numbers in seen)
    assert seen[-1] == (stream.objects_total, stream.objects_total, total)
    assert stream.objects_total == 7


def test_git_uses_little_memory_while_a_large_pack_is_sent(repo: SampleRepository) -> None:
    """Mapped files count, because tools that show a process's memory include them."""
    for number in range(4):
        (repo.root / f"{number}.bin").write_bytes(random.Random(number).randbytes(10_000_000))
    repo.git("config", "core.compression", "0")
    repo.git("add", "--all")
    repo.git("commit", "-q", "-m", "Large")
    repo.git("repack", "-a", "-d", "-q", "--window=0")
    here, before = read_repository(repo.root), children()
    stream = ObjectStream(here)
    peak = looked = 0
    for _ in stream:
        if stream.bytes_sent - looked > 3_000_000:
            looked = stream.bytes_sent
            peak = max([peak, *(git.memory_info().rss for git in children() - before)])
    assert stream.bytes_sent > 40_000_000
    assert 1_000_000 < peak < 25_000_000


def test_the_progress_of_sent_commits_counts_objects(new: New) -> None:
    repo = new()
    repo.commit("Many", **{f"f{number}": str(number) for number in range(500)})
    seen: list[tuple[int, int, int]] = []
    stream = ObjectStream(
        read_repository(repo.root), progress=lambda *numbers: seen.append(numbers)
    )
    list(stream)
    assert seen[-1][:2] == (502, 502)
    assert max(done for done, _, _ in seen if done < 502) > 0, "only the end was told"
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


# What both sides have


class CountedPackers:
    """git's packers, counted; `share` as the boxes of one command have it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packers: list[subprocess.Popen[bytes]] = []
        self.share = Once(("a", "b")).share
        monkeypatch.setattr("bootstrap.repo.objects.start_git", self._start)

    def _start(self, *words: object, **options: object) -> subprocess.Popen[bytes]:
        self.packers.append(start_git(*words, **options))  # type: ignore[arg-type]
        return self.packers[-1]

    def streams(self, here: LocalRepository, count: int) -> list[ObjectStream]:
        return [ObjectStream(here, share=self.share) for _ in range(count)]


def test_one_git_pack_is_made_for_all_boxes_that_have_the_same_commits(
    repo: SampleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit("Big", big=noise(3_000_000).hex())
    here, counted = read_repository(repo.root), CountedPackers(monkeypatch)
    stores = [ObjectStore(tmp_path / f"{number}.git") for number in range(4)]
    streams = counted.streams(here, 5)

    def receive(at: int) -> None:
        parse_report(*stores[at].receive(streams[at]))

    threads = [threading.Thread(target=receive, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    gone = iter(streams[4])  # a box that is lost while it is sent
    assert next(gone)
    assert next(gone)
    streams[4].close()
    with pytest.raises(BoxstrapError):
        list(gone)
    for thread in threads:
        thread.join(60)
    for store, stream in zip(stores, streams, strict=False):
        assert store.refs() == {f"refs/boxstrap/{here.commit}": here.commit}
        store.git("fsck", "--strict", "--full")
        assert stream.objects_done == stream.objects_total == 7
    assert len(counted.packers) == 1
    late = ObjectStore(tmp_path / "late.git")
    parse_report(*late.receive(counted.streams(here, 1)[0]))
    assert len(counted.packers) == 1
    # What has other commits already gets less.
    old = run_git(here.folders, "rev-parse", "HEAD^").decode().strip()
    less = ObjectStream(here, have=[old], share=counted.share)
    assert sum(map(len, less)) < streams[0].bytes_sent
    assert len(counted.packers) == 2


def test_a_damaged_repository_stops_the_sending_of_commits_to_every_box(
    repo: SampleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, counted = read_repository(repo.root), CountedPackers(monkeypatch)
    for file in (repo.root / ".git/objects").glob("??/*"):
        file.chmod(0o600)
        file.write_bytes(file.read_bytes()[:-3])
    for stream in counted.streams(here, 3):
        with pytest.raises(BoxstrapError):
            list(stream)
    assert len(counted.packers) == 1


def test_commits_named_by_a_box_that_are_unknown_here_are_ignored(repo: SampleRepository) -> None:
    first = repo.git("rev-parse", "HEAD")
    tree = repo.git("rev-parse", "HEAD^{tree}")
    second = repo.commit("Second", a="1")
    here = read_repository(repo.root)
    asked = ["f" * 40, second, tree, first, second, "--all", "HEAD", "a\nb", "", second[:9]]
    assert have_locally(here, asked) == [second, first]
    assert have_locally(here, []) == []


def test_a_box_that_names_a_git_option_as_a_commit_gets_an_error_and_no_objects(
    repo: SampleRepository,
) -> None:
    with pytest.raises(ValueError, match="full id"):
        ObjectStream(read_repository(repo.root), have=["--all"])


# Reports


def lines(*texts: str) -> bytes:
    return b"".join(b"%04x%s\n" % (len(text) + 5, text.encode()) for text in texts)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "gave no report"),
        (b"0000", "gave no report"),
        (b"bash: git: command not found\n", "gave no report"),
        (lines("unpack ok", "ok refs/x"), "gave no report"),
        (lines("unpack ok") + b"00ffok", "gave no report"),
        (b"0003", "gave no report"),
        (b"0004" * 3, "gave no report"),
        (lines("unpack ok") + b"0000", "no ref was named"),
        (lines("unpack index-pack abnormal exit", "ng refs/x no") + b"0000", "abnormal exit"),
        (lines("unpack ok", "ng refs/x failed to update ref") + b"0000", "failed to update ref"),
        (lines("unpack ok", "ok refs/x", "ng refs/y no") + b"0000", "refs/y no"),
        (lines("unpack ok", "something else") + b"0000", "something else"),
        (lines("unpack \x1b[2J" + "x" * 500) + b"0000", r"\\x1b\[2J"),
    ],
)
def test_a_refusal_of_git_on_the_box_is_an_error_with_gits_message(answer: bytes, why: str) -> None:
    with pytest.raises(BoxstrapError, match=why) as caught:
        parse_report(answer, b"fatal: no space left\x1b[0m\n\n")
    what, said = caught.value.what.splitlines()
    assert said == "  fatal: no space left\\x1b[0m"
    assert caught.value.hint == "Nothing changed; run again."  # nothing that the box said
    assert what.isprintable()
    assert len(what) < 300


def test_a_box_that_has_the_commit_already_took_it() -> None:
    there = b"error: cannot lock ref 'refs/x': reference already exists\n"
    parse_report(lines("unpack ok", "ng refs/x failed to update ref") + b"0000", there)


def test_sending_commits_to_a_box_that_has_thousands_does_not_hang(
    new: New, store: ObjectStore
) -> None:
    repo = new()
    stdin = b"".join(
        b"commit refs/heads/main\ncommitter a <a@b> %d +0000\ndata 1\nx\n" % number
        for number in range(3000)
    )
    repo.git("fast-import", "--quiet", stdin=stdin)
    here = read_repository(repo.root)
    ids = repo.git("rev-list", "HEAD~1").split()
    assert have_locally(here, ids) == ids
    send(read_repository(repo.root, "HEAD~1"), store)
    stream = send(here, store, have=ids)
    assert stream.objects_total == 1


@pytest.mark.parametrize("lost", ["HEAD:train.py", "HEAD^{tree}"])
def test_a_missing_object_in_the_history_suggests_git_fetch_refetch(
    repo: SampleRepository, lost: str
) -> None:
    name = repo.git("rev-parse", lost)
    here = read_repository(repo.root)
    (repo.root / ".git/objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(BoxstrapError, match=name) as caught:
        list(ObjectStream(here))
    assert "git fetch --refetch" in caught.value.hint
    assert "fsck" in caught.value.hint
