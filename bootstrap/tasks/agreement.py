"""What a person agrees to before an agent's call of a command: by `effects.py`, from its arguments.
An argument stands in a question quoted and on one line, so that it can't become words of ours."""

import contextlib
import ipaddress
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bootstrap.errors import BoxstrapError
from bootstrap.fleet.hosts import choose
from bootstrap.link.endpoint import has_alias, resolved
from bootstrap.link.registry import boxes_to_show, find_known, lookup
from bootstrap.profile.consent import is_part_of
from bootstrap.profile.load import shipped_ones, users_own
from bootstrap.profile.schema import PROFILE, taking_keys
from bootstrap.repo.local import current
from bootstrap.repo.place import repository_root
from bootstrap.sizes import bytes_of
from bootstrap.tasks.command import MAX_SIZE
from bootstrap.tasks.effects import ALWAYS, EFFECTS, VALUES, Effect
from bootstrap.tasks.options import flag_of

Arguments = Mapping[str, Any]
_LONGEST_SHOWN, _LONGEST_LINE = 500, 2000
"""Characters of one argument, and of a line, in a question: longer ones would hide what follows."""


def question(name: str, arguments: Arguments) -> str:
    """Return what a person must agree to before this call of a command; "" for nothing."""
    effect = EFFECTS[name]
    if arguments.get(effect.except_with or ALWAYS):
        effect = Effect("reads")
    asks = ALWAYS in effect.asks or any(arguments.get(one.rstrip("_")) for one in effect.asks)
    what = [f"This {effect.does}{_subject(effect, arguments)}."] if asks else []
    what += _by_values(effect, arguments)
    if digest := arguments.get("consent"):
        taken = _consents.get(digest)
        listed = f":\n{taken}" if taken else " (secrets, files, keys or money)."
        what.append(f"It {VALUES['consent']}{listed}")
    if not what:
        return ""
    lines = [" ".join(["boxstrap", name, *_shown(arguments)]), *"\n".join(what).splitlines()]
    return "\n".join([*(_cut(line, _LONGEST_LINE) for line in lines), "Do you agree?"])


def _by_values(effect: Effect, arguments: Arguments) -> list[str]:
    """Return what the values of the arguments do, each as a sentence."""
    found = []
    for option, takes in _TAKES.items():
        if effect.kind == "reads" and option not in (_TOLD if effect.tells else _READ):
            continue
        given = arguments.get(option.rstrip("_"))
        values = [] if not given else given if isinstance(given, list) else [given]
        if taken := [each for each in values if takes(each, arguments)]:
            found.append(f"It {VALUES[option]}: {', '.join(map(_one_line, taken))}.")
    hosts = _hosts(arguments) if effect.here or effect.sends else []
    if effect.here and any(map(_is_here, hosts)):
        found.append(f"It {effect.here}.")
    if effect.sends and (unknown := [*filter(None, map(_unknown, hosts))]):
        found.append(f"It {VALUES['host']}: {', '.join(unknown)}.")
    return found


def _changes_what_is_taken(text: str, _: Arguments) -> bool:
    key = text.partition("=")[0].strip()
    is_free = key in {each for each, _field in PROFILE.leaves()} - {*taking_keys()}
    return not (is_free or key.startswith("env."))


def _is_foreign_profile(name: str, arguments: Arguments) -> bool:
    """Whether it is neither shipped nor in the repository, whose profiles need consent."""
    if name in shipped_ones() and name not in users_own():
        return False
    file = (Path.cwd() / Path(name).expanduser()).resolve()
    roots = filter(None, map(repository_root, (_place(arguments), Path.cwd())))
    return not (file.suffix and any(file.is_relative_to(root) for root in roots))


def _is_another_repository(path: str, _: Arguments) -> bool:
    here = Path.cwd()
    named = Path(path).expanduser()
    return (repository_root(named) or named.resolve()) != (repository_root(here) or here.resolve())


def _is_foreign_path(path: str, arguments: Arguments) -> bool:
    """Whether it leads out of the repository, or to what is the user's own in there."""
    place = _place(arguments)
    root = repository_root(place) or place.resolve()
    return not is_part_of(root, (Path.cwd() / Path(path).expanduser()).resolve())


