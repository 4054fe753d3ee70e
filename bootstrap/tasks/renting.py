"""up, down: rent a box, and give it back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from bootstrap.errors import BoxstrapError, ReturnBoxError, UsageError
from bootstrap.sanitize import sanitize
from bootstrap.sizes import dollars, first_of, seconds_of
from bootstrap.tasks.command import BOX, EVENTS, HOSTS, JSON, MAX_SIZE, Call, command, for_each_box
from bootstrap.tasks.options import (
    COMMITTED,
    IDENTITY,
    OF_RENTING,
    PROFILE,
    REPO_MEANT,
    WAIT,
    Option,
)
from bootstrap.value import document, replace

if TYPE_CHECKING:
    from bootstrap.providers.offer import Offer
    from bootstrap.renting.up import FoundOffers, UpOptions
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.result import SetupResult

_T = TypeVar("_T")
_OF_A_NEW_BOX = [option for option in BOX if option.name not in ("host", "host_key", "new_box")]


@command(
    *_OF_A_NEW_BOX,
    *OF_RENTING,
    Option("another", "Rent one more, where this repository has one already.", False),
    Option("resume", "Go on with that run, whose box is gone, by train.resume: RUN or BOX/RUN."),
    Option("count", "So many boxes: the first is set up before the rest is rented.", 1),
    Option("group", "With --count: the group of these boxes; default: the repository's name."),
    Option("one_network", "With --count: in one private network, as train.nodes needs it.", False),
    Option("dry_run", "Show the offers; rent nothing.", False),
    EVENTS,
    COMMITTED,
    WAIT,
    changes=(),
    interrupted="Rented boxes keep running and cost money: boxstrap boxes --all\n"
    "To go on with it: {again}; to give it back: boxstrap down",
)
def up(call: Call) -> None:
    """Rent a box as the profile orders it, and take it to its first training step.
    Example: boxstrap up --provider vast --max-price 0.60 --set gpu.name="RTX 4090"
    """
    from bootstrap.setup.sequence import run_setup
    from bootstrap.tasks.setup_report import show_result

    request = up_request(call, call.request())
    if call.dry or call.given["dry_run"]:
        if call.given["one_network"]:
            request = replace(request, network="any", boxes=call.given["count"])
        _show_offers(call, request)
        return
    if call.given["resume"]:
        _resume(call, request)
        return
    if call.given["count"] != 1 or call.given["group"] or call.given["one_network"]:
        _rent_several(call, request)
        return

    def set_up(setup: SetupRequest) -> SetupResult:
        done = run_setup(setup, call.screen)
        if setup.rented is None:  # it was ready before
            _warn_of_earlier_runs(call, done)
        return done

    result = rent_shown(call, request, set_up)
    show_result(result, call.screen)
    result.raise_for_status()


def _warn_of_earlier_runs(call: Call, result: SetupResult) -> None:
    """Say that it is no new box, and which runs it has that this setup did not start."""
    from bootstrap.boxes.run import qualified, repository_names

    started = result.run.name if result.run and result.first_lines is not None else ""
    runs = [one for one in result.box_state.runs if one.name != started]
    if not runs:
        return
    names = repository_names({one.repo_key for one in runs})
    listed = [f"{qualified(one, names)} {one.outcome()}" for one in runs]
    call.screen.warn(
        f"{result.box} is the box that you had rented before, and no new one was rented. It has "
        f"{len(runs)} earlier run{'s' if len(runs) > 1 else ''}: "
        f"{'; '.join(first_of(listed, _MOST_NAMED))}. For a new box: --another"
    )


def _rent_several(call: Call, request: UpOptions) -> None:
    """Rent so many boxes, and set them up; what can't be had is in the table.

    The first one is taken to its first step before another is rented. Boxes that were rented before
    count, so the same command again gets what is missing. A training of several nodes begins once
    all are there. Raises BoxesFailedError.
    """
    from bootstrap.fleet.fan_out import raise_for_failures
    from bootstrap.renting.up import place_of, refuse_incomplete, rented_before, shared_among
    from bootstrap.repo.local import read_repository
    from bootstrap.setup.sequence import run_setup

    count = call.given["count"]
    if count < 1 or count > _MOST_BOXES or request.another:
        what = f"it is a number from 1 to {_MOST_BOXES}, without --another."
        raise UsageError(what, where="--count")
    group = call.given["group"] or read_repository(request.setup.place).name
    if call.given["one_network"]:
        request = _in_one_network(request, count, group)
    request = shared_among(request, count)
    every, known = rented_before(request)
    name = request.setup.name

    def one(at: int, host: str, price: float | None, *, another: bool) -> UpOptions:
        """Return the request for the box at this place: `host`, or a new one."""
        own = f"{name}-{at + 1}" if name and not host else None
        return replace(
            request,
            setup=replace(request.setup, host=None, name=own),
            max_price=request.max_price or price,
            another=another,
            instead_of=frozenset(each for each in every if each != host),
        )

    def set_up(setup: SetupRequest) -> SetupResult:
        return run_setup(setup, call.screen)

    # Not as another one: a rental that was undecided is found, and taken.
    first = rent_shown(call, one(0, known[0] if known else "", None, another=False), set_up)
    _note_group(first, group)
    call.screen.result({"first": first}, f"{first.box} is set up")
    box = first.login.known
    every, known = rented_before(request)
    known = [box.host_text, *(host for host in known if host != box.host_text)]
    wanted = [*known[:count], *[""] * (count - len(known))]
    if request.network:
        request = replace(request, beside=place_of(box.host_text))
        refuse_incomplete(known, count, call.screen)

    def begin(own: Call) -> None:
        at = int(own.among.rpartition(" ")[2]) - 1
        asked = one(at, wanted[at], box.price or None, another=not wanted[at])
        result = rent_shown(own, asked, lambda setup: run_setup(setup, own.screen))
        _note_group(result, group)
        own.screen.result({"box": result.box}, result.box)
        result.raise_for_status()

    call.given = {**call.given, "name": None}
    labels = [f"box {at}" for at in range(2, count + 1)]
    outcomes = for_each_box(call, labels, begin, brief=True) if labels else []
    came = 1 + sum(one.error is None for one in outcomes)
    text = f"\n{came} of {count} boxes are set up: --hosts {group}"
    call.screen.result({"group": group, "count": count, "came": came}, text)
    first.raise_for_status()
    raise_for_failures(outcomes)
    if request.setup.holds:
        _begin_on_all(call, group)


def _in_one_network(request: UpOptions, count: int, group: str) -> UpOptions:
    """Return the request for boxes that share a network, and leave a training of all of them to
    their common start. Raises UsageError for one of another number of nodes."""
    from bootstrap.renting.up import nodes_of
    from bootstrap.setup.sequence import alone_error

    nodes = nodes_of(request)
    if nodes not in (1, count):
        raise alone_error(nodes, count)
    setup = replace(request.setup, holds=nodes > 1)
    return replace(request, setup=setup, network=group, boxes=count)


def _begin_on_all(call: Call, group: str) -> None:
    """Begin the training of several nodes on the group's boxes. Raises BoxesFailedError."""
    from bootstrap.fleet.fan_out import raise_for_failures
    from bootstrap.fleet.hosts import choose
    from bootstrap.fleet.nodes import set_up_node
    from bootstrap.tasks.setup_report import show_result

    def begin(own: Call) -> None:
        result = set_up_node(own.request(), own.screen, own.among)
        show_result(result, own.screen)
        result.raise_for_status()

    raise_for_failures(for_each_box(call, choose((), group), begin, brief=True))


