"""The box's alias in the user's ssh config, kept right at the end of a setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import cant_write
from bootstrap.sshconfig.place import ConfigPlace, find_place

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxHandle
    from bootstrap.sshconfig.update import UpdateResult
    from bootstrap.ui.screen import Screen


def preload(box: BoxHandle) -> None:
    """Load what `update_alias` needs: there is time for it while a box answers."""
    if not box.is_local and _wanted() is not None:
        import bootstrap.sshconfig.update  # noqa: F401


def update_alias(box: BoxHandle, screen: Screen) -> str:
    """What to type after `ssh` from now on; "" where nothing leads there.

    Nothing is written for `local`, nor where the user wants none. What goes
    wrong here is said, and is no reason for a setup to fail.
    """
    result = None if box.is_local else _update(screen)
    if result is None:
        return ""
    alias = result.alias(box.known)
    if result.changed and alias:
        screen.say(f"`ssh {alias}` leads to this box, for scp, rsync and editors too")
    return alias


def drop_alias(screen: Screen) -> None:
    """After a box was forgotten."""
    place = _wanted()
    if place is not None and place.entries.exists():
        _update(screen)


def _wanted() -> ConfigPlace | None:
    place = find_place()
    return None if place is None or place.off.exists() else place


def _update(screen: Screen) -> UpdateResult | None:
    place = _wanted()
    if place is None:
        return None
    from bootstrap.sshconfig.update import update

    try:
        result = update(place)
    except OSError as error:
        what = cant_write(place.entries, error).what
        screen.warn(f"the ssh config's entries are not kept: {what}")
        return None
    if result.changed:
        from bootstrap.sshconfig.task import follow_on_windows

        if result.trouble:
            screen.warn(result.trouble)
        follow_on_windows(screen)
    return result
