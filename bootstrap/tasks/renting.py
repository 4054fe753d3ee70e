"""up, down: rent a box, and give it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import ReturnBoxError, UsageError
from bootstrap.tasks.command import BOX, HOST, JSON, Call, Option, command
from bootstrap.tasks.setup import COMMITTED, WAIT

if TYPE_CHECKING:
    from bootstrap.providers.offer import Offer
    from bootstrap.renting.up import UpRequest

_OF_A_NEW_BOX = [option for option in BOX if option.name not in ("host", "host_key", "new_box")]


@command(
    *_OF_A_NEW_BOX,
    Option("provider", "Whose offers: vast, runpod or lambda; default: the profile's, or all."),
    Option("max_price", "Dollars an hour that it may cost; then nobody is asked."),
    Option(
        "limit",
        "Dollars to spend at most on boxes that turn out unusable; default: an hour's price.",
    ),
    Option("another", "Rent one more, where this repository has one already.", False),
    Option("dry_run", "Show the offers; rent nothing.", False),
    COMMITTED,
    WAIT,
    changes=(),
    interrupted="Rented boxes keep running and cost money: boxstrap boxes --all\n"
    "To go on with it: boxstrap up; to give it back: boxstrap down",
)
def up(call: Call) -> None:
    """Rent a box as the profile orders it, and take it to its first training step.

    Example: boxstrap up --provider vast --max-price 0.60 --set gpu.name="RTX 4090"
    """
    from bootstrap.renting.up import UpRequest, rent_and_set_up
    from bootstrap.tasks.setup_report import show_result

    given = call.given
    request = UpRequest(
        call.request(),
        given["provider"],
        _dollars(given["max_price"], "--max-price"),
        _dollars(given["limit"], "--limit"),
        given["another"],
    )
    if call.dry or given["dry_run"]:
        _show_offers(call, request)
        return
    try:
        box, result = rent_and_set_up(request, call.screen, _confirm)
    except ReturnBoxError as error:
        error.hint += "\nIt was rented before, so it is not given back automatically: boxstrap down"
        raise
    rented = {"host": box.host, "mark": box.mark, "price": box.price, "gpu": box.gpu}
    call.screen.result({"rented": rented})
    show_result(result, call.screen)
    result.raise_for_status()


@command(
    HOST,
    JSON,
    Option("stop_runs", "End what runs or waits there first; on a terminal you are asked.", False),
    Option("discard", "Destroy it all the same; what goes with it is named.", False),
    Option("max_size", "What a run's results may be at the most, as in 200G.", "50G"),
    Option("profile", "A profile: its name, or a path."),
    Option("repo", "The repository that is meant; default: that of the current folder."),
    Option("identity", "The private key to log in with."),
    changes=(),
    interrupted="The box keeps running and costs money. To continue: boxstrap down",
)
def down(call: Call) -> None:
    """Bring home what a box has, and destroy it; refused with the list of what would be lost.

    Example: boxstrap down --host my-box
    """
    from bootstrap.renting.teardown import TeardownWish, tear_down
    from bootstrap.text.sizes import bytes_of

    given = call.given
    most = bytes_of(given["max_size"])
    if most is None:
        raise UsageError(f"--max-size: {given['max_size']!r} is no size.", hint="As in: 50G, 1.5T")
    wish = TeardownWish(most, given["discard"], given["stop_runs"], only_look=call.dry)
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
    from bootstrap.text.sanitize import sanitize
    from bootstrap.text.sizes import dollars

    asked = f"{offer.provider}: {sanitize(offered_gpus(offer))} at {dollars(offer.price)} an hour"
    if offer.region:
        asked += f", in {sanitize(offer.region)}"
    prompt = Prompt(print)
    if not prompt.has_terminal():
        raise UsageError(
            f"{asked}: nobody said what it may cost, and there is no terminal to ask.",
            hint=f"To take such a one: --max-price {offer.price + 0.005:.2f}",
        )
    if not prompt.confirm(f"{asked}. Rent it?"):
        raise UsageError(
            "nothing was rented.", hint="See what else there is: boxstrap up --dry-run"
        )


def _show_offers(call: Call, request: UpRequest) -> None:
    from bootstrap.renting.order import as_dict, no_offer, offer_rows
    from bootstrap.renting.up import find_offers
    from bootstrap.text.sanitize import sanitize
    from bootstrap.ui.layout import aligned

    found = find_offers(request)
    order = found.order
    near = found.others[:20]
    data = {
        "order": vars(order),
        "offers": [as_dict(offer, order) for offer in found.fitting],
        "nearest": [as_dict(offer, order) for offer in near],
    }
    rows = offer_rows(found.fitting, order)
    shown = "\n".join(sanitize(line) for line in aligned(rows))
    more = len(found.fitting) - len(rows)
    call.screen.result(data, f"{shown}\nand {more} more" if more > 0 else shown)
    if not found.fitting:
        raise no_offer(found.others, order)
