"""boxes, secrets: the boxes known on this machine, and the secrets that they hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bootstrap.tasks.command import BOX, JSON, Call, Option, command

if TYPE_CHECKING:
    from bootstrap.link.record import KnownBox


def _costs(box: KnownBox, now: float) -> str:
    from bootstrap.text.sizes import dollars, spent_in_words

    so_far = spent_in_words(now - box.costs_since, box.price)
    return f"{dollars(box.price)} an hour, about {so_far} so far" if so_far else ""


def _place(box: KnownBox) -> str:
    user = f"{box.user}@" if box.user else ""
    return f"{user}{box.address}:{box.port}" if box.address else box.host_text


_REMOVED = ("its name", "its pinned host key", "its last profile", "its entry in your ssh config")


_MOST_ENDED = 10
"""Number of boxes given back that are listed, the latest first."""


@command(
    JSON,
    Option("all_", "What the accounts have that you pay for: asks the providers.", False),
    Option("forget", f"Forget this box: {', '.join(_REMOVED)}."),
    changes=("forget",),
)
def boxes(call: Call) -> None:
    """List the boxes that are known here, the newest first; or all that your accounts pay for.

    Example: boxstrap boxes --all
    """
    from bootstrap.errors import UsageError
    from bootstrap.link.ended import ended_boxes
    from bootstrap.link.record import all_boxes, by_name, forget, is_newer, unreadable
    from bootstrap.sshconfig.alias import drop_alias
    from bootstrap.text.sizes import duration, spent
    from bootstrap.ui.layout import aligned

    name = call.given["forget"]
    if call.given["all_"]:
        if name:
            raise UsageError("--all lists, and --forget forgets: name one of them.")
        _list_rented(call)
        return
    if name:
        box = by_name(name) or next((lost for lost in unreadable() if lost.name == name), None)
        if box is None:
            raise UsageError(f"there is no box {name!r}.", hint="See which: boxstrap boxes")
        forget(box)
        drop_alias(call.screen)
        call.screen.result(
            {"forgotten": box.name, "removed": list(_REMOVED)},
            f"forgotten: {box.name} ({', '.join(_REMOVED)}). "
            "The box itself keeps running, and still costs money.",
        )
        return
    known = all_boxes()
    now = time.time()
    rows = aligned(
        (
            box.name,
            _place(box),
            box.profile or "-",
            f"seen {duration(max(0.0, now - box.seen))} ago",
            _costs(box, now),
        )
        for box in known
    )
    lost, ended = unreadable(), ended_boxes()
    rows += [
        f"{box.name}  was written by a newer boxstrap: update this one"
        if is_newer(box.folder)
        else f"{box.name}  can't be read: boxstrap boxes --forget {box.name}"
        for box in lost
    ]
    call.screen.result(
        {
            "boxes": [
                {
                    "name": box.name,
                    "host": box.host_text,
                    "address": box.address,
                    "port": box.port,
                    "user": box.user,
                    "profile": box.profile,
                    "seen": box.seen,
                    "price": box.price or None,
                    "dollars": spent(now - box.costs_since, box.price),
                }
                for box in known
            ],
            "unreadable": [box.name for box in lost],
            "ended": [
                {"name": box.name, "ended": box.ended, "spent": box.spent or None} for box in ended
            ],
        },
        "\n".join(
            [
                *(rows or ["no box is known yet: boxstrap setup --host …"]),
                *(_ended(box, now) for box in ended[:_MOST_ENDED]),
            ]
        ),
    )


def _ended(box: KnownBox, now: float) -> str:
    from bootstrap.text.sizes import dollars, duration

    cost = f", cost about {dollars(box.spent)}" if box.spent else ""
    return f"{box.name}  given back {duration(max(0.0, now - box.ended))} ago{cost}"


def _list_rented(call: Call) -> None:
    from dataclasses import replace

    from bootstrap.renting.listing import rented_here
    from bootstrap.runs.rented import ask_accounts

    found = ask_accounts()
    here = rented_here(
        [(each.provider.name, each.boxes) for each in found.accounts if not each.error], found.now
    )
    found = replace(found, rented_here=here.hosts)
    if found.accounts or here.unknown:
        data = {**found.as_dict(), "perhaps_rented": [each.as_dict() for each in here.unknown]}
        call.screen.result(data, "\n".join([found.text(), *here.lines()]))
    found.raise_for_status()


@command(
    *(option for option in BOX if option.name not in ("new_box", "name")),
    Option("wipe", "Take all secrets off the box.", False),
    changes=("wipe",),
)
def secrets(call: Call) -> None:
    """List secrets by name: where each comes from, which boxes hold it; or wipe a box of them.

    Example: boxstrap secrets --host my-box
    """
    from bootstrap.errors import UsageError
    from bootstrap.runs.held_secrets import list_secrets, wipe_secrets
    from bootstrap.ui.layout import aligned

    options = call.options()
    if not call.given["wipe"]:
        found = list_secrets(options, call.screen)
        call.screen.result(
            {"box": options.host, "secrets": [row.as_dict() for row in found]},
            "\n".join(aligned(row.cells() for row in found)) or "no secret is named or held",
        )
        return
    if options.host is None:
        raise UsageError("--wipe: of which box?", hint="Name it: --host BOX")
    wiped = wipe_secrets(options, call.screen)
    text = f"{wiped.box}: wiped {', '.join(wiped.names) or 'nothing: it held no secret'}"
    if wiped.names and wiped.runs:
        text += (
            f"\n{', '.join(wiped.runs)} is running: its processes keep the values that they were "
            "started with until they end"
        )
    if wiped.names:
        text += "\nThe next setup of a profile that names them sends them again."
    call.screen.result(
        {"box": wiped.box, "wiped": list(wiped.names), "running": list(wiped.runs)}, text
    )
