"""Which box a host means, or a command without one: known boxes, and where they are reached.

Rented addresses are reused, so several boxes may have one address: the newest is meant, and
`--new-box` makes another. Without a host only boxes of the current repository are meant
(docs/adr/0021). Hosts given by an account's id (`provider:id`): where they are reached now.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bootstrap.errors import HostKeyError, UnreachableError, UsageError, WhichBoxError
from bootstrap.link import record
from bootstrap.link.endpoint import Endpoint, has_alias, has_keys, resolve, resolved
from bootstrap.link.target import PLAIN_HOST, BoxOptions, Target, parse_host
from bootstrap.paths import expanded, shipped
from bootstrap.providers import FIXED_END, is_shared, place_of
from bootstrap.value import replace

_LISTED = 20
_HOME = "What came home from there: boxstrap runs"
_NEW = (
    'Say how it is reached: --host root@ADDRESS:PORT, or --host "ssh -p PORT root@…" '
    "as the provider's page shows it."
    "\nOr rent one: boxstrap up --dry-run shows what there is."
)


def only_box(key: str) -> record.KnownBox:
    """Return the box that a command without a host means: the only one of the repository `key`.
    Never another repository's, even if no other box is known. Raises WhichBoxError."""
    found = _boxes_of(key)
    if len(found) > 1:
        raise _which_box(f"{record.name_of_key(key)} has {len(found)}", found, has_several=True)
    return found[0]


def boxes_to_show(key: str) -> list[record.KnownBox]:
    """Return the boxes that `status` and `top` mean without a host: all of the repository `key`,
    and outside a repository all that are known. Raises WhichBoxError if there is none."""
    return (not key and record.all_boxes()) or _boxes_of(key)


def meant(options: BoxOptions, hosts: Sequence[str]) -> list[BoxOptions]:
    """Return options for each box to show: the named ones, else those of `boxes_to_show`."""
    if not hosts:
        hosts = [box.name for box in boxes_to_show(options.repository[0])]
    return [replace(options, host=host) for host in dict.fromkeys(hosts)]


def _boxes_of(key: str) -> list[record.KnownBox]:
    """Return the boxes on which the repository was set up. Raises WhichBoxError if none was."""
    known = record.all_boxes()
    of_key = [(box, each) for box in known if (each := box.of(key))]
    # What a box says of itself doesn't put it beside those to which work was sent from here.
    if found := [box for box, each in of_key if each.used] or [box for box, _ in of_key]:
        return found
    if not known:
        for box in record.unreadable_record():
            record.refuse_newer(box.folder)
    before = next((box for box in record.ended_boxes() if key and box.of(key)), None)
    back = f"; {before.name} was given back" if before else ""
    if not known:
        raise _which_box(f"No box is known{back or ' yet'}", [], is_home=bool(before))
    mine = record.name_of_key(key)
    why = f"{mine} has none{back}" if key else "This is no repository"
    raise _which_box(why, known, is_home=bool(before), mine=mine)


def _which_box(
    why: str,
    boxes: Sequence[record.KnownBox],
    *,
    has_several: bool = False,
    is_home: bool = False,
    mine: str = "",
) -> WhichBoxError:
    """`mine`: the name of the repository that has none of them; another may have that name."""
    names = [box.name for box in boxes]
    home = f"{_HOME}\n" if is_home else ""
    if not boxes:
        hint = f"{home}{_NEW}"
        return WhichBoxError(f"which box? {why}.", hint=hint, boxes=names, has_several=False)
    width = max(map(len, names))
    rows = [f"  {box.name:<{width}}  {_whose(box, mine)}" for box in boxes[:_LISTED]]
    if len(boxes) > _LISTED:
        rows.append(f"  and {len(boxes) - _LISTED} more: boxstrap boxes")
    known = "" if has_several else "; known here"
    return WhichBoxError(
        "\n".join([f"which box? {why}{known}:", *rows]),
        hint=f"{home}Name the one you mean: --host {names[0]}",
        boxes=names,
        has_several=has_several,
    )


