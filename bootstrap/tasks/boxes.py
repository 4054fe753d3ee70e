"""The commands on boxes: what is known of them, what they hold, their leases, ways to them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError, UnreachableError, UsageError
from bootstrap.sizes import dollars, duration, spent, spent_in_words
from bootstrap.tasks.command import BOX, HOST, JSON, Call, command, own_error
from bootstrap.tasks.options import IDENTITY, REPO_MEANT, Option
from bootstrap.value import Document, dataclass, document, replace

if TYPE_CHECKING:
    from bootstrap.link.record import KnownBox
    from bootstrap.renting.guard import GuardedBox
    from bootstrap.ui.screen import Screen


@dataclass(frozen=True)
class ListedBox(Document):
    """A box that is known here, its repositories and live runs, and its cost so far."""

    KEYS = (
        "name=box.name, host=box.host_text, address=box.address, port=box.port, user=box.user, "
        "profile=box.profile, repositories, running, seen=box.seen, connected, "
        "price=box.price or None, dollars"
    )

    box: KnownBox
    running: list[str]  # the runs that were alive or waiting when it was asked last
    connected: bool
    now: float

    @property
    def repositories(self) -> list[str]:
        return [each.key for each in self.box.repositories]

    @property
    def dollars(self) -> float | None:
        return spent(self.now - self.box.costs_since, self.box.price)

    def cells(self) -> tuple[str, ...]:
        box = self.box
        user = f"{box.user}@" if box.user else ""
        cost = spent_in_words(self.now - box.costs_since, box.price)
        from bootstrap.boxes.run import called, repository_names

        own = (each.stood_in or each.key for each in box.repositories)
        more = [f"+{len(self.running) - _MOST_RUNS}"] if len(self.running) > _MOST_RUNS else []
        return (
            box.name,
            f"{user}{box.address}:{box.port}" if box.address else box.host_text,
            box.profile or "-",
            ", ".join(repository_names(own).values()) or "-",
            (", ".join([*map(called, self.running[:_MOST_RUNS]), *more]) or "-"),
            f"{duration(max(0.0, self.now - box.seen))} ago" + ", connected" * self.connected,
            f"{dollars(box.price)} an hour, about {cost} so far" if cost else "-",
        )


@dataclass(frozen=True)
class EndedBox(Document):
    """A box that was given back, and its cost."""

    KEYS = "name=box.name, ended=box.ended, spent=box.spent or None"

    box: KnownBox

    def line(self, now: float) -> str:
        cost = f", cost about {dollars(self.box.spent)}" if self.box.spent else ""
        ago = duration(max(0.0, now - self.box.ended))
        return f"{self.box.name}  given back {ago} ago{cost}"


_HEAD = ("BOX", "REACHED AT", "PROFILE", "REPOSITORIES", "RUNNING", "LAST SEEN", "COST")
_FIRST = 3  # cells in the first line of a row, where the terminal is too narrow for one
_MOST_RUNS = 3  # number of runs that are named for each box
_REMOVED = ("its name", "its pinned host key", "its last profile", "its entry in your ssh config")
_MOST_ENDED = 10  # number of boxes given back that are listed, the latest first


@command(
    JSON,
    Option("all_", "What the accounts have that you pay for: asks the providers.", False),
    Option("group", "Only those of this group."),
    Option("forget", f"Forget this box: {', '.join(_REMOVED)}. Repeatable.", many=True),
    changes=("forget",),
)
def boxes(call: Call) -> None:
    """List the boxes that are known here, the newest first; or all that your accounts pay for.
    Example: boxstrap boxes --all"""
    from bootstrap.boxes.at_home import last_met
    from bootstrap.link import shared
    from bootstrap.link.record import all_boxes, ended_boxes, is_newer, unreadable_record
    from bootstrap.runs.known_runs import known_on
    from bootstrap.ui.layout import laid_out

    names = call.given["forget"]
    if call.given["all_"]:
        if names or call.given["group"]:
            raise UsageError("--all, --group or --forget: name one of them.")
        _list_rented(call)
        return
    if names:
        _forget(call, list(dict.fromkeys(names)))
        return
    known = all_boxes()
    if call.given["group"]:
        from bootstrap.fleet.hosts import choose

        meant = set(choose([], call.given["group"]))
        known = [box for box in known if not meant.isdisjoint((box.name, box.host_text))]
    now = time.time()
    listed = []
    for box in known:
        running = [one.run.name for one in known_on(box) if one.run.goes_on]
        met = replace(box, seen=last_met(box))
        listed.append(ListedBox(met, running, shared.is_open(box), now))
    table = laid_out([_HEAD, *(one.cells() for one in listed)], call.screen.width, _FIRST)
    rows = [line for row in table for line in row] if listed else []
    lost, ended = unreadable_record(), ended_boxes()
    rows += [
        f"{box.name}  was written by a newer boxstrap: update this one"
        if is_newer(box.folder)
        else f"{box.name}  can't be read: boxstrap boxes --forget {box.name}"
        for box in lost
    ]
    call.screen.result(
        {
            "boxes": listed,
            "unreadable": [box.name for box in lost],
            "ended": [*map(EndedBox, ended)],
        },
        "\n".join(
            [
                *(rows or ["no box is known yet: boxstrap setup --host …"]),
                *(EndedBox(box).line(now) for box in ended[:_MOST_ENDED]),
            ]
        ),
    )


def _forget(call: Call, names: Sequence[str]) -> None:
    """Raises UsageError if one of them is no known box: then none is forgotten."""
    from bootstrap.boxes.alias import drop_alias
    from bootstrap.boxes.at_home import all_kept, seen_on
    from bootstrap.link import shared
    from bootstrap.link.forgotten import forget_box, is_forgotten
    from bootstrap.link.record import unreadable_record
    from bootstrap.link.registry import box_by_name

    lost = {box.name: box for box in unreadable_record()}
    meant = {}
    for name in names:
        box = box_by_name(name) or lost.get(name)
        if box is None:
            what = f"there is no box {name!r}."
            what = f"{name} was forgotten here before." if is_forgotten(name) else what
            raise UsageError(what, hint="See which: boxstrap boxes")
        meant[box.name] = box
    told = []
    for box in meant.values():
        shared.close(box)
        only_there = {one.id for one in seen_on(box)} - {one.id for one in all_kept()}
        forget_box(box)
        unlisted = f"Runs that never came home, and are no longer listed: {len(only_there)}. "
        told.append(
            f"forgotten: {box.name} ({', '.join(_REMOVED)}). {unlisted if only_there else ''}"
            "The box itself was not ended: while it runs, it costs money."
        )
    drop_alias(call.screen)
    call.screen.result({"forgotten": [*meant], "removed": list(_REMOVED)}, "\n".join(told))


def _list_rented(call: Call) -> None:
    from bootstrap.renting.rental import rented_here
    from bootstrap.runs.rented import ask_accounts

    found = ask_accounts()
    answers = {each.provider.name: each.boxes for each in found.accounts if not each.error}
    here = rented_here(answers, found.now)
    found = replace(found, rented_here=here.hosts)
    if found.accounts or here.unknown:
        data = {**document(found), "perhaps_rented": here.unknown}
        call.screen.result(data, found.text(here.lines()))
    found.raise_for_status()
    if lost := {each.provider for each in here.unknown} - {*answers, ""}:
        what = "no key of its account is here: what is rented there isn't known."
        raise UnreachableError(what, where=", ".join(sorted(lost)))


@command(
    *(option for option in BOX if option.name not in ("new_box", "name")),
    Option("wipe", "Take all secrets off the box.", False),
    changes=("wipe",),
)
def secrets(call: Call) -> None:
    """List secrets by name: where each comes from, which boxes hold it; or wipe a box of them.
    Example: boxstrap secrets --host my-box"""
    from bootstrap.runs.upkeep import list_secrets, wipe_secrets
    from bootstrap.ui.layout import aligned

    options = call.options()
    if not call.given["wipe"]:
        found = list_secrets(options, call.screen)
        call.screen.result(
            {"box": options.host, "secrets": found},
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
        text += (
            "\nNot wiped: logs, and other files that programs wrote there. A value that was "
            "printed is still in them, and the box redacts it no more."
            "\nThe next setup of a profile that names them sends them again."
        )
    call.screen.result(
        {"box": wiped.box, "wiped": list(wiped.names), "running": list(wiped.runs)}, text
    )


@command(
    *(HOST, JSON, IDENTITY),
    REPO_MEANT,
    Option(
        "discard", "A tree that goes with all it holds, as in homework@2. Repeatable.", many=True
    ),
    Option("yes", "Remove what is listed, without a question.", False),
    changes=(),
)
def clean(call: Call) -> None:
    """Remove what a box can do without: trees of runs that are over, results at home, downloads.
    Example: boxstrap clean --host my-box"""
    from bootstrap.runs.upkeep import clean_box

    given = call.given
    discard = tuple(given["discard"])
    clean_box(call.options(), call.screen, discard=discard, look=call.dry, agreed=given["yes"])


@command(
    *(HOST, JSON, IDENTITY),
    Option("extend", "Add so much time to it, as in 2h (m, h, d)."),
    Option("release", "End it: nothing ends the box any more.", False),
    changes=("extend", "release"),
)
def lease(call: Call) -> None:
    """Say what is left of a box's lease, and who holds it; extend it, or end it.
    Example: boxstrap lease --host my-box --extend 2h"""
    from bootstrap.runs.upkeep import show_lease

    def check(box: KnownBox, added_s: float) -> None:
        from bootstrap.renting.money import check_longer_lease

        check_longer_lease(box, added_s, time.time())

    given = call.given
    show_lease(
        call.options(), call.screen, extend=given["extend"], release=given["release"], check=check
    )


@command(
    JSON,
    Option("once", "Look once, and leave: for a cron line.", False),
    Option("resume", "Let runs of spot boxes that were taken away go on on another box.", False),
    Option("max_price", "Dollars an hour that such a box may cost; default: rent.max_price."),
    changes=("once",),
)
def guard(call: Call) -> None:
    """End the boxes whose lease is over and that can't hold it themselves, from this machine.
    Example: boxstrap guard --once"""
    from bootstrap.renting.guard import guard_once
    from bootstrap.tasks.renting import resume_interrupted

    if not call.given["once"]:
        found = shutil.which(sys.argv[0])  # its full path, because cron has a different PATH
        program = shlex.quote(str(Path(found).absolute()) if found else "boxstrap")
        raise UsageError(
            "guard needs --once.",
            hint="Let cron call it, with a line in `crontab -e`:\n"
            f"  */5 * * * * {program} guard --once >/dev/null",
        )
    try:
        guard_once(call.screen, _look_at_all)
    finally:
        if call.given["resume"]:
            resume_interrupted(call)


def _look_at_all(
    boxes: Sequence[KnownBox], look: Callable[[KnownBox, Screen], GuardedBox]
) -> list[GuardedBox | BoxstrapError]:
    """Look at the boxes at the same time; what is reported meanwhile has the box's name before it.
    An error of one box, also of ours, is that box's result."""
    from bootstrap.fleet.fan_out import fan_out
    from bootstrap.fleet.screens import plain_screens

    by_name = {box.name: box for box in boxes}
    screens = plain_screens([*by_name], brief=True)

    def work(name: str) -> GuardedBox:
        try:
            return look(by_name[name], screens[name])
        except BoxstrapError:
            raise
        except Exception as error:
            raise own_error(error, screens[name].redact) from None

    outcomes = fan_out([*by_name], work, at_once=len(boxes))
    return [end for one in outcomes if (end := one.value or one.error)]


