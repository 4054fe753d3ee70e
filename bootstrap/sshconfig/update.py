"""Keep the entries current: write our file when a box changed, and include it once.

Nothing is written if nothing changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bootstrap.errors import UsageError
from bootstrap.link.record import KnownBox, all_boxes, is_newer, unreadable_record
from bootstrap.paths import write_private
from bootstrap.sshconfig.entries import (
    Entries,
    aliases_in,
    control_folder,
    entries_of_boxes,
    has_block,
    is_users_alias,
    reachable,
    taken_in,
    with_block,
    without_block,
)
from bootstrap.sshconfig.userfile import ConfigPlace, LeftAloneError, UserFile

_SSH_TIMEOUT_S = 30


@dataclass(frozen=True)
class UpdateResult:
    """The outcome of an update."""

    place: ConfigPlace
    entries: Entries
    changed: bool
    """Whether anything was written."""
    trouble: str = ""
    """Why the user's ssh config does not include the entries, and what to do."""

    def alias(self, box: KnownBox) -> str:
        """Return what to type after `ssh` for this box; "" if it has no entry."""
        alias = box.name
        return alias if alias in self.entries.aliases and not self.trouble else ""


def update(place: ConfigPlace, *, afresh: bool = False) -> UpdateResult:
    """Update the entries from the known boxes.

    `afresh`: check again the aliases that were left out because they mean something else.
    """
    place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(place):
        before = _read(place)
        found = _entries(place, before, afresh=afresh)
        text = found.text() + _blocks_of_newer(before, found)
        if text != before:
            write_private(place.entries, text)
        try:
            included = _include(place)
        except LeftAloneError as error:
            trouble = (
                f"{error}, so it was left as it is.\n"
                f"Put this at its top yourself: Include {place.include}"
            )
            return UpdateResult(place, found, text != before, trouble)
        changed = included or text != before
    return UpdateResult(place, found, changed, _without_effect(place, found) if changed else "")


def remove_block(place: ConfigPlace) -> bool:
    """Restore the user's ssh config; returns whether there was anything to remove.

    Raises UsageError if the file can't be changed.
    """
    file = UserFile(place.config)
    place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(place):
        try:
            data = file.read()
            if there := data is not None and has_block(data, place.include):
                rest = without_block(data, place.include)
                if rest is None:
                    file.remove()
                else:
                    file.prepare(rest).put()
        except LeftAloneError as error:
            raise UsageError(
                f"{error}, so it was left as it is.",
                hint=f"Take this line out yourself: Include {place.include}",
            ) from None
        place.entries.unlink(missing_ok=True)
        place.off.touch()
    return there


@contextlib.contextmanager
def _alone(place: ConfigPlace) -> Iterator[None]:
    """Lock out other boxstrap processes; the user may still edit the file."""
    with (place.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(place: ConfigPlace) -> str:
    try:
        return place.entries.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _entries(place: ConfigPlace, before: str, *, afresh: bool) -> Entries:
    boxes = all_boxes()
    sockets = control_folder([place.folder, place.config.parent])
    taken = frozenset() if afresh else taken_in(before)
    new = _new(boxes, aliases_in(before) | taken)
    taken |= {alias for alias in new if _is_users_host(place, alias)}
    return entries_of_boxes(boxes, sockets=sockets, taken=taken)


def _blocks_of_newer(before: str, found: Entries) -> str:
    """Return the blocks of boxes whose record a newer boxstrap wrote, to keep them unchanged."""
    files = [str(box.known_hosts) for box in unreadable_record() if is_newer(box.folder)]
    blocks = [block for block in before.split("\n\n") if any(file in block for file in files)]
    return "".join(
        f"\n{block.rstrip()}\n" for block in blocks if block.split()[1] not in found.aliases
    )


def _new(boxes: Iterable[KnownBox], looked_at: frozenset[str]) -> list[str]:
    own = (box.name for box in reachable(boxes) if not is_users_alias(box))
    return [alias for alias in own if alias not in looked_at]


def _is_users_host(place: ConfigPlace, alias: str) -> bool:
    """Whether the user's own ssh config leads elsewhere for this name, as it is or lower-case."""
    forms = {alias, alias.lower()} if place.config.exists() else set()
    return any(_leads_to(place, form) not in ("", alias.lower()) for form in forms)


def _without_effect(place: ConfigPlace, found: Entries) -> str:
    """Return what to do if our lines were moved to where they have no effect, else ""."""
    for entry in found.entries:
        address = dict(entry.options).get("HostName")
        if address and not address.count("%"):
            if _leads_to(place, entry.alias) in ("", address.lower()):
                return ""
            return (
                f"the Include in {place.config} has no effect at its position.\n"
                "Put it above every Host and Match; or take it out, then: boxstrap ssh-config"
            )
    return ""


def _leads_to(place: ConfigPlace, alias: str) -> str:
    """Return the address that ssh would connect to, in lower case; "" if ssh doesn't say."""
    answer = _ask([*place.ssh, "-G", "--", alias])
    if answer is None or answer.returncode:
        return ""
    lines = (line.partition(" ") for line in answer.stdout.splitlines())
    return next((value for name, _, value in lines if name == "hostname"), "").lower()


def _include(place: ConfigPlace) -> bool:
    """Include our file; returns whether anything was written. Raises LeftAloneError."""
    file = UserFile(place.config)
    data = file.read()
    if data is not None and has_block(data, place.include):
        return False
    draft = file.prepare(with_block(data or b"", place.include, is_new=data is None))
    try:
        answer = _ask(["ssh", "-G", "-F", str(draft.path), "--", "boxstrap-looks"])
        if answer is None or answer.returncode:
            said = answer.stderr.strip()[-300:] if answer else "it does not answer"
            said = said.replace(str(draft.path), str(place.config))
            raise LeftAloneError(f"ssh does not accept {place.config} ({said})")
        draft.put()
    finally:
        draft.drop()
    return True


def _ask(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SSH_TIMEOUT_S,
            check=False,
        )
    return None
