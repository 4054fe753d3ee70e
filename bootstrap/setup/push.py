"""Push a file, a folder or the profile's data to a box: by `push`, or while a setup runs."""

import contextlib
import dataclasses
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost
from bootstrap.paths import expanded, leads_out, real
from bootstrap.profile.schema import Profile, SentItem
from bootstrap.profile.values import Permission
from bootstrap.repo.names import shown
from bootstrap.repo.place import repository_root
from bootstrap.setup.request import not_set_up
from bootstrap.sizes import file_count, grouped_number, transferred
from bootstrap.transfer.push import (
    MOST_NAMED,
    Pushed,
    ShownProgress,
    push_folder,
    upload_of_several,
)
from bootstrap.transfer.sender import READY, Sender
from bootstrap.transfer.source_files import PushProgress, read_source
from bootstrap.ui.screen import Screen
from bootstrap.value import Document, dataclass, document


@dataclass(frozen=True)
class PushOptions:
    path: str
    to: str | None = None
    exclude: tuple[str, ...] = ()
    replace: bool = False


@dataclass(frozen=True)
class PushedFiles(Document):
    """What was sent: files and bytes; files that were there; names that stayed or failed."""

    KEYS = "to, **pushed"

    to: str
    pushed: Pushed


def push_path(options: BoxOptions, screen: Screen, wish: PushOptions) -> None:
    """Send a file or a folder, and show what was sent. Raises as `push_folder` and `connect`."""
    source = expanded(wish.path)
    try:
        source.stat()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"it can't be sent: {why}.", where=wish.path) from None
    if led := leads_out(source):
        led_to = shown(str(led))
        screen.warn(f"{shown(wish.path)} leads out of the repository: what is sent is {led_to}")
    _tell_cost(options, screen, [(source, wish.exclude)])
    with BoxLogin.open(options, screen, shares=False) as box:
        target = _target(box, source, wish, options.place)
        screen.note("to", target)
        with ShownProgress(screen, "push") as progress:
            pushed = push_folder(
                box.link,
                source,
                target,
                workdir=box.workdir,
                exclude=wish.exclude,
                replace=wish.replace,
                progress=progress,
            )
        _warn(screen, pushed)
        screen.result({"box": box.name, **document(PushedFiles(target, pushed))})
        pushed.check(box.label)
        said = f"{box.name}: {_said(pushed)}"
        tree = box.state.repo_dir
        if tree and f"{target}/".startswith(f"{tree}/"):
            said += f"\n{links_line(posixpath.relpath(target, tree), *_shared(options))}"
        screen.result({}, said)


def links_line(inside: str, shared: Sequence[str], results: Sequence[str] = ()) -> str:
    """Say what trees beside get of a folder of the main tree, "." for all of it."""
    if f"{inside}/".startswith(tuple(f"{one.rstrip('/')}/" for one in results)):
        return "other trees get none of it: train.results lie there, and each run has its own"
    if inside.partition("/")[0] == ".git":
        return "other trees get none of it: it lies in git's own folder"
    for one in shared:
        if f"{inside}/".startswith(f"{one.rstrip('/')}/"):
            return f"other trees have a link to {one}, which the profile shares"
    if inside == ".":
        return "other trees get links to these files"
    return (
        "other trees get links to these files; if git ignores all of it, to all of it with "
        f"shared: [{inside}/] in the profile"
    )


def _shared(options: BoxOptions) -> tuple[Sequence[str], Sequence[str]]:
    """Return what the profile shares, and its results."""
    from bootstrap.profile.consent import load_profile

    with contextlib.suppress(BoxstrapError):  # a push needs no profile that is right
        profile = load_profile(options, kinds=()).profile
        return profile.shared, profile.train.results if profile.train else ()
    return (), ()


def push_data(options: BoxOptions, screen: Screen, *, replace: bool) -> None:
    """Send the profile's `data` on this machine. Raises as `push_path` and `load_profile`."""
    from bootstrap.profile.consent import load_profile

    items = local_items(load_profile(options, kinds={Permission.DATA}).profile)
    if not items:
        raise UsageError(
            "which file or folder? The profile's data names none on this machine.",
            hint="As in: boxstrap push data/corpus",
        )
    _tell_cost(options, screen, [(item.source, item.exclude) for item in items])
    with BoxLogin.open(options, screen, shares=False) as box:
        name, sent = box.name, list[PushedFiles]()
        with ShownProgress(screen, "push") as progress:
            for item in items:
                place = item.sent.to
                if not place.startswith("~"):
                    place = posixpath.join(_tree(box), place)
                pushed = push_folder(
                    box.link,
                    item.source,
                    place if item.source.is_dir() else posixpath.dirname(place),
                    workdir=box.workdir,
                    exclude=item.exclude,
                    replace=replace,
                    progress=progress,
                )
                sent.append(PushedFiles(place, pushed))
        for one in sent:
            _warn(screen, one.pushed)
        screen.result({"box": name, "items": sent})
        for one in sent:
            one.pushed.check(box.label)
        screen.result({}, "\n".join(f"{name}: {one.to}: {_said(one.pushed)}" for one in sent))


def _tell_cost(
    options: BoxOptions, screen: Screen, sources: Sequence[tuple[Path, Sequence[str]]]
) -> None:
    """Say, once for all boxes, what they are sent together."""
    boxes = len(options.once.hosts)

    def tell() -> None:
        if boxes > 1 and (said := upload_of_several(sources, boxes)):
            screen.say(said)

    options.once.get("cost of a push", tell)


