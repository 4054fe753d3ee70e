"""Which runs at home are meant, where their box is gone or can't be reached."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bootstrap.boxes.at_home import RunAtHome, all_kept, kept_of_repository
from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BoxstrapError, UnreachableError, UsageError, WhichBoxError
from bootstrap.link.record import all_boxes, box_by_name, ended_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.protocol.run import repository_names
from bootstrap.ui.screen import Screen

_SHOWN = 20


def as_of(kept: RunAtHome) -> str:
    """Say that it is shown from here, and how old that is."""
    return f"{kept.run.name} of {kept.box}: from home, as of {_moment(kept.seen)}"


def box_or_home(
    options: BoxOptions,
    screen: Screen,
    names: Sequence[str],
    *,
    every: bool = False,
    with_details: bool = False,
) -> BoxLogin | list[RunAtHome]:
    """Connect to the box that has these runs (none: its newest), or return the runs from home.

    That is done if the box was given back, can't be reached, or lacks the run. Raises as
    `connect` and `BoxLogin.runs`, if they are not at home either.
    """
    if gone := find_gone(options, names):
        return gone
    box = None
    try:
        box = BoxLogin.open(options, screen, with_details=with_details)
        asked: list[str | None] = [*names]
        for name in asked or [None]:
            box.runs(name, every=every)
    except (UnreachableError, UsageError) as error:
        if box:
            box.close()
        return kept_instead(options, names, error, screen)
    except BaseException:
        if box:
            box.close()
        raise
    return box


def find_gone(options: BoxOptions, names: Sequence[str] = ()) -> list[RunAtHome]:
    """Return the runs that are meant of a box that was given back; none if no such box is.

    Raises UsageError if there is such a box, and a named run of it is not here.
    """
    host = options.host
    if host is None or box_by_name(host) or host not in {box.name for box in ended_boxes()}:
        return []
    found = runs_from_home(host)
    chosen = _chosen(found, names)
    if len(chosen) < max(1, len(names)):
        listed = "".join(f"\n  --run {one.run.name}" for one in found[:_SHOWN])
        what = f"of its runs came home:{listed}" if found else "no run of it came home"
        raise UsageError(
            f"it was given back, and {what}", where=host, hint="See all: boxstrap runs --all"
        )
    return chosen


def runs_from_home(host: str) -> list[RunAtHome]:
    """Return all runs at home of a box, the newest first; with that name or that host."""
    return [one for one in all_kept() if host in (one.box, one.host) and one.place]


def kept_instead(
    options: BoxOptions, names: Sequence[str], error: BoxstrapError, screen: Screen
) -> list[RunAtHome]:
    """Return the runs that are meant and are here, since their box could not be asked.

    If that is because the run is on no box, only runs of boxes that are gone count. Raises
    `error` if there are none.
    """
    if isinstance(error, WhichBoxError) and error.has_several:
        raise error
    found = _here(options, is_unreachable=isinstance(error, UnreachableError))
    chosen = _chosen(found, names)
    if len(chosen) < max(1, len(names)):
        raise error
    boxes = {one.box for one in found if not names or _is_named(one, names)}
    if options.host is None and len(boxes) > 1:
        listed = "".join(f"\n  --host {box}" for box in sorted(boxes))
        what = f"which box? Runs that are meant came home from {len(boxes)}:{listed}"
        raise UsageError(what, hint="Name one of them; boxstrap runs lists them.") from None
    if isinstance(error, UnreachableError):
        screen.warn(error.text())
    return chosen


def _here(options: BoxOptions, *, is_unreachable: bool) -> list[RunAtHome]:
    known = {(box.name, box.created) for box in all_boxes()}
    found = [one for one in all_kept() if is_unreachable or (one.box, one.created) not in known]
    found = [one for one in found if one.place]
    if options.host is not None:
        return [one for one in found if options.host in (one.box, one.host)]
    return kept_of_repository(found, options.repository[0])


def _chosen(found: Sequence[RunAtHome], names: Sequence[str]) -> list[RunAtHome]:
    """Return the newest run of each name, or the newest of all."""
    if not names:
        return [*found[:1]]
    each = (next((one for one in found if _is_named(one, [name])), None) for name in names)
    return [one for one in each if one]


def _is_named(one: RunAtHome, names: Sequence[str]) -> bool:
    short = next(iter(repository_names([one.repository]).values()))
    every = (one.run.name, f"{short}/{one.run.name}", f"{one.repository}/{one.run.name}")
    return any(name in every for name in names)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
