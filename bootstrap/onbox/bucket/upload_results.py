"""Put a run's results into a bucket as they complete, even while the user's machine sleeps.

`onbox bucket.upload_results RUN` is started with the run, and again if it was killed; it exits if
another one is already running. RUN/results_to has the folder in a bucket, and optionally an
endpoint and a region; the run gets a folder of its own in it. The key is the secret RESULTS_KEY, as
ID:SECRET or ID:SECRET:TOKEN. RUN/uploaded has the progress: a word (going, failing, left, whole),
files, bytes, the number of files left, why, and the destination. RUN/upload.json has what is in
the bucket.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..results.complete_files import STOOD_S, ResultFile, link_digest, state_of
from ..results.run_results import KEPT, LostFile, OwnResults, RunResults
from ..run_folder import RunFolder, lines_of, secrets_of, write_whole
from .s3_client import NETWORK_ERRORS, S3Client, S3Key, S3RefusedError

SECRET = "RESULTS_KEY"  # noqa: S105 - its name
MANIFEST = "boxstrap-manifest.json"
EVERY_S = 5.0
LONGEST_PAUSE_S = 300.0
GIVE_UP_S = 24 * 3600.0
"""Seconds after the run's end to retry uploads that fail; the next run on the box tries again."""
HELD_S = 600.0
"""Seconds after the run's end to wait for files that another process still writes."""
PART = 32 * 1024 * 1024
"""Bytes in memory at a time; a larger file is uploaded in parts of at least this size."""
MOST_PARTS = 10_000
_LISTED = ("size", "sha256", "link")
"""What the manifest says of a file; `link`: to which of the others it leads."""


class ChangedError(Exception):
    """A file changed while it was read, or its multipart upload is gone: it is uploaded again."""


