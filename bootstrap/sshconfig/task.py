"""`boxstrap ssh-config`: write, list or remove the entries."""

from __future__ import annotations

from bootstrap.errors import UsageError
from bootstrap.link.record import all_boxes
from bootstrap.sshconfig import wsl
from bootstrap.sshconfig.entry import Entry
from bootstrap.sshconfig.place import VARIABLE, ConfigPlace, account_home, find_place
from bootstrap.sshconfig.update import remove, update
from bootstrap.ui.reporter import Reporter
from bootstrap.ui.screen import Screen


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
    there = remove(place)
    if wsl.is_wsl():
        try:
            wsl.remove(wsl.find_windows())
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
        advice = wsl.write(windows, all_boxes())
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