_MOST_BOXES = 64
_MOST_OFFERS = 20
_MOST_NAMED = 5


def _note_group(result: SetupResult, group: str) -> None:
    from bootstrap.link.record import save_box
    from bootstrap.link.registry import box_by_name

    known = box_by_name(result.box)
    if known is not None and known.group != group:
        save_box(replace(known, group=group))


def _resume(call: Call, request: UpOptions) -> None:
    from bootstrap.renting.rental import RentedNow
    from bootstrap.renting.resumption import resume_elsewhere

    name = call.given["resume"]
    rented, done = resume_elsewhere(request, name, call.screen, _confirm, call.show_lines)
    call.screen.result({"rented": RentedNow(rented), **document(done)}, f"\n{done.text()}")
    done.started.raise_for_status()


def resume_interrupted(call: Call) -> None:
    """Let runs whose box was taken away go on elsewhere, for `guard`. Raises as `_resume`."""
    from bootstrap.renting import resumption

    price = _dollars(call.given["max_price"], "--max-price")
    resumption.resume_interrupted(call.screen, price, _confirm, call.show_lines)


def up_request(call: Call, setup: SetupRequest) -> UpOptions:
    """Return the request for a box and this setup, by the options of renting. Raises UsageError."""
    from bootstrap.renting.up import UpOptions

    given = call.given
    text = given["wait_offer"]
    seconds = seconds_of(text) if text else 0
    if seconds is None:
        raise UsageError(f"{text!r} is no time.", where="--wait-offer", hint="As in: 30m, 2h")
    return UpOptions(
        setup,
        given["provider"],
        _dollars(given["max_price"], "--max-price"),
        _dollars(given["limit"], "--limit"),
        bool(given.get("another")),
        float(seconds),
    )


