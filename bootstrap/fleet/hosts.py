"""Which boxes `--host`, given several times or as a pattern, and `--hosts GROUP` mean.

A group is written by the user in `groups.yaml` of the configuration folder, as in an inventory:

    seeds: [gpu-1, gpu-2, vast:12345678]
    a100: ["a100-*"]

or made by `up --count`, which notes it in the records of the boxes.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.link.endpoint import resolve
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.link.registry import find_known
from bootstrap.link.target import parse_host
from bootstrap.paths import config_dir
from bootstrap.providers import place_of

_WILD = frozenset("*?")  # no host's own name may have these


def choose(hosts: Sequence[str], group: str | None = None) -> list[str]:
    """Return the boxes that are meant, each once, as they were named, known ones by their names.
    Raises UsageError if a pattern fits no known box, or there is no such group."""
    named = [*hosts, *(members(group) if group else ())]
    known = all_boxes()
    found: dict[str | tuple[str, int, str], str] = {}
    for host in named:
        for each in [host] if _WILD.isdisjoint(host) else _matching(host, known):
            identity = _identity(each)
            found.setdefault(identity, identity if isinstance(identity, str) else each)
    return list(found.values())


def members(group: str) -> list[str]:
    """Return the hosts of a group, patterns as they are. Raises UsageError if there is none."""
    written = read_groups()
    rented = [box.name for box in reversed(all_boxes()) if box.group == group]
    if found := [*written.get(group, ()), *rented]:
        return found
    names = group_names()
    there = f"There are: {', '.join(names)}" if names else "There is none yet."
    raise UsageError(
        f"there is no group {group!r}.",
        hint=f"{there}\nWrite it as a line of {groups_file()}: {group}: [BOX, BOX]",
    )


def group_names() -> list[str]:
    """Return the names of all groups, for completion. Raises UsageError as `read_groups`."""
    return sorted({*read_groups(), *(box.group for box in all_boxes() if box.group)})


def groups_file() -> Path:
    return config_dir() / "groups.yaml"


def read_groups() -> dict[str, tuple[str, ...]]:
    """Return the user's groups by name; none without the file. Raises UsageError."""
    file = groups_file()
    if not file.exists():  # completion asks, and need not wait for the imports
        return {}
    from bootstrap.profile.load import profile_label, read_own_yaml
    from bootstrap.profile.yaml_source import Items, Scalar

    groups: dict[str, tuple[str, ...]] = {}
    for name, value in read_own_yaml(file):
        items = value.items if isinstance(value, Items) else ()
        hosts = tuple(each.text for each in items if isinstance(each, Scalar) and each.text)
        if not hosts or len(hosts) != len(items):
            raise UsageError(
                f"line {name.line}: a list of boxes is expected, as in `[gpu-1, gpu-2]`",
                where=profile_label(file),
            )
        groups[name.text] = hosts
    return groups


def _matching(pattern: str, known: Sequence[KnownBox]) -> list[str]:
    found = sorted(box.name for box in known if fnmatchcase(box.name, pattern))
    if not found:
        raise UsageError(
            f"no known box has a name like {pattern!r}.",
            where="--host",
            hint="Their names: boxstrap boxes",
        )
    return found


def _identity(host: str) -> str | tuple[str, int, str]:
    """Return what a box has once, however it is named: the name of its record, else its place."""
    target = parse_host(host)
    box = find_known(target)
    if box or target.is_local or target.is_rented:
        return box.name if box else target.text
    endpoint = resolve(target)
    box = find_known(target, endpoint)
    return box.name if box else place_of(endpoint.hostname, endpoint.port, endpoint.user)
