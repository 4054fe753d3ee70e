"""What this machine sends while a setup runs, when the box asks for it: the snapshot, private
dependencies, and uv where the box's package index has none.
"""

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bootstrap.errors import BoxstrapError
from bootstrap.link.query import ask
from bootstrap.link.wire import PIECE, LinkLost, Stream
from bootstrap.onbox.python.uv_release import VERSION, WHEELS
from bootstrap.paths import ask_program, cache_dir, temporary_dir, write_private
from bootstrap.profile.survey.declared import GitDependency
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.mirror import key_of, mirrored
from bootstrap.repo.names import decoded, shown
from bootstrap.repo.objects import (
    ObjectStream,
    ProgressCallback,
    SharePack,
    find_wanted,
    have_locally,
    parse_report,
    write_bundle,
)
from bootstrap.repo.snapshot import Snapshot, checked, remember_snapshot
from bootstrap.sanitize import sanitize
from bootstrap.transfer.sender import ARRIVED, READY, Sender

_MARK = b"receive-pack\n"
_PATIENCE = 6000  # tenths of a second until git and a Python are there
_MOST_ANSWER = 1024 * 1024
"""Limit for git's report and the noise before it, in bytes: one line for our single ref."""


@dataclass(eq=False, repr=False, kw_only=True)
class CommitSender(Sender):
    what, noun = "commit", "the commit"
    here: LocalRepository
    snapshot: Snapshot
    have: Sequence[str]
    repo_key: str
    repo_root: str
    progress: ProgressCallback
    share: SharePack | None = None

    def send(self) -> None:
        here, snapshot = self.here, checked(self.here, self.snapshot)
        about = {"key": self.repo_key, "root": self.repo_root, "format": here.object_format}
        stream = self.ask(
            ask("work.store", about, workdir=self.workdir, tool="git", waits=_PATIENCE)
        )
        objects = ObjectStream(
            here,
            have=have_locally(here, self.have, snapshot),
            progress=self.progress,
            snapshot=snapshot,
            share=self.share,
        )
        try:
            for piece in objects:
                stream.write(piece)
        except BrokenPipeError:
            pass  # git's report says why
        finally:
            objects.close()
        stream.close_write()
        answer = _answer(stream)
        if not self.wire.alive():  # closed from here, or lost
            raise LinkLost(self.wire.label)
        parse_report(answer.rpartition(_MARK)[2], stream.read_err())
        self.arrived = True
        remember_snapshot(here, snapshot)


def _answer(stream: Stream) -> bytes:
    """Read the whole answer; raise if it is longer than a report can be."""
    answer = bytearray()
    while piece := stream.read(64 * 1024):
        answer += piece
        if len(answer) > _MOST_ANSWER:
            stream.close()
            raise BoxstrapError(
                f"the box did not take the commit: its git reports more than "
                f"{_MOST_ANSWER // 2**20} MiB.",
                hint="Nothing changed; log in with ssh and look what `git` is on that box.",
            )
    return bytes(answer)


_NOTHING = "0 sha1 -"
_REF = re.compile(rb"^ref\t([0-9a-f]{40,64})\t(refs/[^\0\n]+)$", re.MULTILINE)


def refs_there(answer: bytes) -> dict[str, str]:
    """Parse the box's list of a store's refs: object id by ref name."""
    return {decoded(name): commit.decode() for commit, name in _REF.findall(answer)}


