"""What a hostile box may send for `sync --back`: refused, and the repository stays as it is."""

import hashlib
import itertools
import os
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bootstrap.errors import BoxstrapError
from bootstrap.repo import quarantine
from bootstrap.repo.local import read_repository
from bootstrap.repo.quarantine import Bounds, Quarantine
from tests.unit.repo.repositories import SampleRepository, listing

BOUNDS = Bounds(mib=2, seconds=20)


def name_of(kind: str, data: bytes) -> bytes:
    """The id of an object, as bytes."""
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).digest()


def pack(*objects: tuple[str, bytes]) -> bytes:
    """Pack these objects as they are, even if git would refuse them (gitformat-pack(5))."""
    body = b"PACK" + struct.pack(">II", 2, len(objects))
    for kind, data in objects:
        size, head = len(data), bytearray()
        byte, size = {"commit": 1, "tree": 2, "blob": 3}[kind] << 4 | size & 15, size >> 4
        while size:
            head.append(byte | 128)
            byte, size = size & 127, size >> 7
        body += bytes([*head, byte]) + zlib.compress(data)
    return body + hashlib.sha1(body).digest()


def tree(*entries: tuple[bytes, bytes, bytes]) -> bytes:
    """A tree of modes, names and ids."""
    return b"".join(mode + b" " + name + b"\0" + id_ for mode, name, id_ in entries)


def commit(tree_id: bytes, *parents: bytes) -> bytes:
    who = b"Me <me@example.org> 1700000000 +0000"
    lines = [b"tree " + tree_id.hex().encode(), *(b"parent " + p.hex().encode() for p in parents)]
    return b"\n".join([*lines, b"author " + who, b"committer " + who, b"", b"Edits", b""])


def sent(*entries: tuple[bytes, bytes], mode: bytes = b"100644") -> tuple[bytes, str]:
    """A pack with one commit of files by these names, and the commit's id."""
    blobs = [("blob", content) for _, content in entries]
    made = tree(*((mode, name, name_of("blob", content)) for name, content in entries))
    tip = commit(name_of("tree", made))
    return pack(*blobs, ("tree", made), ("commit", tip)), name_of("commit", tip).hex()


def take(repo: SampleRepository, data: bytes | Iterator[bytes], tip: str) -> None:
    """Take a pack into quarantine, check and keep it, as `sync --back` does."""
    pieces = iter([data]) if isinstance(data, bytes) else data
    with Quarantine(read_repository(repo.root), BOUNDS, sender="box") as quarantine:
        quarantine.take(pieces)
        quarantine.check([tip])
        quarantine.keep({"refs/boxstrap/box/edits": tip})


def test_sound_git_objects_from_a_box_are_stored_and_no_other_file_is_written(
    repo: SampleRepository,
) -> None:
    data, tip = sent((b"train.py", b"print(2)\n"))
    (repo.root / ".git/objects/pack").rmdir()  # as what copies files leaves empty folders out
    before, threads = listing(repo.root), threading.active_count()
    take(repo, data, tip)
    assert threading.active_count() == threads  # the program would not end before its time limit
    for file in (repo.root / ".git/objects/pack").iterdir():
        assert file.stat().st_mode & 0o777 == 0o444
    assert repo.git("rev-parse", "refs/boxstrap/box/edits") == tip
    assert repo.git("fsck", "--strict") == ""
    changed = {name for name, state in listing(repo.root).items() if before.get(name) != state}
    files = {Path(name).name for name in changed if Path(name).is_file()}
    packs = [name for name in files if name.endswith((".pack", ".idx"))]
    assert (len(packs), files - set(packs)) == (2, {"edits"})


def test_sync_back_brings_a_commit_made_on_a_box_into_a_shallow_clone(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.commit(a="2")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "shallow"))
    shallow = SampleRepository(tmp_path / "shallow")
    made = tree((b"100644", b"a", name_of("blob", BLOB)))
    tip = commit(name_of("tree", made), bytes.fromhex(repo.git("rev-parse", "HEAD")))
    data, name = pack(("blob", BLOB), ("tree", made), ("commit", tip)), name_of("commit", tip).hex()
    take(shallow, data, name)
    assert shallow.git("log", "--format=%H", "refs/boxstrap/box/edits").split()[0] == name


