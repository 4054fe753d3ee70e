"""Loading any text either works or raises an error that says what is wrong with it."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.errors import ProfileError, exit_code
from bootstrap.profile import PROFILE
from bootstrap.profile.load import read_profile
from tests.unit.profile.hostile import yaml_text

pytestmark = pytest.mark.slow

LEAVES = [key for key, _ in PROFILE.leaves()]
KEYS = [key.rpartition(".")[2] for key in LEAVES] + [*PROFILE.fields]
SIGNS = [":", ": ", "- ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ", ", "'", '"', "#", "|", ">"]
TROUBLE = ["&a ", "*a", "!!str ", "!", "?", "%", "@", "`", "~", "<<", "---\n", "...", "\t", "\\"]
SURPRISES = ["null", "3.10", "0600", "22:22", "on", "2024-01-01", "-", "--", "é", "\u202e", "\x00"]
PIECES = st.sampled_from([*KEYS, *SIGNS, *TROUBLE, *SURPRISES])
YAMLISH = st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=15,
)
QUIET = settings(
    max_examples=3 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def flow(tree: object) -> str:
    """Return `tree` as YAML in one line."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{yaml_text(k)}: {flow(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(flow, tree)) + "]"
    return yaml_text(tree) if isinstance(tree, str) else str(tree)


def only_says_what_is_wrong(data: bytes, *sets: str) -> None:
    Path("a.yaml").write_bytes(data)
    said = None
    try:
        read_profile("./a.yaml", sets=sets)
    except ProfileError as error:
        said = error
    if said is not None:
        assert exit_code(said) == 2
        assert said.text()
        assert all(line.isprintable() for line in said.text().splitlines()), ascii(said.text())


@QUIET
@given(YAMLISH)
def test_any_yaml_like_text_loads_as_a_profile_or_raises_a_profile_error(text):
    with contextlib.suppress(UnicodeEncodeError):
        only_says_what_is_wrong(text.encode())


@QUIET
@given(st.dictionaries(st.sampled_from(list(PROFILE.fields)), TREES))
def test_any_values_under_known_profile_keys_load_or_raise_a_profile_error(tree):
    only_says_what_is_wrong(flow(tree).encode())


@QUIET
@given(st.binary(max_size=300))
def test_any_bytes_load_as_a_profile_or_raise_a_profile_error(data):
    only_says_what_is_wrong(data)


@QUIET
@given(st.sampled_from(LEAVES) | st.text(max_size=20), YAMLISH | st.text())
def test_any_value_of_the_set_option_loads_or_raises_a_profile_error(key, value):
    only_says_what_is_wrong(b"train: {command: x}", f"{key}={value}")
