"""The results with which a run goes on on another box: the last whole ones, and how they travel.

They come from the bucket of `train.results_to`, or from where pulls put them on this machine. A
file is whole if it is as it was pulled; one of a checkpoint of several files, if all of these came.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
import shlex
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bootstrap.boxes.at_home import PullPlace, RunAtHome
from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import NotSafeError, UnreachableError, UsageError
from bootstrap.link.record import KnownBox
from bootstrap.onbox import AGENT
from bootstrap.onbox.results.complete_files import (
    SHORT,
    checkpoints,
    pointers,
    unproven,
    with_folders,
)
from bootstrap.repo.names import shown
from bootstrap.sizes import file_count, first_of, size
from bootstrap.transfer.destination import MANIFEST, LocalFolder, why_refused
from bootstrap.transfer.manifest import (
    MOST_MANIFEST,
    NOTHING_LISTED,
    ListedFile,
    ListedResults,
    read_manifest,
    recorded_digests,
)
from bootstrap.transfer.puller import WAITS
from bootstrap.transfer.push import push_folder
from bootstrap.transfer.source_files import read_source
from bootstrap.ui.screen import Screen

if TYPE_CHECKING:
    from bootstrap.profile.schema import Train
    from bootstrap.transfer.buckets import Bucket

_BUCKET_MANIFEST = "boxstrap-manifest.json"
_ANSWER_S = 60.0
_SLOWEST = 20_000  # bytes a second, below which a bucket counts as one that doesn't answer
_PIECE = 1 << 20


@dataclass(frozen=True)
class LastResults:
    folder: Path  # where they are here
    paths: Sequence[str]  # files and folders in it
    came_from: str
    half: Collection[str] = ()  # files below `paths` that are not whole, or no results

    def send(self, box: BoxLogin) -> None:
        """Send what is whole, and nothing else that came from a box: it may be code. Raises
        NotSafeError if the box has other files there, and as `push_folder`."""
        for dry in (True, False):  # nothing is there yet when something is in the way
            for path in self.paths:
                self._send(path, box, dry=dry)

    def _send(self, path: str, box: BoxLogin, *, dry: bool) -> None:
        source, target = self.folder / path, posixpath.join(box.state.repo_dir, path)
        left_out = [f"{path}, a link out of its own path"] if source.is_symlink() else []
        if source.exists() and not left_out and path not in self.half:
            target = target if source.is_dir() else posixpath.dirname(target)
            inside = (one[len(path) :] for one in self.half if one.startswith(f"{path}/"))
            exclude = [_GLOB.sub(r"\\\g<0>", one) for one in inside]
            pushed = push_folder(
                box.link, source, target, workdir=box.workdir, exclude=exclude, dry=dry
            )
            if pushed.kept:
                raise NotSafeError(
                    f"another run has files where its results go, as {pushed.kept[0]}.",
                    where=f"{box.label}: {target}",
                    hint="Name a box that has no results of this repository, or bring those home "
                    "(boxstrap pull --all) and remove them there: "
                    f"boxstrap exec --host {box.name} -- rm -r {shlex.quote(path)}",
                )
            pushed.check(box.label)
            left_out = pushed.left_out
        for name in () if dry else left_out[:_MOST_NAMED]:
            box.reporter.warn(f"not sent: {shown(name)}")


_GLOB = re.compile(r"[\\*?\[\]!# ]")


def find_last_results(
    before: RunAtHome, known: KnownBox | None, train: Train, scratch: Path, screen: Screen
) -> LastResults:
    """Return the results that are whole, from the bucket if they are there: it has them within
    seconds, so they are at least as new. Raises NotSafeError if there are none."""
    paths = [one.strip("/") for one in train.results]
    if address := bucket_of(before, train):
        with contextlib.suppress(NotSafeError):
            return LastResults(scratch, paths, _fetch(address, train.results, scratch, screen))
    place = Path(before.result_place) if before.result_place else None
    if place and before.results in ("home", "partly") and (place / MANIFEST).is_file():
        found = [one for path in paths for one in _files_below(place, path)]
        here = PullPlace.again(place)
        # A file may be newer than the manifest: what pulls put there counts.
        recorded = recorded_digests(here.record(known.folder, before.run)) if known else {}
        whole = _whole_here(before, here, found, recorded)
        half = {*found} - whole
        _say_what_is_half(whole, half, screen)
        if before.results == "partly" and whole and not half:
            came = file_count(len(whole))
            screen.warn(
                f"not all of its results had come home: it goes on with the {came} that did"
            )
        if whole:
            return LastResults(place, paths, str(place), half)
    raise NotSafeError(
        f"no whole results of {before.run.name} are at home or in a bucket.",
        where=before.box,
        hint="From its beginning: boxstrap up. Next time: boxstrap pull --watch, or "
        "train.results_to",
    )


_MOST_NAMED = 5


def _say_what_is_half(whole: Collection[str], half: Collection[str], screen: Screen) -> None:
    """Warn of what is not sent, and of a checkpoint of which nobody can say whether it is whole."""
    if half:
        names = ", ".join(map(shown, first_of(sorted(half), _MOST_NAMED)))
        screen.warn(f"not sent, since not all of it came home whole: {names}")
    for one in sorted(unproven({*whole, *half})):
        if any(path.startswith(one) for path in whole):
            screen.warn(
                f"{shown(one)} is sent, but nothing shows that it is whole: no other checkpoint of "
                "that name came, to compare its files with"
            )


def _files_below(place: Path, path: str) -> Iterable[str]:
    """Yield the files at or below a path of a folder here, relative to that."""
    source = place / path
    if source.is_symlink() or not source.exists():
        return ()
    if not source.is_dir():
        return (path,)
    return (f"{path}/{file.path}" for file in read_source(source).files)


def _whole_here(
    before: RunAtHome,
    place: PullPlace,
    found: Sequence[str],
    recorded: Mapping[str, Collection[str]],
) -> set[str]:
    """Return those of the files found that are whole: as they were pulled, and not part of a
    checkpoint of several files that did not come home as one. None is reached by a link, which a
    repository may have brought."""
    try:
        with LocalFolder(place.base, place.inside) as folder:
            with folder.open(MANIFEST) as opened:
                listed = read_manifest(opened.read(MOST_MANIFEST + 1))
            manifest = folder.digest(MANIFEST)
            here = {path: folder.digest(path) for path in found}
            links = {path: to for path in found if (to := folder.leads_to(path))}
    except (OSError, ValueError):
        return set()
    # Another box's run of that name may have been put there first. Without a record, names count.
    own = (before.box, before.run.repo_key, before.run.name)
    if manifest not in recorded.get(MANIFEST, ()) if recorded else listed.origin != own:
        listed = NOTHING_LISTED
    rows = {path: one.sha256 for path, one in listed.files.items() if one.here}
    missing = listed.missing
    # Of what merely waited, an earlier state may be here as a whole.
    waited = {path for path, why in missing.items() if path in rows and why in WAITS.values()}
    # What died in the middle of a checkpoint is over, and no part of that comes any more.
    together = checkpoints({*rows, *missing, *found}, live=True)
    half = {
        checkpoint
        for path, (checkpoint, has_all) in together.items()
        if not (has_all and here.get(path))
        or path in missing.keys() - waited
        or here[path] != rows.get(path)
    }
    whole = {
        path
        for path, digest in here.items()
        if (
            together[path][0] not in half
            if path in together
            else digest and digest in {rows.get(path), *recorded.get(path, ())}
        )
    }
    return whole - _pointing_elsewhere(place, whole, links)


def _pointing_elsewhere(
    place: PullPlace, whole: Collection[str], links: Mapping[str, str]
) -> set[str]:
    """Return the files that name, and the links that lead to, what is not among what is whole."""
    together = checkpoints(whole, live=False)
    plain = [path for path in whole if path not in links]
    there = with_folders(plain)
    named = pointers(plain, whole, together, lambda path: _beginning(place, path))
    named |= {path: f"{to}/" for path, to in links.items() if path in whole}
    return {path for path, one in named.items() if one[:-1] not in there}


def _beginning(place: PullPlace, path: str) -> str:
    """Return the text of a file that may name a checkpoint; "" if it is too long for that."""
    with contextlib.suppress(OSError), place.open(path) as opened:
        content = bytes(opened.read(SHORT + 1))
        return content.decode("utf-8", "replace") if len(content) <= SHORT else ""
    return ""


def bucket_of(before: RunAtHome, train: Train) -> str:
    """Return the folder of the profile's bucket with its results; "" if there is none. A box that
    names another place is not believed: it would be read with the user's own key."""
    from bootstrap.transfer.buckets import Bucket

    if not train.results_to:
        return ""
    # The name that `upload_results.py` gives it: what else a box says may be another run's.
    began = time.strftime("%Y%m%d-%H%M%S", time.gmtime(before.run.started))
    wanted = f"{before.run.name}-{began}-"
    said = before.run.uploaded.address if before.run.uploaded else ""
    folder, name = posixpath.split(said)
    if folder == train.results_to.rstrip("/") and name.startswith(wanted):
        return said
    try:
        found = Bucket(f"{train.results_to.rstrip('/')}/").objects()
    except UsageError:
        return ""
    names = sorted({one.name.partition("/")[0] for one in found})
    mine = [name for name in names if name.startswith(wanted)]
    return f"{train.results_to.rstrip('/')}/{mine[-1]}" if mine else ""


