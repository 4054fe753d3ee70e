"""Find the user's accounts, by the API keys that are there, and a box of an account."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import isabstract

from bootstrap import providers
from bootstrap.errors import BoxstrapError, UnreachableError, UsageError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import RentedBox, RentedState
from bootstrap.sizes import dollars


def _provider(place: str) -> type[CloudAccount]:
    module, _, name = place.partition(".")
    found: type[CloudAccount] = getattr(import_module(f"{providers.__name__}.{module}"), name)
    return found


def _outside() -> tuple[dict[str, type[CloudAccount]], dict[str, str]]:
    """Return the classes of other packages by name; and those that can't be used, with the reason.
    A package may do anything when it is imported, and whatever it raises breaks no command."""
    found, broken = dict[str, type[CloudAccount]](), dict[str, str]()
    for name, point in providers.outside().items():
        package = point.dist.name if point.dist else point.value
        try:
            made = point.load()
        except Exception as error:
            broken[name] = f"{package} can't be loaded: {type(error).__name__}: {error}"
            continue
        if not (isinstance(made, type) and issubclass(made, CloudAccount)) or isabstract(made):
            broken[name] = f"{package}: {point.value} is no whole subclass of CloudAccount"
        elif getattr(made, "name", None) != name:
            broken[name] = f"{package}: {point.value} calls itself {getattr(made, 'name', '')!r}"
        else:
            found[name] = made
    return found, broken


_theirs, BROKEN = _outside()
PROVIDERS: Mapping[str, type[CloudAccount]] = {
    **{name: _provider(place) for name, place in providers.CLASSES.items()},
    **_theirs,
}
"""By name: ours, then those of other packages. `BROKEN`: why one of another package is left out."""


@contextlib.contextmanager
def blaming(provider: type[CloudAccount]) -> Iterator[None]:
    """Turn whatever another package's provider raises into an UnreachableError that names it."""
    try:
        yield
    except BoxstrapError:
        raise
    except Exception as error:
        if provider.__module__.startswith(f"{providers.__name__}."):
            raise
        raise UnreachableError(
            f"the package of {provider.title} failed: {type(error).__name__}: {error}",
            where=provider.name,
            hint=f"Tell whoever wrote it ({provider.__module__}), or uninstall it.",
        ) from error


def find_account(name: str) -> CloudAccount | None:
    """Return the account at this provider; None if there is no key for it."""
    if name in BROKEN:
        raise UsageError(BROKEN[name], where=name)
    key = PROVIDERS[name].keys.find()
    return PROVIDERS[name](key) if key else None


def no_keys(looked_at: Iterable[type[CloudAccount]]) -> UsageError:
    places = "\n".join(f"  {one.title}: {one.keys}" for one in looked_at)
    return UsageError(
        f"no key of an account was found. Looked at:\n{places}",
        hint="Put the key of yours there; it stays on this machine.",
    )


def never_stops(name: str) -> UsageError:
    return UsageError(
        f"{PROVIDERS[name].title} stops no box: it can only be ended, with all that is on it.",
        where="lease.then",
        hint="Agree to that: --set lease.then=destroy",
    )


def find_rented(host: str) -> RentedBox:
    """Return the box that `provider:id` names. Raises UsageError without a key or such a box,
    UnreachableError if the account can't be asked, or says that the box can't be reached now."""
    name, _, box_id = host.partition(":")
    account = find_account(name)
    if account is None:
        raise PROVIDERS[name].no_key(host)
    box = account.box(box_id)
    if box is None or box.state is RentedState.GONE:
        gone = UsageError(
            f"your account at {account.title} has no box {box_id}.",
            where=host,
            hint="See which it has: boxstrap boxes --all",
        )
        gone.has_ended = True
        raise gone
    if not box.address:
        price = box.stopped_price
        costs = "" if price is None else f", {dollars(price)} an hour"
        hint = _WHAT_NEXT[box.state].format(costs=costs)
        error = UnreachableError(_why_not(box), where=host, hint=hint)
        error.has_ended = box.state is RentedState.STOPPED
        error.stopped = host if error.has_ended and account.stops else ""
        raise error
    with contextlib.suppress(BoxstrapError):  # the login says whether it is let in
        box = replace(box, let_in=account.let_in(box_id))
    return box


_WHAT_NEXT = {
    RentedState.STARTING: "Wait a minute or two, and run the same command again.",
    RentedState.STOPPED: "At a terminal this command offers to start it; without one start it on "
    "the provider's page, or, where this repository rented it, by: boxstrap up --max-price PRICE. "
    "What is stopped still costs its disk{costs}. If others bid more for it, its run can go on on "
    "another box: boxstrap up --resume RUN",
    RentedState.BROKEN: "Look at the provider's page; if the box stays broken, give it back.",
}
_WHAT_NEXT |= dict.fromkeys(
    (RentedState.RUNNING, RentedState.UNKNOWN),
    "See on the provider's page how it is reached by SSH.",
)


def _why_not(box: RentedBox) -> str:
    said = f" ({box.said})" if box.said else ""
    if box.state is RentedState.RUNNING:
        return f"it is running, but can't be reached by SSH{said}."
    return f"it can't be reached: it is {box.state.value}{said}."
