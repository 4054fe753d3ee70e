"""What a box holds beside its runs: a lease, the secrets it was given, and what it can do without,
as trees that no run needs any more."""

import math
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import BoxLease, parse_lease
from bootstrap.boxes.receipt import is_still_here, receipt_file
from bootstrap.boxes.run import Run
from bootstrap.boxes.secrets import find_sources, folder_of, is_same
from bootstrap.boxes.trees import Cleaned, TreeBeside, clean_trees
from bootstrap.errors import BusyError, NotSafeError, StepFailedError, UsageError
from bootstrap.link import shared
from bootstrap.link.exchange import answer_rows
from bootstrap.link.prompt import Prompt
from bootstrap.link.record import GUARD, KnownBox, all_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.repo.place import repository_root
from bootstrap.sizes import duration, seconds_of, size
from bootstrap.ui.screen import Screen
from bootstrap.value import Document, dataclass, replace

_LONGEST_S = 30 * 86400


def show_lease(
    options: BoxOptions,
    screen: Screen,
    *,
    extend: str | None,
    release: bool,
    check: Callable[[KnownBox, float], None] = lambda _box, _seconds: None,
) -> None:
    """Show the box's lease, after extending it by a time (`2h`) or releasing it.

    `check` is called before that with the seconds that are added, inf for a release; it may raise.
    Raises UsageError if the box has no lease or the time is invalid; as `connect`.
    """
    added = _seconds(extend) if extend is not None else 0
    if extend is not None and release:
        raise UsageError("--extend or --release: not both.")
    with BoxLogin.open(options, screen) as box:
        name = box.name
        what = "release" if release else "extend"
        asked_as = secrets.token_hex(8)
        if added and box.known.ends:
            _refuse_beyond_end(box, added)
        if added or release:
            check(box.known, math.inf if release else added)
        # As the login told it: a second answer would differ by seconds.
        word, lease = "lease" if box.state.lease else "none", box.state.lease
        if added or release:
            word, lease = box.ask(lambda box: ask_lease(box, what, added, asked_as))
        _note(box, word, added)
    if word == "none":
        raise UsageError(
            "this box has no lease.",
            where=name,
            hint=f"A setup sets one, as in: boxstrap setup --host {name} --set lease.hours=12",
        )
    if word == "released":
        screen.result({"box": name, "lease": None}, f"{name}: nothing ends this box any more")
        return
    lines = lease.lines() if lease else []
    if added:
        money = (
            ", and its dollars by what that costs" if lease and "dollars" in lease.limits else ""
        )
        lines = [f"extended by {duration(added)}{money}", *lines]
    if box.known.ends:
        lines.append(f"it ends {_until(box.known.ends)} by its own limit, which nothing moves")
    screen.result({"box": name, "lease": lease}, "\n".join(f"{name}: {line}" for line in lines))


def _note(box: BoxLogin, word: str, added: int) -> None:
    """Record the change for a guard on this machine."""
    lease = box.known.lease
    if word == "released" and lease:
        box.save(replace(box.known, lease={}))
        (box.known.folder / GUARD).unlink(missing_ok=True)
    elif added and lease:
        extended = (box.known.of_lease("extended") or 0.0) + added
        box.save(replace(box.known, lease={**lease, "extended": extended}))


def _refuse_beyond_end(box: BoxLogin, added: int) -> None:
    """Raise UsageError if the lease would be over after its provider has ended the box."""
    _, lease = box.ask(lambda box: ask_lease(box, "look", 0, secrets.token_hex(8)))
    used, most = lease.limits.get("hours", (0.0, 0.0)) if lease else (0.0, 0.0)
    left = box.known.ends - time.time()
    if most - used + added > left:
        raise UsageError(
            f"--extend: it ends {_until(box.known.ends)} by its own limit, which nothing moves: "
            "its lease can't outlast it.",
            where=box.name,
            hint=f"Bring home what it has in time: boxstrap down --host {box.name}",
        )


def _until(ends: float) -> str:
    left = ends - time.time()
    return f"in {duration(left)}" if left > 0 else "now"


def _seconds(text: str) -> int:
    found = seconds_of(text)
    if not found or found > _LONGEST_S:
        raise UsageError(
            f"--extend: {text!r} is no time to extend a lease by.",
            hint="As in: --extend 2h (m, h, d; 30 days at most)",
        )
    return found


def ask_lease(box: BoxLogin, what: str, seconds: int, asked_as: str) -> tuple[str, BoxLease | None]:
    """`look` at, `extend` or `release` the lease; return the box's word and the lease as it is now.

    Repeating a request with the same `asked_as` has no further effect. Raises LinkLost, NoAnswer.
    """
    found = dict(answer_rows(box.ask_word("lease", what=what, seconds=str(seconds), id=asked_as)))
    word = next((word for word in ("lease", "released") if word in found), "none")
    return word, parse_lease(found.get(word, ""))