def rent_shown(call: Call, request: UpOptions, do: Callable[[SetupRequest], _T]) -> _T:
    """Rent a box, show which, and return what `do`, which sets it up, returns."""
    from bootstrap.renting.rental import RentedNow, of_host
    from bootstrap.renting.up import rent_and

    def tried(setup: SetupRequest) -> _T:
        try:
            return do(setup)
        except ReturnBoxError:
            raise
        except BoxstrapError:  # the box goes on, and costs
            ours = of_host(setup.host or "")
            call.screen.result({"rented": RentedNow(ours)} if ours else {})
            raise

    try:
        box, result = rent_and(tried, request, call.screen, _confirm)
    except ReturnBoxError as error:
        error.hint += "\nIt was rented before, so it is not given back automatically: boxstrap down"
        raise
    call.screen.result({"rented": RentedNow(box)})
    return result


@command(
    *HOSTS,
    JSON,
    Option("stop_runs", "End what runs or waits there first; on a terminal you are asked.", False),
    Option("discard", "Destroy it all the same; what goes with it is named.", False),
    MAX_SIZE,
    *(PROFILE, REPO_MEANT, IDENTITY),
    changes=(),
    interrupted="The box keeps running and costs money. To continue: {again}",
)
def down(call: Call) -> None:
    """Bring home what a box has, and destroy it; refused with the list of what would be lost.
    Example: boxstrap down --host my-box"""
    from bootstrap.renting.teardown import TeardownOptions, tear_down

    discard, stop_runs = call.given["discard"], call.given["stop_runs"]
    wish = TeardownOptions(call.max_size, discard, stop_runs, only_look=call.dry)
    tear_down(call.options(), call.screen, wish)


def _dollars(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        amount = float(text.removeprefix("$"))
    except ValueError:
        amount = 0.0
    if not 0 < amount < 100_000:
        raise UsageError(f"{text!r} is no amount of dollars.", where=option, hint="As in: 0.60")
    return amount


def _confirm(offer: Offer) -> None:
    """Ask the user on the terminal to agree to the price. Raises UsageError if not agreed."""
    from bootstrap.link.prompt import Prompt
    from bootstrap.renting.order import offered_gpus

    each = f"a cluster of {offer.boxes} boxes, each " if offer.boxes > 1 else ""
    asked = f"{offer.provider}: {each}{sanitize(offered_gpus(offer))} "
    asked += f"at {dollars(offer.price)} an hour"
    if offer.region:
        asked += f", in {sanitize(offer.region)}"
    prompt = Prompt(print)
    if not prompt.has_terminal():
        answer = ("--max-price", f"{offer.price + 0.005:.2f}")
        error = UsageError(
            f"{asked}: nobody said what it may cost, and there is no terminal to ask.",
            hint=f"To take such a one: {' '.join(answer)}",
        )
        error.answered_by = answer
        raise error
    if not prompt.confirm(f"{asked}. Rent it?"):
        raise UsageError(
            "nothing was rented.", hint="See what else there is: boxstrap up --dry-run"
        )


def _whole_cost(found: FoundOffers) -> str:
    """Return what `up` would ask for first costs in all of its lease, and whether a cap forbids."""
    from bootstrap.providers.estimate import Usage, cost_of
    from bootstrap.renting import money

    if not found.fitting:
        return ""
    caps = money.read_caps()
    dear = caps.max_price or math.inf
    first = next((each for each in found.fitting if each.price <= dear), found.fitting[0])
    hours = money.lease_hours(found.order, first.price)
    total = cost_of(Usage(hours), first.price * first.boxes).total
    said = f"\nwhat up asks for first, for the {round(hours, 1):g} hours of its lease: "
    said += dollars(total)
    try:
        money.check_caps(caps, money.RentalTerms(first.price, hours, first.boxes), time.time())
    except money.OverCapError as error:
        said += f"\n{error.what}"
    return said


def _show_offers(call: Call, request: UpOptions) -> None:
    from bootstrap.renting.order import FoundOffer, left_by, no_offer
    from bootstrap.renting.up import find_offers
    from bootstrap.ui.layout import aligned

    found = find_offers(request)
    order = found.order
    offers = [FoundOffer(offer, order) for offer in found.fitting]
    nearest = [FoundOffer(offer, order) for offer in found.others[:20]]
    data = {"order": order, "offers": offers, "nearest": nearest}
    if not found.fitting:
        data["left"] = left_by(found.others, order)
    asks = found.asks
    if asks and asks.digest != request.setup.consent:
        data["consent"] = asks
    rows = [offer.cells() for offer in offers[:_MOST_OFFERS]]
    shown = "\n".join(sanitize(line) for line in aligned(rows))
    shown += _whole_cost(found)
    more = len(found.fitting) - len(rows)
    shown += f"\nand {more} more" if more > 0 else ""
    if "consent" in data and asks:
        listed = "".join(f"\n  {sanitize(str(each))}" for each in asks.each)
        shown += f"\nup will ask whether this repository's profile may take from you:{listed}"
        shown += f"\nWhere nobody can answer: --consent {asks.digest}"
    call.screen.result(data, shown)
    if not found.fitting:
        raise no_offer(found.others, order)
