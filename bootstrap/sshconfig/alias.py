"""The box's alias in the user's ssh config, updated at the end of a setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import cant_write
from bootstrap.sshconfig.place import ConfigPlace, find_place

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxHandle
    from bootstrap.sshconfig.update import UpdateResult
    from bootstrap.ui.reporter import Reporter


def preload(box: BoxHandle) -> None:
    """Import what `update_alias` needs while waiting for a box's answer."""
    if not box.is_local and _wanted() is not None:
        import bootstrap.sshconfig.update  # noqa: F401


def update_alias(box: BoxHandle, reporter: Reporter) -> str:
    """Update the ssh config and return what to type after `ssh`; "" if there is no alias.

    Nothing is written for `local`, or if the user turned this off. Problems
    are reported, but don't make a setup fail.
    """
    result = None if box.is_local else _update(reporter)
    if result is None:
        return ""
    alias = result.alias(box.known)
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
        what = cant_write(place.entries, error).what
        reporter.warn(f"the ssh config's entries are not kept: {what}")
        return None
    if result.changed:
        from bootstrap.sshconfig.task import follow_on_windows

        if result.trouble:
            reporter.warn(result.trouble)
        follow_on_windows(reporter)
    return result
