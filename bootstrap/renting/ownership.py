"""Find out which box of which account we are connected to.

The id that a box reports is no proof: it might name another box of the same account, which would
then be destroyed. It counts only if the account lists that id at exactly the address and port of
our login, and if no other known box has it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import NotSafeError, ProfileError
from bootstrap.link.exchange import answer_rows, run_script
from bootstrap.link.query import build_query
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.link.target import BoxOptions, parse_host
from bootstrap.link.wire import Wire
from bootstrap.profile.consent import load_profile
from bootstrap.profile.detect_provider import FALLBACK
from bootstrap.providers import place_of
from bootstrap.providers.accounts import PROVIDERS, find_account
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import RentedBox, RentedState

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BEFORE_ID = "C."  # what precedes the number in Vast.ai's label
_ANSWER_S = 30.0


@dataclass(frozen=True)
class OwnBox:
    account: CloudAccount
    box: RentedBox


def account_of(host: str) -> tuple[CloudAccount, str]:
    """Return the account and the id in `provider:id`. Raises UsageError if there is no key."""
    name, _, box_id = host.partition(":")
    account = find_account(name)
    if account is None:
        raise PROVIDERS[name].no_key(host, ", by which it would be ended")
    return account, box_id


def find_own(box: BoxLogin) -> OwnBox | str:
    """Return the account's box that the login leads to, or a sentence why it can't be determined.
    Raises NotSafeError if box and account contradict each other; UsageError, UnreachableError."""
    if box.is_local:
        return "this machine was not rented"
    if rented_host(box.known):
        account, box_id = account_of(box.known.host_text)
        return OwnBox(account, _checked(account, box_id, box))
    name, variables = _provider_of(box.options, box.known)
    if name is None:
        return "no account that boxstrap can ask has it"
    found, title = find_account(name), PROVIDERS[name].title
    if found is None:
        return f"there is no key of your account at {title} here"
    box_id = read_box_id(box.wire, variables)
    why = f"it doesn't say which box of your account at {title} it is"
    if box_id and box.endpoint and (box.endpoint.proxy_jump or box.endpoint.proxy_command):
        why = "another machine leads to it, so that its address proves nothing"
    elif box_id:
        if found.box(box_id):
            return OwnBox(found, _checked(found, box_id, box))
        why = f"your account at {title} has no box {box_id}, as it calls itself"
    return why


def rented_host(known: KnownBox) -> bool:
    """Whether the user named the box by its account's id."""
    return bool(known.host_text) and parse_host(known.host_text).is_rented


def read_box_id(wire: Wire, variables: Sequence[str]) -> str:
    """Return the id that the box reports; "" if none, or several. Raises as `exchange`."""
    if not variables:
        return ""
    query = build_query("box_id", names=" ".join(variables))
    said = set()
    for _, value in answer_rows(run_script(wire, query, timeout=_ANSWER_S)):
        box_id = value.partition("\t")[2].strip("\"'").removeprefix(_BEFORE_ID)
        if _ID.fullmatch(box_id):
            said.add(box_id)
    return said.pop() if len(said) == 1 else ""


def _provider_of(options: BoxOptions, known: KnownBox) -> tuple[str | None, list[str]]:
    """Return the account's name and the id variables, by the profile here or its provider's."""
    try:
        loaded = load_profile(options, kinds=())  # takes nothing from the user: no consent needed
        if loaded.needs_provider:
            loaded = loaded.for_provider(known.provider or FALLBACK)
    except ProfileError:
        return None, []
    provider = loaded.profile.provider
    return provider.account, list(provider.box_id)


def _checked(account: CloudAccount, box_id: str, box: BoxLogin) -> RentedBox:
    """Return the account's box with this id, after checking that we are connected to it."""
    rented = account.box(box_id)
    host = f"{account.name}:{box_id}"
    if rented is None or rented.state is RentedState.GONE or rented.id != box_id:
        raise NotSafeError(
            f"your account at {account.title} has no box {box_id}, and something answers "
            "where it was.",
            where=box.name,
            hint="Nothing was destroyed. See what it has: boxstrap boxes --all",
        )
    end = box.endpoint
    place = place_of(end.hostname, end.port, end.user) if end else ("", 0, "")
    if place not in {place_of(address, port, rented.user) for address, port in rented.ways()}:
        at = f"{rented.address}:{rented.port}" if rented.address else "no address"
        raise NotSafeError(
            f"your account at {account.title} has {host} at {at}, and this login leads to "
            f"{end.label if end else 'this machine'}: it may be another box.",
            where=box.name,
            hint=f"Nothing was destroyed. If you mean that one: boxstrap down --host {host}",
        )
    if others := [one for one in all_boxes() if one.host_text == host and one.name != box.name]:
        other = others[0].name
        raise NotSafeError(
            f"it says that it is {host}, and that is the box {other}.",
            where=box.name,
            hint=f"Nothing was destroyed. If you mean that one: boxstrap down --host {other}",
        )
    return rented