_TAKES: Mapping[str, Callable[[Any, Arguments], bool]] = {
    "set_": _changes_what_is_taken,
    "profile": _is_foreign_profile,
    "repo": _is_another_repository,
    "path": _is_foreign_path,
    "sweep": _is_foreign_path,
    "max_size": lambda size, _: (bytes_of(size) or 0) > (bytes_of(str(MAX_SIZE.default)) or 0),
    "host_key": lambda *_: True,
    "new_box": lambda *_: True,
}
"""Whether a value of an option does what `VALUES` says of it."""
_TOLD = ("profile", "repo")  # the options by which a box is told what another profile says
_READ = ("sweep",)  # those with which also a command that only reads says what is in a file


def _place(arguments: Arguments) -> Path:
    return Path(arguments.get("repo") or ".").expanduser()


def _hosts(arguments: Arguments) -> list[str]:
    """Return the hosts that a call is about: named ones, a group's, else the repository's."""
    given = arguments.get("host") or ()
    named = [given] if isinstance(given, str) else [*given]
    with contextlib.suppress(BoxstrapError):
        if named or arguments.get("hosts"):
            return choose(named, arguments.get("hosts"))
        return [box.name for box in boxes_to_show(current(_place(arguments))[0])]
    return named


def _is_here(host: str) -> bool:
    """Whether the host is this machine, also by an address of its own."""
    try:
        target, box = lookup(host)
    except BoxstrapError:
        return False  # the command refuses it
    addresses = [target.address, *([box.address] if box else [])]
    return target.is_local or any(map(_is_own, addresses))


def _is_own(address: str) -> bool:
    import psutil

    bare = address.strip("[]").lower().rstrip(".")
    try:
        numbers = ipaddress.ip_address(bare if ":" in bare else socket.inet_aton(bare))
    except (OSError, ValueError):
        names = ("localhost", "ip6-localhost", "ip6-loopback", socket.gethostname().lower())
        return bare in names or any(map(_is_own, resolved(bare)))
    numbers = getattr(numbers, "ipv4_mapped", None) or numbers
    own = {each.address for nic in psutil.net_if_addrs().values() for each in nic}
    return numbers.is_loopback or numbers.is_unspecified or str(numbers) in own


def _unknown(host: str) -> str:
    """Return the host, with where it leads, if it is an address to which no work was sent before:
    to have looked at it, as `plan` does, makes it no box of the user's. An alias is the user's own
    word; a box's name may be an agent's."""
    try:
        target, box = lookup(host)
    except BoxstrapError:
        return ""
    known = box or find_known(target)
    if known and any(each.script for each in known.repositories):
        return ""
    target = known.target if known else target
    if target.is_local or target.is_rented:
        return ""
    with contextlib.suppress(BoxstrapError):
        if not set(".:@ ") & set(target.text) and has_alias(target.text):
            return ""
    words = _one_line(host)
    return words if target.text == host else f"{words} ({_one_line(target.text)})"


def _subject(effect: Effect, arguments: Arguments) -> str:
    """Return the boxes that a call is about, or the price of one to rent; "" if unknown."""
    if (effect.kind == "money" and effect.sends) or arguments.get("up"):
        price = arguments.get("max_price")
        return f", at {_one_line(price)} dollars an hour at the most" if price else ""
    hosts = _hosts(arguments)
    return f": {', '.join(map(_one_line, hosts))}" if hosts else ""


_consents: dict[str, str] = {}
"""The lists that commands printed, by digest: who agrees to a digest is shown its list."""


def note_consent(document: Mapping[str, Any]) -> None:
    """Keep the list that a document asks the user's consent for, if it does."""
    for part in (document.get("error", {}), document.get("consent", {})):
        if "digest" in part:
            rows = (f"  {each['key']}: {_one_line(each['takes'])}" for each in part["takes"])
            _consents[part["digest"]] = "\n".join(rows)


def _shown(arguments: Arguments) -> list[str]:
    found = []
    for key, value in arguments.items():
        flag = flag_of(key)
        if key == "argv":
            found += ["--", *map(_one_line, value)]
        elif value is True:
            found.append(flag)
        elif value is not False and key != "timeout":  # of the call, not of the command
            values: Sequence[Any] = value if isinstance(value, list) else [value]
            found += [f"{flag} {_one_line(each)}" for each in values]
    return found


def _one_line(value: Any) -> str:  # noqa: ANN401 - as JSON has it
    """Return a value as a word for a shell, on one line, in characters that show what they are."""
    text = _cut(str(value), _LONGEST_SHOWN)
    if text.isprintable():
        return shlex.quote(text)
    escaped = text.encode("unicode_escape").decode().replace("'", "\\'")
    return f"$'{escaped}'"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}[... {len(text) - most} characters ...]{text[-most // 2 :]}"
