"""From merged values to a Profile: what pydantic refuses, said with file, line and key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from bootstrap.profile.merge import Branch, origin_of, plain
from bootstrap.profile.origins import DEFAULT
from bootstrap.profile.problems import ProfileProblem
from bootstrap.profile.reading import word
from bootstrap.profile.schema import Profile

Context = Mapping[str, Any]

# What pydantic's kinds of errors mean to a reader; what is not listed is said as pydantic says it.
_MESSAGES: dict[str, Callable[[Context], str]] = {
    "value_error": lambda c: str(c["error"]),
    "missing": lambda _: "is missing here",
    "too_long": lambda c: f"{c['actual_length'] or 'too many'} entries; {c['max_length']} at most",
    "greater_than": lambda c: f"expected more than {c['gt']:g}",
    "greater_than_equal": lambda c: f"expected {c['ge']:g} or more",
    "less_than_equal": lambda c: f"expected {c['le']:,g} or less",
}


def build(tree: Branch, name: str) -> tuple[Profile | None, list[ProfileProblem]]:
    """The profile that `tree` describes, or what is wrong with its values."""
    values = plain(tree)
    assert isinstance(values, dict)  # noqa: S101  (a Branch is a mapping)
    try:
        profile = Profile.model_validate({**values, "name": name})
    except ValidationError as error:
        return None, [_problem(tree, each) for each in error.errors(include_url=False)]
    wrong = [
        ProfileProblem(origin_of(tree, tuple(key.split("."))) or DEFAULT, key, message)
        for key, message in _together(profile)
    ]
    return (None if wrong else profile), wrong


def _problem(tree: Branch, error: Any) -> ProfileProblem:  # noqa: ANN401  (pydantic's ErrorDetails)
    path = tuple(step for step in error["loc"] if step != "[key]")
    say = _MESSAGES.get(error["type"])
    message = say(error.get("ctx", {})) if say else error["msg"]
    return ProfileProblem(origin_of(tree, path) or DEFAULT, _dotted(path), message)


def _dotted(path: tuple[str | int, ...]) -> str:
    key = ""
    for step in path:
        key += f"[{step}]" if isinstance(step, int) else f".{word(step)}"
    return key.removeprefix(".")


def _together(profile: Profile) -> list[tuple[str, str]]:
    """Values that are right one by one and wrong together: (key, message)."""
    python = profile.python
    wrong = [
        (f"env.{name}", "is listed under secrets too; its value would lie in this file")
        for name in profile.secrets
        if name in profile.env
    ]
    if python.lock and python.requirements is not None:
        wrong.append(("python.lock", "python.requirements is set too; one of them decides"))
    if python.lock and python.installer == "pip":
        wrong.append(("python.lock", "pip can't read it; use python.installer: uv"))
    return wrong