class Upload:
    """One run's results and their bucket; files unchanged for `stood_s` count as complete."""

    def __init__(self, run: Path, stood_s: float = STOOD_S) -> None:
        self.run = run
        folder, *self._where = [*lines_of(run / "results_to"), "", "", ""][:3]
        self._folder = RunResults(str(run))
        self._looking = OwnResults(self._folder, stood_s)
        self._kept: set[str] = set()
        self._files: dict[str, dict[str, Any]] = {}
        self._begun: dict[str, dict[str, Any]] = {}
        self._saved = 0.0
        self.address: str
        try:
            kept = json.loads((run / "upload.json").read_text("utf-8"))
            self.address, self._files, self._begun = kept["to"], kept["files"], kept["begun"]
        except (OSError, ValueError):
            self.address = f"{folder}/{_own_name(run)}"
            self._save(now=True)
        parts = urlsplit(self.address)
        self._bucket, self._below = parts.netloc, parts.path.strip("/")
        self._said = ""
        self._reached: tuple[str, S3Client] | None = None

    def once(self, *, live: bool) -> int:
        """Upload what is complete now; return how many files are left.

        Raises S3RefusedError, NETWORK_ERRORS, and ValueError if there is no key.
        """
        look = self._looking.look(live=live)
        self._kept = {one.file.path for one in look.files if one.kind == "kept"}
        left = [one.file for one in look.files if not self._is_there(one.file)]
        gone = [one for one in look.lost if not self._is_there(_as_file(one))]
        ready = [file for file in left if not file.why]
        ready.sort(key=lambda file: file.is_pointer)
        for at, file in enumerate(ready):
            self.tell("going", len(left))
            if file.is_pointer and at and not ready[at - 1].is_pointer:
                self._put_manifest(live=live, complete=False)  # with what it points to
            with suppress(ChangedError, FileNotFoundError):
                self._put(file)
                left.remove(file)
        if ready or not (live or left):
            self._put_manifest(live=live, complete=not (left or gone))
        self._save(now=True)
        return len(left) + len(gone)

    def tell(self, word: str, left: int, why: str = "-") -> None:
        """Write the progress down."""
        size = sum(row["size"] for row in self._files.values())
        said = f"{word} {len(self._files)} {size} {left} {why} {self.address}\n"
        if said != self._said:
            write_whole(self.run / "uploaded", said)
            self._said = said

    def _is_there(self, file: ResultFile) -> bool:
        return bool(self._files.get(file.path, {}).get("state") == _state(file))

    def _put(self, file: ResultFile) -> None:
        if file.to:  # which a bucket can't hold: the manifest does
            row = {"state": _state(file), "size": file.state.size, "link": file.to}
            self._files[file.path] = {**row, "sha256": link_digest(file.to)}
            return self._save()
        with self._opened(file) as read:
            if file.state.size <= PART:
                content = read(PART)
                digest = hashlib.sha256(content).hexdigest()
                self._check(file)
                self._client().put(self._name(file.path), content)
            else:
                digest = self._put_large(file, read)
        row = {"state": _state(file), "size": file.state.size, "sha256": digest}
        self._files[file.path] = row
        return self._save()

    def _put_large(self, file: ResultFile, read: Callable[[int], bytes]) -> str:
        """Upload a file in parts; parts uploaded before an interruption are only read again."""
        client, name = self._client(), self._name(file.path)
        begun = self._begun.get(file.path)
        if begun and begun["state"] != _state(file):
            self._give_up(file.path)
            begun = None
        if not begun:
            begun = {"state": _state(file), "id": client.begin(name), "tags": []}
            self._begun[file.path] = begun
        size = max(PART, -(-file.state.size // MOST_PARTS))
        digest, number = hashlib.sha256(), 0
        try:
            while content := read(size):
                number += 1
                digest.update(content)
                if number > len(begun["tags"]):
                    begun["tags"].append(client.part(name, begun["id"], number, content))
                    self._save(now=True)
            self._check(file)
            client.complete(name, begun["id"], begun["tags"])
        except ChangedError:
            self._give_up(file.path)
            raise
        except S3RefusedError as refused:
            if refused.status != 404:
                raise
            # A rule of the bucket removed the upload, or it was completed before an interruption.
            del self._begun[file.path]
            raise ChangedError from None
        del self._begun[file.path]
        return digest.hexdigest()

    def _give_up(self, path: str) -> None:
        """Abort an upload, whose parts would cost money; the key may lack the permission."""
        begun = self._begun.pop(path)
        with suppress(S3RefusedError):
            self._client().abort(self._name(path), begun["id"])

    @contextmanager
    def _opened(self, file: ResultFile) -> Iterator[Callable[[int], bytes]]:
        handle = os.open(self._place(file), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as opened:
            self._compare(file, os.fstat(handle))
            yield opened.read

    def _check(self, file: ResultFile) -> None:
        self._compare(file, self._place(file).stat())

    def _place(self, file: ResultFile) -> Path:
        return (self.run / KEPT if file.path in self._kept else Path(self._folder.tree)) / file.path

    def _compare(self, file: ResultFile, found: os.stat_result) -> None:
        """Raise ChangedError for other content. A copy has size and time of its file alone."""
        of = slice(2, 4) if file.path in self._kept else slice(None)
        if state_of(found)[of] != file.state[of]:
            raise ChangedError

    def _name(self, path: str) -> str:
        return (self._below + "/" + path).lstrip("/")

    def _client(self) -> S3Client:
        """Return a client with the current secret, which may have been replaced."""
        text = secrets_of(self.run.parents[2]).get(SECRET, "")
        if not self._reached or self._reached[0] != text:
            self._reached = text, S3Client(self._bucket, S3Key.of(text), *self._where)
        return self._reached[1]

    def _put_manifest(self, *, live: bool, complete: bool) -> None:
        """Upload the list of files with their digests, after the files."""
        notes = {word: "".join(lines_of(self.run / word)[:1]) for word in ("commit", "command")}
        document = {
            "v": 1,
            "repository": self.run.parent.name,
            "run": self.run.name,
            **notes,
            "live": live,
            "ended": "" if live else "".join(lines_of(self.run / "ended")[:1]),
            "complete": complete,
            "results": self._folder.results,
            "files": [
                {"path": path, **{word: row[word] for word in _LISTED if word in row}}
                for path, row in sorted(self._files.items())
            ],
        }
        text = json.dumps(document, indent=1) + "\n"
        self._client().put(self._name(MANIFEST), text.encode())

    def _save(self, *, now: bool = False) -> None:
        """Save at most once a second: uploading a small file twice does no harm."""
        if now or time.monotonic() - self._saved > 1:
            kept = {"to": self.address, "files": self._files, "begun": self._begun}
            write_whole(self.run / "upload.json", json.dumps(kept))
            self._saved = time.monotonic()


def upload(run: Path) -> None:
    """Upload until the run is over and its results are in the bucket, or it must give up."""
    one, pause, over_since, left = Upload(run), EVERY_S, 0.0, 0
    one.tell("going", left)
    while True:
        live = RunFolder(run).is_running
        over_since = 0.0 if live else over_since or time.monotonic()
        why = "-"
        try:
            left, pause = one.once(live=live), EVERY_S
        except (S3RefusedError, *NETWORK_ERRORS, ValueError) as error:
            why, pause = _word_for(error), min(2 * pause, LONGEST_PAUSE_S)
        if not (live or left) and why == "-":
            return one.tell("whole", 0)
        waited = time.monotonic() - over_since
        if not live and waited > (HELD_S if why == "-" else GIVE_UP_S):
            return one.tell("left", left, why)
        one.tell("going" if why == "-" else "failing", left, why)
        # The box is about to be taken away.
        time.sleep(min(pause, 1.0) if (run / "interrupted").exists() else pause)


def _word_for(error: BaseException) -> str:
    """Return why it fails, in the server's own word or ours; never what was sent."""
    if isinstance(error, S3RefusedError):
        return str(error)
    return "unreachable" if isinstance(error, NETWORK_ERRORS) else "no-key"


def _own_name(run: Path) -> str:
    """Return a folder name that no other run on any box has."""
    with suppress(OSError, ValueError):
        began = time.gmtime(int((run / "started").read_text()))
        return f"{run.name}-{time.strftime('%Y%m%d-%H%M%S', began)}-{os.urandom(3).hex()}"
    return f"{run.name}-{os.urandom(6).hex()}"


def _as_file(lost: LostFile) -> ResultFile:
    return ResultFile(lost.path, lost.state, "", "")


def _state(file: ResultFile) -> list[int]:
    """Return a file's state without the device, whose number changes at a restart."""
    return list(file.state[1:])


def main() -> None:
    """Upload a run's results, unless another process does."""
    run = Path(sys.argv[1])
    with (run / "upload.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        os.nice(10)
        upload(run)