def _fetch(address: str, results: Sequence[str], scratch: Path, screen: Screen) -> str:
    """Fetch what the manifest in the bucket lists, and return where it was.

    An upload replaces a file as a whole. One that is newer than the manifest was the last before
    the box was gone, and is taken with a warning, unless it is part of a checkpoint of several
    files, which is left out. Raises NotSafeError, UnreachableError.
    """
    newer = set[str]()
    listed, bucket = bucket_manifest(address)
    objects = {one.name: one for one in bucket.objects()}
    wanted = [one for path, one in listed.files.items() if _is_result(path, results)]
    rows = [row for row in wanted if row.path in objects and not row.to]
    links = {row.path: row.to for row in wanted if row.to and not why_refused(row.to)}
    absent = {row.path for row in wanted} - objects.keys() - links.keys()
    scratch.mkdir(parents=True, exist_ok=True)
    needed, free = sum(objects[row.path].size for row in rows), shutil.disk_usage(scratch).free
    if needed > free:
        raise NotSafeError(
            f"there is no room here for the results: {size(needed)}, and {size(free)} are free.",
            where=str(scratch),
            hint="Make room there, and run the same command again.",
        )
    addresses = bucket.sign([objects[row.path] for row in rows])
    for row, signed in zip(rows, addresses, strict=True):
        place = scratch / row.path
        place.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with place.open("wb") as file:
            for piece in _pieces(signed, objects[row.path].size):
                file.write(piece)
                digest.update(piece)
        if digest.hexdigest() != row.sha256:
            screen.warn(f"{row.path} was replaced in the bucket after its manifest was written")
            newer.add(row.path)
    for path, to in links.items():  # after all files: nothing is written through one
        (scratch / path).parent.mkdir(parents=True, exist_ok=True)
        (scratch / path).symlink_to(posixpath.relpath(to, posixpath.dirname(path) or "."))
    rows += [row for row in wanted if row.path in links]
    rows = _without_half(rows, newer, absent, scratch, screen)
    bytes_ = sum(objects[row.path].size for row in rows if not row.to)
    return f"{address} ({file_count(len(rows))}, {size(bytes_)})"


