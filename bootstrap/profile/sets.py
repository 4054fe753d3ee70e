"""Read `--set key.sub=value`: one value, on top of every file.

The key decides how the text is read. If it expects text, the text is taken as
typed, so `--set python.version=3.10` means 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable

from bootstrap.profile.fields import Field
from bootstrap.profile.merge import Branch, Leaf, merge_branches
from bootstrap.profile.origins import SET
from bootstrap.profile.problems import ProfileProblem
from bootstrap.profile.reading import choose, scalar_value, unknown_key, word
from bootstrap.profile.schema import PROFILE
from bootstrap.profile.yaml_source import parse_list

# This key decides which files are read, and they are read before `--set` applies.
_NOT_HERE = {"extends": "can't be set here; choose the profile with --profile"}


def read_sets(sets: Iterable[str]) -> tuple[Branch, list[ProfileProblem]]:
    """Return the values of all `--set` options and their problems; the last of equal keys wins."""
    tree, problems = Branch(), []
    for text in sets:
        key, equals, value = text.partition("=")
        try:
            if not equals:
                raise ValueError("expected KEY=VALUE, as in python.version=3.11")
            tree = merge_branches(tree, _read(key, value))
        except ValueError as error:
            problems.append(ProfileProblem(SET, word(key), str(error)))
    return tree, problems


def _read(key: str, text: str) -> Branch:
    path, field = _find(key)
    tree: Branch | Leaf = _value(text, field, key)
    for step in reversed(path):
        tree = Branch({step: tree})
    assert isinstance(tree, Branch)  # noqa: S101  (a path has one step at least)
    return tree


def _find(key: str) -> tuple[list[str], Field]:
    """Return the parts of `key`, and the field there. Raises ValueError."""
    if key in _NOT_HERE:
        raise ValueError(_NOT_HERE[key])
    field, path, rest = PROFILE, list[str](), key
    while rest and field.kind in ("section", "map"):
        if field.kind == "map":  # the rest is the name of a variable, dots included
            return [*path, rest], Field("text")
        name, _, rest = rest.partition(".")
        inner = field.fields.get(name)
        if inner is None:
            prefix = "".join(f"{step}." for step in path)
            raise ValueError(unknown_key(name, prefix, field.fields))
        path, field = [*path, name], inner
    if rest or not path:
        raise ValueError("there is no such key")
    return path, field


def _value(text: str, field: Field, key: str) -> Leaf:
    if field.optional and text == "null":
        return Leaf(None, SET)
    if field.kind == "section":
        inside = ", ".join(f"{key}.{name}" for name in field.fields)
        raise ValueError(f"this is a section; set one of {inside}")
    if field.kind == "map":
        raise ValueError(f"set one variable at a time, as in {key}.NAME=value")
    if field.item and field.item.section:
        raise ValueError("its items have keys of their own; write them in a profile")
    if field.kind == "list":
        return Leaf(_list(text), SET)
    if field.choices:
        choose(text, field.choices)
    return Leaf(text if field.kind == "text" else scalar_value(text, field.kind), SET)


def _list(text: str) -> list[str]:
    """Read `[a, "b c"]` or `a,b`; an empty text is an empty list."""
    if text.lstrip().startswith("["):
        return parse_list(text, "--set")
    return [part.strip() for part in text.split(",")] if text.strip() else []