def report_safe_results(box: BoxLogin, run: Run, safe: str, home: str) -> None:
    """Report a run's verified results to the box, by the notes of their manifest: its lease only
    destroys it if they are safe."""
    with suppress(LinkLost, NoAnswer):  # without this note the box is not destroyed
        box.ask_word("safe", run=run.path, note=safe, made=home)


@dataclass(frozen=True)
class SecretRow(Document):
    """One secret: whether the profile names it, where its value is, and which boxes hold it."""

    KEYS = "name, from=origin, named, boxes, held, same"

    name: str
    origin: str | None
    """`environment`, `.env`, `command`; None if it has no source on this machine."""
    named: bool
    boxes: tuple[str, ...]  # the boxes that hold it, by the records on this machine
    held: bool | None = None  # whether the box that was asked holds it; None if none was asked
    same: bool | None = None
    """Whether the box has the same value as this machine; None if unknown."""

    def cells(self) -> tuple[str, ...]:
        origin = f"from {self.origin}" if self.origin else "no value here"
        held = {True: "the box holds it", False: "the box has none", None: ""}[self.held]
        if self.same is False:
            held = "the box holds another value"
        whose = f"held by {', '.join(self.boxes)}" if self.boxes else "held by no box"
        named = "" if self.named else "not in the profile here"
        if not self.named and self.held is not False:
            named += ": kept to redact logs, until secrets --wipe"
        return (self.name, origin, held or whose, named)


@dataclass(frozen=True)
class WipedSecrets:
    box: str
    names: tuple[str, ...]
    runs: tuple[str, ...]  # live runs, which keep the secrets that they were started with


def list_secrets(options: BoxOptions, screen: Screen) -> list[SecretRow]:
    """List every secret that is named or held. Only a box given by `--host` is asked. Raises
    ProfileError, UsageError, and as `connect`."""
    from bootstrap.profile.consent import load_profile  # here, since `pull` needs none

    loaded = load_profile(options, kinds=())
    folder = folder_of(loaded, repository_root(options.place))
    held = None
    if options.host is not None:
        with BoxLogin.open(options, screen) as box:
            held = box.state.secrets
            # Don't trust the box with other names: if it said HOME, HOME would always be redacted.
            ours = {*(box.known.secrets or ()), *loaded.profile.secrets}
            box.note_held(name for name in held if name in ours)
    return _rows(loaded.profile.secrets, folder, held)


def _rows(named: list[str], folder: Path | None, held: Mapping[str, str] | None) -> list[SecretRow]:
    holders: dict[str, list[str]] = {}
    for box in all_boxes():
        ever = box.secrets or ()
        for name in ever if box.held_secrets is None else box.held_secrets:
            holders.setdefault(name, []).append(box.name)
    names = [*dict.fromkeys((*named, *sorted({*holders, *(held or ())})))]
    sources = {source.name: source for source in find_sources(names, folder)}
    found = []
    for name in names:
        source, its_id = sources.get(name), (held or {}).get(name)
        found.append(
            SecretRow(
                name,
                origin=source.origin if source else None,
                named=name in named,
                boxes=tuple(sorted(holders.get(name, ()))),
                held=None if held is None else name in held,
                same=is_same(source, its_id) if source and its_id else None,
            )
        )
    return found


def wipe_secrets(options: BoxOptions, screen: Screen) -> WipedSecrets:
    """Remove all secrets from the box. Raises BusyError while a setup is running on it."""
    with BoxLogin.open(options, screen) as box:
        answer = box.ask_word("wipe", names=" ".join(box.known.secrets or ()))
        wiped = what_was_wiped(answer, box)
        box.note_held(())
        living = tuple(run.name for run in box.state.runs if run.state == "running")
    shared.close(box.known)
    return WipedSecrets(box.name, wiped, living)


def what_was_wiped(answer: bytes, box: BoxLogin) -> tuple[str, ...]:
    """Read the wiped names from the box's answer. Raises BusyError while a setup is running."""
    said = list(answer_rows(answer))
    if any(word == "busy" for word, _ in said):
        raise BusyError(
            "a setup is at work on this box; nothing was wiped.",
            where=box.label,
            hint=f"Wait for it to end, or cancel it: boxstrap stop --setup --host {box.name}",
        )
    return tuple(dict.fromkeys(name for word, name in said if word == "wiped"))