def _without_half(
    rows: Sequence[ListedFile],
    newer: Collection[str],
    absent: Collection[str],
    scratch: Path,
    screen: Screen,
) -> list[ListedFile]:
    """Remove checkpoints of several files of which some are newer, or absent, and say so; return
    the others. Raises NotSafeError if nothing is left."""
    together = checkpoints([*(row.path for row in rows), *absent], live=True)
    other = {*newer, *absent}
    half = {one for path, (one, has_all) in together.items() if path in other or not has_all}
    gone = {path for path, (one, _) in together.items() if one in half}
    links = {row.path: row.to for row in rows if row.to}
    gone |= _pointing_elsewhere(PullPlace(scratch), {row.path for row in rows} - gone, links)
    _say_what_is_half({row.path for row in rows} - gone, gone, screen)
    for path in gone - {*absent}:
        (scratch / path).unlink()
    left = [row for row in rows if row.path not in gone]
    if not left:
        raise NotSafeError("the bucket has no whole results of it.", where=str(scratch))
    return left


def _is_result(path: str, results: Sequence[str]) -> bool:
    inside = any(f"{path}/".startswith(f"{one.strip('/')}/") for one in results)
    return inside and not why_refused(path)


def bucket_manifest(address: str) -> tuple[ListedResults, Bucket]:
    """Return what the box wrote about the results there. Raises NotSafeError, UnreachableError."""
    from bootstrap.transfer.buckets import Bucket

    bucket = Bucket(f"{address}/")
    found = [one for one in bucket.objects() if one.name == _BUCKET_MANIFEST]
    if not found:
        raise NotSafeError("the bucket has no whole results of it yet.", where=address)
    text = b"".join(_pieces(bucket.sign(found)[0], MOST_MANIFEST + 1))
    try:
        return read_manifest(text), bucket
    except ValueError as error:
        what = f"the manifest in the bucket is damaged: {error}."
        raise NotSafeError(what, where=address) from None


def _pieces(signed: str, most: int) -> Iterator[bytes]:
    """Yield an object's content, `most` bytes of it: what became longer since it was listed isn't
    what was listed. Raises UnreachableError, also for one that comes too slowly to end."""
    ends = time.monotonic() + _ANSWER_S + most / _SLOWEST
    try:
        asked = Request(signed, headers=AGENT)  # noqa: S310 - signed by `Bucket`
        with urlopen(asked, timeout=_ANSWER_S) as answer:  # noqa: S310
            while most and (piece := answer.read1(min(_PIECE, most))):
                most -= len(piece)
                yield piece
                if time.monotonic() > ends:
                    raise TimeoutError("it comes too slowly")
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()  # its connection is open still
        raise UnreachableError(
            f"a file can't be fetched from the bucket: {error}",
            where=signed.partition("?")[0],
            hint="Run the same command again.",
        ) from None