def _whose(box: record.KnownBox, mine: str) -> str:
    named = (
        f"{each.name} ({each.place})" if each.name == mine and each.place else each.name
        for each in box.repositories
    )
    names = ", ".join(dict.fromkeys(named))
    place = f"{box.address}:{box.port}" if box.address else box.host_text
    return f"{place}, of {names or 'no repository'}"


def box_by_name(name: str) -> record.KnownBox | None:
    """Return the box called `name`; a bare address, once used as a name, means its port 22. Raises
    UsageError if a newer boxstrap wrote its record."""
    if record.NAME.fullmatch(name):
        record.refuse_newer(record.boxes_folder() / name)
        for folder in (name, f"{name}-22", name.rpartition("-")[0]):
            box = record.load_box(record.boxes_folder() / folder) if folder else None
            if box and name in (box.name, box.folder_name, box.address):
                return box
        return next((box for box in record.all_boxes() if box.name == name), None)  # it was renamed
    return None


def find_known(target: Target, endpoint: Endpoint | None = None) -> record.KnownBox | None:
    """Return the newest box that `target` means: by name, by host text, by address and port."""
    if box := _named(target.text):
        return box
    place = endpoint and place_of(endpoint.hostname, endpoint.port, endpoint.user)
    for box in record.all_boxes():
        if box.host_text == target.text or place_of(box.address, box.port, box.user) == place:
            return None if _is_another(box, target) else box
    return None


def _is_another(box: record.KnownBox, target: Target) -> bool:
    """Whether the account ids show that it is another box: accounts never reuse an id."""
    both = target.is_rented and box.target.is_rented
    return both and box.host_text != target.text


def boxes_at(endpoint: Endpoint) -> record.KnownBox | None:
    """Return the newest box at this address and port: it shows the same host key."""
    place = (endpoint.hostname.lower(), endpoint.port)
    return next(
        (box for box in record.all_boxes() if (box.address.lower(), box.port) == place), None
    )


def lookup(text: str) -> tuple[Target, record.KnownBox | None]:
    """Return what `text` means, and the box if it is one's name. Raises as `parse_host`."""
    target = parse_host(text)
    box = _named(target.text)
    target = box.target if box else target
    if box and not expanded(target.identity or "").is_file():  # others may open it
        target = replace(target, identity=None)
    return target, box


def get_or_create(
    target: Target,
    endpoint: Endpoint,
    *,
    box: record.KnownBox | None = None,
    name: str | None = None,
    new_box: bool = False,
) -> record.KnownBox:
    """Return the known box of this host, updated, or a new one. Nothing is written.

    `name` wins over the host: the box of that name is now reached here, and its pin decides whether
    it is the same. A new `name` renames the known box, which is `box` if the host named it.
    `new_box` makes a new one in any case. Raises UsageError for a `name` that is invalid or taken.
    """
    if name is not None:
        check_name(name)
        if name.lower() == endpoint.hostname.lower():  # its ssh entry would match every port
            name = f"{name}-{endpoint.port}"
    owner = entry_owner(endpoint)
    if owner is not None:
        target = owner.target  # keep where it leads: boxstrap's entry may change
    named, there = box_by_name(name) if name else None, box or find_known(target, endpoint)
    if named is None or named.name != name:
        box = there
    elif there and not new_box and (there.address, there.port) != (named.address, named.port):
        raise name_is_taken(named.name, there.name)
    else:
        box = named
    # A former name is free for the box itself alone: it still leads there.
    if box and not new_box and (named is None or named.folder == box.folder):
        if name and name != box.name:
            check_new_name(name, endpoint)
        return _at(_called(box, name or box.name), target, endpoint)
    default = name_for(target, endpoint)
    if not new_box:
        _refuse_lost({name or default, target.text, target.address}, endpoint)
    taken = _taken_names()
    if name and name.lower() in taken:
        raise name_is_taken(taken[name.lower()])
    if name:
        check_new_name(name, endpoint)
    # An earlier box must not be the newest one because the clock was wrong once.
    newest = max((box.created for box in record.all_boxes()), default=0.0)
    before = boxes_at(endpoint)
    fresh = record.KnownBox(
        name=name or _free_name(default, taken),
        host_text=target.text,
        own_pin=new_box
        or (
            before is not None and _is_another(before, target) and not is_shared(endpoint.hostname)
        ),
        created=max(time.time(), newest + 0.001),
    )
    return _at(fresh, target, endpoint)


