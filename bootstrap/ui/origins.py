"""The merged profile as text, each value with its origin."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bootstrap.profile.fields import Section
from bootstrap.profile.schema import Profile
from bootstrap.profile.yaml_source import DEFAULT, Origin
from bootstrap.repo.urls import without_user_info

WIDEST = 60  # columns; a longer `key: value` moves only its own remark to the right


@dataclass(frozen=True)
class OriginEntry:
    """One key of the merged profile."""

    key: str
    value: object
    origin: Origin
    description: str


def origin_entries(profile: Profile, origins: Mapping[str, Origin]) -> Iterator[OriginEntry]:
    """Yield every key of `profile`, in the order of the schema."""
    yield from _walk(profile, origins, "", DEFAULT)


def origin_lines(
    profile: Profile, origins: Mapping[str, Origin], *, described: bool = False
) -> list[str]:
    """Return `key: value   # origin` for every key, as `plan --show-origin` prints it.

    With `described`, each key's description follows, as `profiles --show` prints it.
    """
    found = list(origin_entries(profile, origins))
    heads = [f"{entry.key}: {json.dumps(entry.value, ensure_ascii=False)}" for entry in found]
    width = max((len(head) for head in heads if len(head) <= WIDEST), default=0)
    return [
        f"{head:<{width}}  # {entry.origin}" + (f" | {entry.description}" if described else "")
        for head, entry in zip(heads, found, strict=True)
    ]


def _walk(
    section: Section, origins: Mapping[str, Origin], prefix: str, fallback: Origin
) -> Iterator[OriginEntry]:
    for name, field in section.fields.items():
        key, value = prefix + name, getattr(section, name)
        note = field.description
        if isinstance(value, Section):
            yield from _walk(value, origins, f"{key}.", fallback)
        elif isinstance(value, dict) and value:
            for item, text in value.items():
                yield OriginEntry(
                    f"{key}.{item}", text, origins.get(f"{key}.{item}", fallback), note
                )
        else:
            if key == "git.url" and value:
                value = without_user_info(value)
            if isinstance(value, list):
                value = [each.as_dict() if isinstance(each, Section) else each for each in value]
            yield OriginEntry(key, value, origins.get(key, fallback), note)