BLOB = b"print(2)\n"
EVIL = {
    "..": sent((b"..", BLOB)),
    ".": sent((b".", BLOB)),
    ".git": sent((b".git", BLOB)),
    ".GIT": sent((b".GIT", BLOB)),
    "a name that HFS reads as .git": sent((".g‌it".encode(), BLOB)),
    "a name that NTFS reads as .git": sent((b"git~1", BLOB)),
    "a path with a slash": sent((b"../../.bashrc", BLOB)),
    "an empty name": sent((b"", BLOB)),
    "the same name twice": sent((b"a", BLOB), (b"a", b"other\n")),
    "a mode that no git writes": sent((b"a", BLOB), mode=b"0100644"),
    ".gitmodules that is a link": sent((b".gitmodules", b"/etc/passwd"), mode=b"120000"),
    ".gitmodules with an option for an address": sent(
        (b".gitmodules", b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch owned\n')
    ),
}


def _swapped() -> tuple[bytes, str]:
    data, tip = sent((b"a", BLOB))
    return data[:40] + bytes([data[40] ^ 1]) + data[41:], tip


def _hanging() -> tuple[bytes, str]:
    made = tree((b"100644", b"a", name_of("blob", b"never sent")))
    tip = commit(name_of("tree", made))
    return pack(("tree", made), ("commit", tip)), name_of("commit", tip).hex()


def _without_parent() -> tuple[bytes, str]:
    made = tree((b"100644", b"a", name_of("blob", BLOB)))
    tip = commit(name_of("tree", made), name_of("commit", b"never sent"))
    objects = (("blob", BLOB), ("tree", made), ("commit", tip))
    return pack(*objects), name_of("commit", tip).hex()


def _no_commit() -> tuple[bytes, str]:
    return sent((b"a", BLOB))[0], name_of("blob", BLOB).hex()


WRONG = {
    **EVIL,
    "a byte that is another": _swapped(),
    "a file that was never sent": _hanging(),
    "a commit that was never sent": _without_parent(),
    "a file called a commit": _no_commit(),
    "a commit without an author": (
        pack(("commit", b"tree " + b"0" * 40 + b"\n\nx")),
        name_of("commit", b"tree " + b"0" * 40 + b"\n\nx").hex(),
    ),
    "half of a pack": (sent((b"a", BLOB))[0][:-30], sent((b"a", BLOB))[1]),
    "no pack at all": (b"", "a" * 40),
    "words": (b"Welcome to your box!\n" * 99, "a" * 40),
}


def test_sync_back_refuses_a_commit_of_a_box_whose_parent_is_incomplete(
    repo: SampleRepository,
) -> None:
    parent = commit(name_of("tree", b"never there"))
    arguments = ("hash-object", "-t", "commit", "-w", "--literally", "--stdin")
    parent_id = repo.git(*arguments, stdin=parent)
    made = tree((b"100644", b"a", name_of("blob", BLOB)))
    tip = commit(name_of("tree", made), bytes.fromhex(parent_id))
    data = pack(("blob", BLOB), ("tree", made), ("commit", tip))
    with pytest.raises(BoxstrapError, match="what the box sent is refused"):
        take(repo, data, name_of("commit", tip).hex())


def test_a_sha256_repository_takes_sha256_objects_from_a_box(
    new: Callable[..., SampleRepository], tmp_path: Path
) -> None:
    here, other = (new(name, "--object-format=sha256") for name in ("here", "other"))
    here.commit(b="2")
    tip = other.commit(a="1")
    objects = other.git("rev-list", "--objects", "--no-object-names", tip)
    packed = tmp_path / "sent"
    other.git("pack-objects", f"{packed}", stdin=objects.encode())
    take(here, next(tmp_path.glob("sent-*.pack")).read_bytes(), tip)
    assert here.git("rev-parse", "refs/boxstrap/box/edits") == tip


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_each_kind_of_malformed_pack_from_a_box_is_refused(
    repo: SampleRepository, untouched: Callable[[], None], home: Path, what: str
) -> None:
    untouched()
    with pytest.raises(BoxstrapError, match="what the box sent is refused") as caught:
        take(repo, *WRONG[what])
    assert "None of it was kept" in caught.value.hint
    assert "\x1b" not in caught.value.text()
    assert not list((home.parent / "home").rglob("incoming/*"))


def test_an_endless_or_huge_pack_from_a_box_is_cut_off(
    repo: SampleRepository, untouched: Callable[[], None]
) -> None:
    untouched()
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        # An object with a stated size of a GiB, and data without an end (RFC 1951, stored).
        yield b"PACK" + struct.pack(">II", 2, 1) + b"\xb0\x80\x80\x80\x20\x78\x01"
        for _ in itertools.count():
            taken += 1
            yield b"\x00\xff\xff\x00\x00" + bytes(65535)

    with pytest.raises(BoxstrapError, match="more than 2 MiB"):
        take(repo, endless(), "a" * 40)
    assert taken <= 34
    with Quarantine(read_repository(repo.root), BOUNDS, sender="box") as quarantine:
        whole = [bytes(2 << 20)]
        assert list(quarantine._bounded(whole)) == whole
        with pytest.raises(BoxstrapError, match="more than 2 MiB"):
            list(quarantine._bounded([*whole, b"x"]))


@pytest.mark.slow
def test_a_pack_bomb_from_a_box_is_ended_at_the_memory_limit(
    repo: SampleRepository, untouched: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deltas that double: a small pack that needs more memory than is allowed."""
    untouched()
    monkeypatch.setattr("bootstrap.repo.quarantine._MEMORY_KIB", 200_000)
    with pytest.raises(BoxstrapError, match="refused"):
        take(repo, doubling(2**20, 8), "a" * 40)


def doubling(begin: int, times: int) -> bytes:
    """Return a pack of one blob and deltas, each of which copies the one before it twice."""
    data = b"x" * begin
    body = b"PACK" + struct.pack(">II", 2, times + 1)
    places = [len(body)]
    body += _head(3, begin) + zlib.compress(data)
    for step in range(times):
        size = begin << step
        copies = b""
        for at in [*range(0, size, 0xFFFF)] * 2:
            copies += b"\xbf" + struct.pack("<I", at) + struct.pack("<H", min(0xFFFF, size - at))
        delta = _varint(size) + _varint(size * 2) + copies
        here = len(body)
        body += _head(6, len(delta)) + _back(here - places[-1]) + zlib.compress(delta)
        places.append(here)
    return body + hashlib.sha1(body).digest()


def _head(kind: int, size: int) -> bytes:
    head, byte, size = bytearray(), kind << 4 | size & 15, size >> 4
    while size:
        head.append(byte | 128)
        byte, size = size & 127, size >> 7
    return bytes([*head, byte])


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _back(offset: int) -> bytes:
    found = [offset & 127]
    while offset := offset >> 7:
        offset -= 1
        found.append(offset & 127 | 128)
    return bytes(reversed(found))


@pytest.mark.slow
def test_a_pack_from_a_box_that_comes_too_slowly_is_given_up(
    repo: SampleRepository, untouched: Callable[[], None]
) -> None:
    import time

    untouched()

    def slow() -> Iterator[bytes]:
        for _ in range(100):
            yield b""
            time.sleep(0.05)

    with (
        pytest.raises(BoxstrapError, match="longer than 1 s"),
        Quarantine(
            read_repository(repo.root), Bounds(mib=2, seconds=1), sender="box"
        ) as quarantine,
    ):
        quarantine.take(slow())


def test_quarantine_folders_of_killed_syncs_are_removed_after_an_hour(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(quarantine, "cache_dir", lambda: tmp_path)
    above = quarantine._new_folder().parent
    for name, age in (("old", 3700), ("young", 3500)):
        (above / name).mkdir()
        os.utime(above / name, (time.time() - age,) * 2)
    (above / "no folder").touch()
    os.utime(above / "no folder", (0, 0))
    new = quarantine._new_folder()
    assert not (above / "old").exists()
    assert (above / "young").exists()
    assert new.parent == above


def test_a_quarantine_folder_removed_by_another_sync_is_no_error(repo: SampleRepository) -> None:
    with Quarantine(read_repository(repo.root), BOUNDS, sender="box") as cleared:
        shutil.rmtree(cleared._folder)


def test_a_failed_copy_of_a_pack_from_a_box_leaves_no_file_behind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        quarantine._add(tmp_path / "gone.pack", tmp_path / "pack")
    assert not list((tmp_path / "pack").iterdir())


@pytest.mark.parametrize(
    ("said", "last"),
    [(b"", "git says no more"), (b"a\nfatal: b\n\n", "b"), (b"x" * 400, "x" * 300)],
)
def test_an_error_of_git_shows_the_last_line_it_printed(said: bytes, last: str) -> None:
    assert quarantine._last_line(said) == last