def _taken_names() -> dict[str, str]:
    """Return the name of the box that has each name, in small letters."""
    names = {folder.name.lower(): folder.name for folder in record.boxes_folder().glob("*/")}
    ours = ((name, box) for box in record.all_boxes() for name in (box.host_key_alias, box.name))
    return {**names, **{name.lower(): box.name for name, box in ours}}


def called_again(box: record.KnownBox, name: str) -> record.KnownBox:
    """Return the box under its former name, if that is free."""
    return box if name.lower() in _taken_names() else _called(box, name)


def _called(box: record.KnownBox, name: str) -> record.KnownBox:
    """Return the box under this name. Its folder stays, with its pin and all that came home."""
    folder = "" if name == box.host_key_alias else box.host_key_alias
    former = tuple(dict.fromkeys(each for each in (*box.former, box.name) if each != name))
    return replace(box, name=name, folder_name=folder, former=former)


def entry_owner(endpoint: Endpoint) -> record.KnownBox | None:
    """Return the box whose ssh config entry, written by boxstrap, led to this endpoint. `ssh -G`
    prints its alias in small letters."""
    for folder in (file.parent for file in endpoint.user_known_hosts_files):
        if (
            folder.name.lower() == endpoint.host_key_alias
            and folder.parent == record.boxes_folder()
        ):
            return record.load_box(folder)
    return None


def check_name(name: str) -> None:
    """Raise UsageError if a box can't have that name."""
    # `--host local` would mean that box; a dot at the end is left out of a host's name.
    if not record.NAME.fullmatch(name) or name.lower() == record.LOCAL or name.endswith("."):
        raise UsageError(
            f"{name!r} can't be a box's name.",
            where="--name",
            hint="Use letters, digits, dots, dashes and underscores, 63 at most; not `local`, "
            "and no dot at the end.",
        )


def name_is_taken(by: str, known: str = "") -> UsageError:
    """Return the error for a new box, or a `known` one, that would be called as the box `by`."""
    hint = f"Give {known or 'the new box'} another name."
    if known:
        hint += f" If {by} is there now, and {known} is gone: boxstrap boxes --forget {known}"
    return UsageError(f"there is a box {by} already.", where="--name", hint=hint)


def check_new_name(name: str, endpoint: Endpoint | None = None) -> None:
    """As `check_name`; also for one that is a host elsewhere than at `endpoint`: who types that
    later means the host, and would get the box."""
    check_name(name)
    there = resolve(parse_host(name))
    place = (there.hostname.lower(), there.port)
    if endpoint and place == (endpoint.hostname.lower(), endpoint.port):
        return
    files = (*there.known_hosts_files, shipped("templates") / "known_hosts")
    other = f"{name}-{os.urandom(4).hex()}"  # what is said of any name is said of no host
    if has_alias(name) or resolved(name) - resolved(other) or has_keys(name, files):
        raise UsageError(
            f"{name} is the name of a host, {there.address}: typed later, it would mean the box.",
            where="--name",
            hint="Give the box a name that is no host's.",
        )


def check_fingerprint(text: str) -> str:
    """Return a `SHA256:…` fingerprint as OpenSSH prints it. Raises UsageError for anything else."""
    bare = text.strip().rstrip("=")
    if not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", bare):
        raise UsageError(
            f"{text!r} is no fingerprint.",
            where="--host-key",
            hint="It looks like SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
        )
    return bare


def name_for(target: Target, endpoint: Endpoint) -> str:
    """Return a readable default name: the alias, the account's id, or address-port."""
    if target.is_rented:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", target.text)[:56]
    is_alias = endpoint.hostname.lower() != target.address.lower()
    which = endpoint.user if is_shared(endpoint.hostname) else endpoint.port
    text = target.address if is_alias else f"{endpoint.hostname}-{which}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.replace(":", "-")).strip("-._")
    return name[:56] or "box"