@dataclass(eq=False, repr=False, kw_only=True)
class DependencySender(Sender):
    """Sends private dependencies, as far as this machine can read them.

    One that it can't read either is left out; the box tries to fetch it itself.
    """

    what, noun = "dependencies", "a dependency"
    dependencies: Sequence[GitDependency]
    progress: Callable[[int, int], None]
    say: Callable[[str], None]

    def send(self) -> None:
        of_address = [
            (address, [each.ref for each in group])
            for address, group in groupby(self.dependencies, lambda each: each.address)
        ]
        for number, (address, refs) in enumerate(of_address, 1):
            self._send(address, refs, is_last=number == len(of_address))

    def _send(self, address: str, refs: Sequence[str], *, is_last: bool) -> None:
        about = {"store": key_of(address), "setup_id": self.setup, "is_last": is_last}
        stream = self.ask(ask("work.dependency", about, workdir=self.workdir))
        there = self.read(stream, READY)
        try:
            with mirrored(address, refs) as mirror:
                self._send_from(mirror, address, refs, stream, there)
        except LinkLost:
            raise
        except (BoxstrapError, OSError) as error:
            with suppress(BrokenPipeError):
                stream.write(f"{_NOTHING}\n".encode())
            what = error.what if isinstance(error, BoxstrapError) else error.strerror or "no reason"
            why = what.removeprefix("git.url: ")
            hint = f"See that git can read it here: git ls-remote {shlex.quote(shown(address))}"
            self.failed(BoxstrapError(f"{shown(address)} can't be sent: {why}", hint=hint))
        stream.close_write()
        self.read(stream, ARRIVED)
        self.arrived = is_last

    def _send_from(
        self, mirror: Path, address: str, refs: Sequence[str], stream: Stream, there: bytes
    ) -> None:
        wanted = find_wanted(mirror, refs)
        for ref, commit in wanted.resolved.items():
            named = f", {shown(ref) or 'its default branch'}" if ref != commit else ""
            self.say(f"{shown(address)}{named} at {commit[:12]} is sent from this machine")
        if wanted.with_submodules:
            self.say(f"{shown(address)} has submodules, which are not sent: the box asks for them")
        has = refs_there(there)
        words = f"{wanted.object_format} {wanted.head}\n"
        if wanted.refs.items() <= has.items():
            with suppress(BrokenPipeError):
                stream.write(f"0 {words}".encode())
            return
        with tempfile.TemporaryDirectory(dir=mirror.parent, prefix=".") as folder:
            file = Path(folder, "bundle")
            write_bundle(mirror, wanted, list(has.values()), file)
            size, sent = file.stat().st_size, 0
            with file.open("rb") as bundle, suppress(BrokenPipeError):  # its error output says why
                stream.write(f"{size} {words}".encode())
                while piece := bundle.read(PIECE):
                    stream.write(piece)
                    sent += len(piece)
                    self.progress(sent, size)


_FETCH_S = 300  # how long pip may take, in seconds
_LONGEST = 300


def fetch_wheel(machine: str) -> bytes:
    """Return uv's wheel for `machine` (as `uname` names it) from the cache, or by pip.

    Its SHA-256 must be the one in `WHEELS`. Raises BoxstrapError.
    """
    if machine not in WHEELS:
        raise BoxstrapError(f"no uv is known for {machine[:_LONGEST]}.")
    name, sha256 = WHEELS[machine]
    kept = cache_dir() / "uv" / name
    with suppress(OSError):
        wheel = kept.read_bytes()
        if hashlib.sha256(wheel).hexdigest() == sha256:
            return wheel
    wheel = _download(name, sha256)
    with suppress(OSError):
        write_private(kept, wheel)
        for other in kept.parent.iterdir():
            if other.name not in {file for file, _ in WHEELS.values()}:
                other.unlink()
    return wheel


def _download(name: str, sha256: str) -> bytes:
    """Download it with pip and this user's settings; pip checks the hash."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    platforms = name.removesuffix(".whl").rpartition("-")[2].split(".")
    with tempfile.TemporaryDirectory(dir=temporary_dir()) as folder:
        wanted = Path(folder, "uv.txt")
        wanted.write_text(f"uv=={VERSION} --hash=sha256:{sha256}\n", "utf-8")
        # -I: import nothing from the current folder, which may be someone else's repository.
        command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        command += [f"--platform={platform}" for platform in platforms]
        command += ["--index-url", index] if index else []
        try:
            asked = [*command, "--dest", folder, "-r", str(wanted)]
            done = ask_program(asked, _FETCH_S, cwd=Path(folder))
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_here(str(error)) from error
        wheel = Path(folder, name)
        if done.returncode or not wheel.is_file():
            raise _not_here(sanitize(done.stderr))
        return wheel.read_bytes()


def _not_here(said: str) -> BoxstrapError:
    last = said.strip().rpartition("\n")[2].removeprefix("ERROR: ")
    return BoxstrapError(
        f"this machine's package index does not give uv {VERSION} either: {last[:_LONGEST]}"
    )


@dataclass(eq=False, repr=False, kw_only=True)
class UvSender(Sender):
    """Sends uv, and calls `sent` at the end; nothing, if this machine can't get it either."""

    what = noun = "uv"
    machine: str
    progress: Callable[[int, int], None]
    sent: Callable[[], None]

    def send(self) -> None:
        wheel = b""
        try:
            wheel = fetch_wheel(self.machine)
        except BoxstrapError as error:
            self.failed(error)
        self.pass_on(self.take("uv.whl", len(wheel)), self._pieces(wheel))
        if wheel:
            self.sent()

    def _pieces(self, wheel: bytes) -> Iterator[bytes]:
        for start in range(0, len(wheel), PIECE):
            yield wheel[start : start + PIECE]
            self.progress(min(start + PIECE, len(wheel)), len(wheel))
