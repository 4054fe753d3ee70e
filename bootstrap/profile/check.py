"""Build a Profile from merged values, or report what is wrong with file, line and key.

Strict: a value of the wrong type is a problem, and is never converted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bootstrap.profile.data_items import misfits
from bootstrap.profile.fields import EXPECTED, REQUIRED, Field, Kind, Section
from bootstrap.profile.problems import DEFAULT, ProfileProblem
from bootstrap.profile.reading import Branch, choose, origin_of, plain_values, word
from bootstrap.profile.schema import Profile
from bootstrap.profile.values import LONGEST_LIST, RESULTS_KEY

Where = tuple[str | int, ...]
"""The path to a value: keys and list indexes."""

Wrong = list[tuple[Where, str]]
"""The path of each wrong value, and what is wrong with it."""

# Compared by exact type: isinstance() would accept True as an int.
_TYPES: dict[Kind, tuple[type, ...]] = {
    "text": (str,),
    "whole": (int,),
    "number": (float, int),
    "truth": (bool,),
    "list": (list,),
    "map": (dict,),
    "section": (dict,),
}


class WrongValuesError(ValueError):
    """A profile has wrong values; `found` lists all of them."""

    def __init__(self, found: Wrong) -> None:
        self.found = found
        super().__init__("; ".join(f"{_dotted(where)}: {message}" for where, message in found))


def build(tree: Branch, name: str) -> tuple[Profile | None, list[ProfileProblem]]:
    """Return the profile that `tree` describes, or the problems with its values."""
    values = plain_values(tree)
    assert isinstance(values, dict)  # noqa: S101  (a Branch is a mapping)
    try:
        return make_profile(values, name), []
    except WrongValuesError as error:
        return None, [
            ProfileProblem(origin_of(tree, where) or DEFAULT, _dotted(where), message)
            for where, message in error.found
        ]


def make_profile(values: Mapping[str, object], name: str = "") -> Profile:
    """Make a profile of these values. Raises WrongValuesError."""
    wrong: Wrong = []
    given = _attributes(Profile, values, (), wrong)
    if not wrong:
        profile = Profile(**given, name=name)
        wrong = _together(profile)
    if wrong:
        raise WrongValuesError(wrong)
    return profile


def _attributes(
    section: type[Section], values: Mapping[str, object], where: Where, wrong: Wrong
) -> dict[str, Any]:
    """Return a section's attributes; add problems, nested ones too, to `wrong`."""
    fields = section.fields
    wrong += [((*where, name), "there is no such key") for name in values if name not in fields]
    missing = [name for name, each in fields.items() if each.default is REQUIRED]
    wrong += [((*where, name), "is missing here") for name in missing if name not in values]
    return {
        name: _value(each, values[name], (*where, name), wrong)
        for name, each in fields.items()
        if name in values
    }


def _value(field: Field, value: Any, where: Where, wrong: Wrong) -> object:  # noqa: ANN401
    """Check one value and return it; the result only counts if nothing is wrong."""
    if value is None and field.optional:
        return None
    if misfit := _misfit(field, value):
        wrong.append((where, misfit))
        return None
    if field.section:
        return field.section(**_attributes(field.section, value, where, wrong))
    if field.item is None:
        return _scalar(field, value, where, wrong)
    if field.kind == "list":
        return [_value(field.item, item, (*where, i), wrong) for i, item in enumerate(value)]
    name_field = Field("text", rule=field.name_rule)
    for name in value:
        _value(name_field, name, (*where, name), wrong)
    return {name: _value(field.item, item, (*where, name), wrong) for name, item in value.items()}


def _misfit(field: Field, value: Any) -> str:  # noqa: ANN401
    if type(value) not in _TYPES[field.kind]:
        return f"expected {EXPECTED[field.kind]}"
    if field.item and len(value) > LONGEST_LIST:
        return f"{len(value)} entries; {LONGEST_LIST} at most"
    return ""


def _scalar(field: Field, value: str | float, where: Where, wrong: Wrong) -> object:
    try:
        if field.choices:
            choose(str(value), field.choices)
        elif isinstance(value, str):
            return field.rule(value) if field.rule else value
        elif field.kind in ("whole", "number"):
            _check_limits(field, value)
    except ValueError as error:
        wrong.append((where, str(error)))
    return float(value) if field.kind == "number" else value


def _check_limits(field: Field, number: float) -> None:
    if not math.isfinite(number):
        raise ValueError(f"expected {EXPECTED['number']}")
    if field.gt is not None and not number > field.gt:
        raise ValueError(f"expected more than {field.gt:g}")
    if field.ge is not None and not number >= field.ge:
        raise ValueError(f"expected {field.ge:g} or more")
    if field.le is not None and not number <= field.le:
        raise ValueError(f"expected {field.le:,g} or less")


def _dotted(where: Where) -> str:
    key = ""
    for step in where:
        key += f"[{step}]" if isinstance(step, int) else f".{word(step)}"
    return key.removeprefix(".")


def _together(profile: Profile) -> Wrong:
    """Return problems of values that are valid alone but contradict one another."""
    python = profile.python
    wrong: Wrong = [
        (("env", name), "is also listed under secrets; its value would be in this file")
        for name in profile.secrets
        if name in profile.env
    ]
    if python.lock and python.requirements is not None:
        wrong.append((("python", "lock"), "python.requirements is set too; one of them decides"))
    if python.lock and python.conda:
        wrong.append((("python", "lock"), "python.conda is set too; one of them decides"))
    if python.lock and python.installer == "pip":
        wrong.append((("python", "lock"), "pip can't read it; use python.installer: uv"))
    if profile.train and profile.train.at_boot == "resume" and not profile.train.resume:
        wrong.append(
            (("train", "at_boot"), "needs train.resume: the command that resumes the training")
        )
    wrong += _results_to(profile)
    wrong += [(("data", number, key), why) for number, key, why in misfits(profile.data)]
    return wrong


def _results_to(profile: Profile) -> Wrong:
    """Check that the profile has what `train.results_to` needs."""
    train = profile.train
    if not (train and train.results_to):
        return []
    wrong: Wrong = []
    if not train.results:
        wrong.append((("train", "results_to"), "needs train.results: what to upload"))
    if RESULTS_KEY not in profile.secrets:
        why = f"{RESULTS_KEY} must be listed under secrets: the box uploads with this key"
        wrong.append((("train", "results_to"), why))
    return wrong