def _warn(screen: Screen, pushed: Pushed) -> None:
    for name in pushed.left_out[:MOST_NAMED]:
        screen.warn(f"not sent: {name}")
    if more := len(pushed.left_out[MOST_NAMED:]):
        screen.warn(f"not sent: {grouped_number(more)} more")


def _target(box: BoxLogin, source: Path, wish: PushOptions, stood_in: Path) -> str:
    """Return the target folder: `--to`, else the same place in the repository as here."""
    if wish.to and posixpath.isabs(wish.to):
        return posixpath.normpath(wish.to)
    tree = _tree(box)
    root = repository_root(stood_in)
    if wish.to is not None:
        return posixpath.normpath(posixpath.join(tree, wish.to))
    inside = None
    if root is not None and tree:
        whole = real(source.absolute().parent) / source.name  # a link itself is not resolved
        if whole == root:
            raise UsageError(
                "that is the repository itself, and not data.",
                where=wish.path,
                hint="To send its files: boxstrap sync",
            )
        if whole.is_relative_to(root):
            inside = whole.relative_to(root)
    if inside is None:
        if source.is_dir():
            raise UsageError(
                "it is outside of the repository: where should it go?",
                where=wish.path,
                hint="Name a folder of the box: --to data/corpus",
            )
        return tree
    folder = inside if source.is_dir() else inside.parent
    return posixpath.join(tree, folder.as_posix())


def _tree(box: BoxLogin) -> str:
    """Return its folder of this repository. Raises UsageError before a first setup: where that
    will place it is not known, and it takes no folder that has something in it."""
    if box.own and not box.state.is_placed:
        raise not_set_up(box.label, box.name)
    return box.state.repo_dir


def _said(pushed: Pushed) -> str:
    had = f"{file_count(pushed.had)} already there" if pushed.had else ""
    if not pushed.files:
        return had or "there is nothing to send"
    sent = f"{file_count(pushed.files)}, {transferred(pushed.bytes, pushed.seconds)}"
    return "; ".join(filter(None, [sent, had]))


# -- the data on this machine that a setup sends

_ALL, _SOME = b"all\n", b"few\n"  # of one length
_WAITS = re.compile(r"^local (\d{1,4}) (/[^\n]+)$", re.MULTILINE)


class LocalItem(NamedTuple):
    """A local item: its index in the profile, its path here, and what is not sent."""

    number: int
    source: Path
    exclude: tuple[str, ...]
    sent: SentItem
    """What the box is sent about it."""


def targets_there(answer: bytes) -> dict[int, str]:
    """Parse the box's answer: the target path of each item that it waits for, by number."""
    text = answer.decode("utf-8", "surrogateescape")
    return {int(number): path for number, path in _WAITS.findall(text)}


def local_items(profile: Profile) -> tuple[LocalItem, ...]:
    """List the local items, without reading files. Raises UsageError if one can't be sent."""
    found = []
    for number, item in enumerate(profile.data):
        if item.place != "local":
            continue
        source, where = Path(item.source), f"data[{number}].from"
        if not os.path.exists(source):  # noqa: PTH110 - pathlib's raises
            raise UsageError(f"there is no {item.source} on this machine.", where=where)
        to = item.to
        if source.is_file():
            if to.endswith("/"):
                to += source.name
            elif posixpath.basename(to) != source.name:
                raise UsageError(
                    f"a file that is sent keeps its name, {source.name}.",
                    where=f"data[{number}].to",
                    hint=f"Name its folder, with a slash at the end: {posixpath.dirname(to)}/",
                )
        sent = SentItem(to, _digest(source, item.exclude))
        found.append(LocalItem(number, source, tuple(item.exclude), sent))
    return tuple(found)


def _digest(source: Path, exclude: Sequence[str]) -> str:
    """Return a digest that changes when any file does, by name, size or time."""
    files = json.dumps(list(read_source(source, exclude).files))
    return hashlib.sha256(files.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class DataSender(Sender):
    """Sends the profile's data that is on this machine."""

    what, noun = "data", "the data"
    items: Sequence[LocalItem]
    progress: Callable[[PushProgress], None]

    def send(self) -> None:
        stream = self.take("data.sent", len(_ALL))
        targets = targets_there(self.read(stream, READY))
        sent = [self._send(item, targets) for item in self.items if item.number in targets]
        self.pass_on(stream, [_ALL if all(sent) else _SOME])

    def _send(self, item: LocalItem, targets: dict[int, str]) -> bool:
        """Send one item; return whether all of it has arrived. Raises LinkLost."""
        target = targets[item.number]
        try:
            pushed = push_folder(
                self.wire,
                item.source,
                target if item.source.is_dir() else posixpath.dirname(target),
                workdir=self.workdir,
                exclude=item.exclude,
                progress=self.progress,
            )
        except LinkLost:
            raise
        except BoxstrapError as error:
            self.failed(error)
            return False
        where = f"data[{item.number}]"
        for name in pushed.left_out:
            self.failed(BoxstrapError(f"not sent: {name}", where=where))
        for name in pushed.kept:
            self.failed(
                BoxstrapError(
                    f"{name}: the box has another file there, which was not sent from here.",
                    where=where,
                    hint="Move it away there, or choose another place.",
                )
            )
        for name in pushed.failed:
            self.failed(BoxstrapError(f"not sent: {name}", where=where))
        return not (pushed.kept or pushed.failed)
