"""What a key of a profile takes from the person, beside what it says of a box.

Every key of the schema is marked with one of these; a test walks it. What a repository's own
profile takes needs the person's consent (`profile/consent.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel

T = TypeVar("T")


class Takes(enum.Enum):
    """The kinds; the value is what the list that the person agrees to calls it."""

    NOTHING = "nothing"
    SECRET = "secret"  # noqa: S105
    FILE = "file"
    REPOSITORY = "repository"
    PUBLIC_KEY = "public key"


Free = Annotated[T, Takes.NOTHING]
Secrets = Annotated[T, Takes.SECRET]
File = Annotated[T, Takes.FILE]
Repository = Annotated[T, Takes.REPOSITORY]
PublicKeys = Annotated[T, Takes.PUBLIC_KEY]


def marked_keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Takes | None]]:
    """Each key that holds a value, with dots between, and its mark; None where it has none."""
    for name, info in model.model_fields.items():
        section = _section(info.annotation)
        if section is not None:
            yield from marked_keys(section, f"{prefix}{name}.")
        else:
            yield prefix + name, next((m for m in info.metadata if isinstance(m, Takes)), None)


@lru_cache(maxsize=1)
def taking_keys() -> dict[str, Takes]:
    """The keys of a profile that take something, and what."""
    from bootstrap.profile.schema import Profile

    marks = dict(marked_keys(Profile))
    return {key: mark for key, mark in marks.items() if mark not in (None, Takes.NOTHING)}


def _section(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401  (a type, of any kind)
    kinds = (annotation, *get_args(annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