def clean_box(
    options: BoxOptions, screen: Screen, *, discard: Sequence[str], look: bool, agreed: bool
) -> None:
    """Remove trees whose runs are over and that hold no work (those in `discard` may hold work),
    results that are at home, and downloads. Unless `agreed`, the user is asked, with the list.
    With `look`, only show what would be removed.

    Raises UsageError if the user does not agree, NotSafeError if a tree is kept for what it holds,
    and as `clean_trees`.
    """
    with BoxLogin.open(options, screen) as box:
        found = clean_trees(box, repo_key=box.own, discard=discard, look=True)
        if absent := _absent_here(box, found, screen):
            if look:
                things = [thing for thing in found.things if thing.name not in absent]
                found = found._replace(things=things)
            else:
                _forget_pulls(box, absent)
                found = clean_trees(box, repo_key=box.own, discard=discard, look=True)
        can_go = found.removable(discard)
        if not (look or agreed) and can_go is not None:
            for line in _lines(found, look=True):
                screen.say(line)
            _ask_to_clean(box.name, can_go, _discards(discard), screen)
        if not look and (agreed or can_go is not None):
            found = clean_trees(box, repo_key=box.own, discard=discard, look=False)
        trees, known = found.trees, box.known
        document = {
            "box": known.name,
            "trees": trees,
            "copies_of_results": found.copied,
            "things": found.things,
        }
        is_look = look or (can_go is None and not agreed)
        screen.result(document, "\n".join(_lines(found, look=is_look)))
    if stuck := [tree for tree in trees if tree.state == "left"]:
        raise StepFailedError(
            f"not all of {_names(stuck)} could be removed.",
            where=known.name,
            hint="It is another user's: see what is left below .boxstrap/trees there.",
        )
    kept = [tree for tree in trees if tree.state == "kept"]
    if refused := [tree for tree in kept if not tree.is_in_use or tree.name in discard]:
        free = [tree for tree in refused if not tree.is_in_use]
        hint = "A run ends with: boxstrap stop"
        if free:
            hint = _way_to_clean(free, known.name) + " --yes" * agreed
        raise NotSafeError(f"{_names(refused)} stayed.", where=known.name, hint=hint)


def _absent_here(box: BoxLogin, found: Cleaned, screen: Screen) -> list[str]:
    """Return the runs whose results could go, but are not here any more as they were pulled."""
    absent = list[str]()
    for thing in found.things:
        if thing.kind != "results":
            continue
        repository, _, run = thing.name.rpartition("/")
        file = receipt_file(box.known.folder, repository, run)
        if thing.state == "safe" and not is_still_here(file, box.here[0]):
            absent.append(thing.name)
            screen.warn(
                f"results of {run} stay: what was pulled of them was moved or changed here. "
                f"To bring them again: boxstrap pull --host {box.name} --run {run}"
            )
    return absent


def _forget_pulls(box: BoxLogin, runs: Sequence[str]) -> None:
    """Let the box note that these results are not at home. Raises LinkLost, NoAnswer, and
    NotSafeError if it can't."""
    for run in runs:
        if ("noted", "yes") not in answer_rows(box.ask_word("safe", run=run, note="", made="")):
            raise NotSafeError(f"the box could not note that results of {run} are not here.")


def _way_to_clean(trees: Sequence[TreeBeside], box: str) -> str:
    """Say how to bring home what these hold, and how they go then: what waits for its results alone
    by itself, once they are at home."""
    holds = [one for tree in trees for one in tree.holds]
    unpulled = [one for one in holds if one.kind == "unpulled"]
    runs = "".join(f" --run {shlex.quote(name)}" for one in unpulled for name in one.names)
    if any(one.count > len(one.names) for one in unpulled):
        runs = " --all"
    ways = [f"bring its results home (boxstrap pull --host {box}{runs})"] if unpulled else []
    if any(one.kind not in ("unpulled", "pulled") for one in holds):
        ways.append("copy what you need from it (scp and rsync reach the box by its name)")
    said = ", ".join([*ways, "then:"]) if ways else "to remove it:"
    held = [tree.name for tree in trees if {one.kind for one in tree.holds} != {"unpulled"}]
    return f"{said[0].upper()}{said[1:]}\n  boxstrap clean --host {box}{_discards(held)}"


def _discards(trees: Sequence[str]) -> str:
    return "".join(f" --discard {shlex.quote(tree)}" for tree in trees)


def _ask_to_clean(name: str, count: int, discards: str, screen: Screen) -> None:
    """Raises UsageError if the user does not agree, or can't be asked."""
    prompt = Prompt(screen.say)
    if not prompt.has_terminal():
        raise UsageError(
            f"nobody said that {size(count)} may be removed, and there is no terminal to ask.",
            where=name,
            hint=f"What it is: boxstrap --dry clean --host {name}{discards}\n"
            f"To remove it: boxstrap clean --host {name}{discards} --yes",
        )
    if not prompt.confirm(f"Remove this from {name}, {size(count)} in all?"):
        raise UsageError("nothing was removed.", where=name)


def _names(trees: Sequence[TreeBeside]) -> str:
    return ", ".join(tree.name for tree in trees)


_BECAME = {
    "removed": "removed",
    "safe": "would be removed",
    "kept": "stays",
    "left": "is left in part",
}


def _lines(found: Cleaned, *, look: bool) -> list[str]:
    lines = []
    for tree in found.trees:
        lines.append(f"{tree.name}: {_BECAME[tree.state]} ({size(tree.bytes)})")
        lost = "it held " if tree.state == "removed" else ""
        lines += [f"  {lost}{one}" for one in tree.holds]
    if found.copied:
        became = _BECAME["safe" if look else "removed"]
        lines.append(f"copies of results that are at home: {became} ({size(found.copied)})")
    lines += [thing.line() for thing in found.things]
    return lines or ["there is nothing to remove: no tree beside the main one, no pulled results"]