def incomplete_record_error(box: record.KnownBox, endpoint: Endpoint, what: str) -> HostKeyError:
    """Return the error that refuses a known box of which `what` can't be read any more."""
    pins = sorted((key for _, key in record.pins_of(box)), key=str)
    expect = pins[0].fingerprint if pins else "and what the provider's page shows"
    return HostKeyError(
        f"the box {box.name} is known here, but its {what} can't be read: {box.folder}",
        where=endpoint.label,
        hint="Nothing was sent. If this is another box than before, set it up with --new-box. If "
        f"it should be the same: boxstrap boxes --forget {box.name}\n"
        f"and log in with --host-key {expect}, so that no other key is accepted.",
    )


def _named(text: str) -> record.KnownBox | None:
    """Return the box of that name; if the name is also a host, the newest box there."""
    box = box_by_name(text)
    is_name = box and text in (box.name, box.folder_name)
    if box is None or (is_name and text not in (box.host_text, box.address)):
        return box
    place = place_of(box.address, box.port, box.user)
    there = (
        b
        for b in record.all_boxes()
        if b.host_text == text or place_of(b.address, b.port, b.user) == place
    )
    return next(there, box)


def _at(box: record.KnownBox, target: Target, endpoint: Endpoint) -> record.KnownBox:
    """Update how the box is reached; its own name is not stored as host text: it leads nowhere."""
    text = box.host_text if target.text in (box.name, box.folder_name) else target.text
    return replace(moved(box, target, endpoint), host_text=text, ends=target.ends or box.ends)


def _free_name(name: str, taken: dict[str, str]) -> str:
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _refuse_lost(names: set[str], endpoint: Endpoint) -> None:
    """Raise HostKeyError if a box without a readable record has such a name, or this address."""
    for box in record.unreadable_record():
        if box.name in names or endpoint.pin_name in (name for name, _ in record.pins_of(box)):
            record.refuse_newer(box.folder)
            raise incomplete_record_error(box, endpoint, "record")


def _current_address(target: Target, box: record.KnownBox | None) -> Target:
    """Return where the box was last, else what its account says. Raises as `ask_account`."""
    if box is None or not box.address:
        return ask_account(target)
    return replace(target, address=box.address, port=box.port, user=box.user or None)


def ask_account(target: Target) -> Target:
    """Return the target with the address and price that its account reports. Raises UsageError
    without a key or such a box, UnreachableError if the account can't be asked, or the box
    reached."""
    from bootstrap.providers.accounts import find_rented  # here, as most calls ask no account

    box = find_rented(target.text)
    if not re.fullmatch(PLAIN_HOST, box.address):  # an older ssh gives it to a shell as it is
        shown = box.address.encode("unicode_escape").decode()[:80]
        raise UnreachableError(
            f"its account names {shown}, which is no address.", where=target.text
        )
    return replace(
        target,
        address=box.address,
        port=box.port,
        user=box.user,
        price=box.price or 0.0,
        since=box.since or 0.0,
        let_in=box.let_in,
        ends=(box.ends or 0.0) if target.text.partition(":")[0] in FIXED_END else 0.0,
    )


def _refuse_ambiguous(target: Target) -> None:
    """Raise UsageError if the text could also mean a host of the user's ssh config."""
    name, _, number = target.text.partition(":")
    is_port = number.isdecimal() and 0 < int(number) < 65536
    alias = target.text if has_alias(target.text) else name if is_port and has_alias(name) else ""
    if alias:
        other = f"port {number} of " if alias == name else ""
        raise UsageError(
            f"{target.text} is ambiguous: the box {number} of your account at {name}, or "
            f"{other}{alias} of your ssh config.",
            where=target.text,
            hint=f"For the second say ssh://{alias}{f':{number}' if other else ''}; for the first "
            "give that entry of your ssh config another name.",
        )


class FoundBox(NamedTuple):
    """A box that is meant: as it was typed, what is known of it, and where it is reached."""

    target: Target
    known: record.KnownBox
    endpoint: Endpoint | None  # None if it is this machine


