"""The box's alias in the user's ssh config, updated at the end of a setup.

`boxstrap ssh-config`: write, list or remove the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import UsageError, write_error
from bootstrap.link.record import all_boxes
from bootstrap.sshconfig import wsl
from bootstrap.sshconfig.entries import Entry
from bootstrap.sshconfig.update import remove_block, update
from bootstrap.sshconfig.userfile import VARIABLE, ConfigPlace, account_home, find_place
from bootstrap.ui.screen import Reporter, Screen

if TYPE_CHECKING:
    from bootstrap.link.record import KnownBox
    from bootstrap.sshconfig.update import UpdateResult


def preload(box: KnownBox) -> None:
    """Import what `update_alias` needs while waiting for a box's answer."""
    if not box.is_local and _wanted() is not None:
        import bootstrap.sshconfig.update  # noqa: F401


def update_alias(box: KnownBox, reporter: Reporter) -> str:
    """Update the ssh config and return what to type after `ssh`; "" if there is no alias.

    Nothing is written for `local`, or if the user turned this off. Problems
    are reported, but don't make a setup fail.
    """
    result = None if box.is_local else _update(reporter)
    if result is None:
        return ""
    alias = result.alias(box)
    if result.changed and alias:
        reporter.say(f"`ssh {alias}` leads to this box, for scp, rsync and editors too")
    return alias


def drop_alias(reporter: Reporter) -> None:
    """Update the ssh config after a box was forgotten."""
    place = _wanted()
    if place is not None and place.entries.exists():
        _update(reporter)


def _wanted() -> ConfigPlace | None:
    place = find_place()
    return None if place is None or place.off.exists() else place


def _update(reporter: Reporter) -> UpdateResult | None:
    place = _wanted()
    if place is None:
        return None
    from bootstrap.sshconfig.update import update

    try:
        result = update(place)
    except OSError as error:
        what = write_error(place.entries, error).what
        reporter.warn(f"the ssh config's entries are not kept: {what}")
        return None
    if result.changed:
        if result.trouble:
            reporter.warn(result.trouble)
        follow_on_windows(reporter)
    return result


def write_entries(screen: Screen) -> None:
    """Update the entries and list them. Raises UsageError if that is not possible."""
    place = _place()
    place.off.unlink(missing_ok=True)
    kept = update(place, afresh=True)
    if kept.trouble:
        what, _, hint = kept.trouble.partition("\n")
        raise UsageError(what, where="ssh config", hint=hint)
    windows = follow_on_windows(screen)
    rows = [f"{entry.alias:<28} {_leads_to(entry)}" for entry in kept.entries.entries]
    rows += [f"{alias:<28} left out: {why}" for alias, why in kept.entries.left_out.items()]
    screen.result(
        {
            "file": str(place.entries),
            "included_by": str(place.config),
            "windows": windows,
            "aliases": list(kept.entries.aliases),
            "left_out": dict(kept.entries.left_out),
        },
        "\n".join(rows or ["no box is known yet: boxstrap setup --host …"]),
    )


def remove_entries(screen: Screen) -> None:
    """Remove everything from the user's ssh config, and keep it so."""
    place = _place()
    there = remove_block(place)
    if wsl.is_wsl():
        try:
            wsl.remove_from_windows(wsl.find_windows())
        except wsl.NoWindowsError as error:
            screen.warn(f"Windows' ssh config was left as it is: {error}.")
    words = "is as it was before boxstrap" if there else "has nothing of boxstrap in it"
    screen.result(
        {"file": str(place.config), "removed": there},
        f"{place.config} {words}; setups leave it alone until: boxstrap ssh-config",
    )


def follow_on_windows(reporter: Reporter) -> str:
    """On WSL, also write the entries for Windows' programs; returns the folder, or ""."""
    if not wsl.is_wsl():
        return ""
    try:
        windows = wsl.find_windows()
        advice = wsl.write_for_windows(windows, all_boxes())
    except wsl.NoWindowsError as error:
        reporter.warn(
            f"Windows' programs (VS Code is one) don't know the boxes yet: {error}.\n"
            "Put what `boxstrap ssh-config` lists into C:\\Users\\NAME\\.ssh\\config by hand."
        )
        return ""
    for sentence in advice:
        reporter.say(f"Windows: {sentence}")
    return str(windows.folder)


def _leads_to(entry: Entry) -> str:
    options = dict(entry.options)
    if "HostName" not in options:
        return "your own entry, with the box's host key added"
    user = f"{options['User']}@" if "User" in options else ""
    return f"{user}{options['HostName']}:{options['Port']}"


def _place() -> ConfigPlace:
    place = find_place()
    if place is None:
        raise UsageError(
            "your ssh config must not be changed: "
            f"{VARIABLE} is off, or HOME is not your account's home, {account_home()}.",
            where="ssh config",
            hint=f"Unset {VARIABLE}, or let it name the file to change.",
        )
    return place