@command(
    *(HOST, JSON, IDENTITY),
    Option("repo", "The repository whose box is meant where no host is given."),
    Option("editor", "The editor: code, cursor, windsurf or codium.", "code"),
)
def code(call: Call) -> None:
    """Open the repository on a box in VS Code, or another editor made of it.
    Example: boxstrap code --host my-box --editor cursor"""
    from bootstrap.runs.editors import open_code

    open_code(call.options(), call.screen, call.given["editor"])


@command(JSON, Option("remove", "Bring your ssh config back as it was, and leave it alone.", False))
def ssh_config(call: Call) -> None:
    """Let ssh, scp, rsync and editors reach the known boxes by name. A setup does it by itself.
    Example: boxstrap ssh-config"""
    from bootstrap.boxes.alias import remove_entries, write_entries

    if call.given["remove"]:
        remove_entries(call.screen)
    else:
        write_entries(call.screen)


@command(
    HOST,
    Option(
        "json_", "JSON lines on standard output: the addresses, and how it ended.", JSON.default
    ),
    IDENTITY,
    REPO_MEANT,
    Option(
        "port",
        "A port of the box; HERE:PORT; HERE:ADDRESS:PORT, as in ssh's -L. Repeatable, and the word "
        "--port may be left out.",
        many=True,
        bare=True,
    ),
    Option("jupyter", "JupyterLab, with the repository's environment as its kernel.", False),
    Option("tensorboard", "TensorBoard, of what the training wrote.", False),
    Option("logdir", "The folder that TensorBoard shows, in the tree; default: where files are."),
    Option("no_open", "Don't open a browser.", False),
    Option("stop", "End Jupyter and TensorBoard on the box, or the one that is named.", False),
)
def tunnel(call: Call) -> None:
    """Open ports of a box here, or Jupyter or TensorBoard on it, over its login; Ctrl-C closes.
    Example: boxstrap tunnel --host my-box --jupyter"""
    from bootstrap.runs.tunnel import TunnelOptions, open_tunnels, stop_servers

    given = call.given
    wish = TunnelOptions(
        ports=given["port"] or (),
        jupyter=given["jupyter"],
        tensorboard=given["tensorboard"],
        logdir=given["logdir"] or "",
        opens=not given["no_open"],
    )
    if given["stop"]:
        stop_servers(call.options(), call.screen, wish)
        return
    with contextlib.suppress(KeyboardInterrupt):  # the normal way to end it
        open_tunnels(call.options(), call.screen, wish, as_json=call.is_json)