def resolve_box(  # noqa: PLR0913
    options: BoxOptions,
    say: Callable[[str], None],
    *,
    repo_key: str = "",
    user: str | None = None,
    identity: str | None = None,
    opens_forwards: bool = False,
) -> FoundBox:
    """Return the box that `options` means. Nothing is sent to it.

    `user` and `identity` are the profile's; with `opens_forwards` the caller opens the `-L` of a
    pasted command, `target.forwards`. Without a host the only box of the repository `repo_key` is
    meant. Raises WhichBoxError if there is not exactly one, UsageError for an invalid option.
    """
    if options.repo is not None and not os.path.isdir(options.repo):  # noqa: PTH112 - never raises
        raise UsageError(f"there is no folder {options.repo}.", where="--repo")
    if options.name is not None:
        check_name(options.name)
    if options.host_key is not None:
        check_fingerprint(options.host_key)
    target, box = lookup(options.host or only_box(repo_key).name)
    if target.forwards and options.host == target.text and not opens_forwards:
        forwards = " ".join(f"-L {each}" for each in target.forwards)
        say(f"this command doesn't open {forwards}; use: boxstrap tunnel --host …")
    if target.is_local:
        if options.name not in (None, record.LOCAL):
            hint = "Leave it out; a run is named by --session."
            raise UsageError("this machine is always called local.", where="--name", hint=hint)
        box = box_by_name(record.LOCAL) or record.KnownBox(
            record.LOCAL, record.LOCAL, created=time.time()
        )
        return FoundBox(target, box, None)
    if target.is_rented and box is None:
        box = find_known(target)
        if box is None:
            _refuse_ambiguous(target)
    identity = options.identity or identity or identity_of(box, target)
    reached = _current_address(target, box) if target.is_rented else target
    endpoint = resolve(reached, user=user, identity=identity)
    if box is None and identity is None and not options.new_box:
        # Perhaps a known box by its address: with the key that is kept for it, as by its name.
        kept = identity_of(find_known(target, endpoint), target)
        endpoint = resolve(reached, user=user, identity=kept) if kept else endpoint
    target = replace(target, price=reached.price, since=reached.since, ends=reached.ends)
    box = _registered(options, target, endpoint, box)
    return FoundBox(target, box, endpoint)


def _registered(
    options: BoxOptions, target: Target, endpoint: Endpoint, box: record.KnownBox | None
) -> record.KnownBox:
    """Return the host's record; a known box's own name means that box, whatever its address."""
    if box is not None and not options.new_box and options.name in (None, box.name):
        return now_at(box, endpoint)
    found = get_or_create(target, endpoint, box=box, name=options.name, new_box=options.new_box)
    before = None if options.renames else record.load_box(found.folder)
    if before is not None and before.name != found.name:
        raise UsageError(
            f"the box {before.name} would be renamed, which only a setup does.",
            where="--name",
            hint=f"A run is named by --session. To rename the box: "
            f"boxstrap setup --host {before.name} --name {found.name}",
        )
    return found


def ask_account_again(target: Target, known: record.KnownBox) -> Target:
    """As `ask_account`, for a box that is known: if its account has it no more, nobody typed it
    wrongly, and that is an UnreachableError too."""
    try:
        return ask_account(target)
    except UsageError as error:
        forget = f"If it is gone for good: boxstrap boxes --forget {known.name}"
        again = UnreachableError(error.what, where=error.where, hint=f"{error.hint}\n{forget}")
        again.has_ended = error.has_ended
        raise again from None


def moved(box: record.KnownBox, target: Target, endpoint: Endpoint) -> record.KnownBox:
    """Return the box where, and at the price at which, its account says that it is now."""
    price, since = target.price or box.price, target.since or box.since
    return replace(now_at(box, endpoint), price=price, since=since)


def now_at(box: record.KnownBox, endpoint: Endpoint) -> record.KnownBox:
    return replace(box, address=endpoint.hostname, port=endpoint.port, user=endpoint.user)


def identity_of(box: record.KnownBox | None, target: Target) -> str | None:
    """Return the key file that was named for this box before, if it still exists."""
    named = box.route.identity if box and not target.identity else ""
    return named if named and Path(named).is_file() else None
