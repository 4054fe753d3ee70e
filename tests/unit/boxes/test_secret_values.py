"""Secrets are taken from this machine, change the ids that they must, and are in no script."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.boxes.secrets import fingerprint, packed, take_secrets
from bootstrap.errors import UsageError
from bootstrap.paths import state_dir
from bootstrap.profile.load import read_profile
from bootstrap.setup import SetupRequest
from bootstrap.setup.payload import build_payload
from tests.cli import User

NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
CANARY = "canary-5f0c7e1a'$(x)`\n\"é"


def test_all_missing_secrets_are_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        take_secrets(["A", "B", "C"], environment={"B": "x", "C": ""})
    assert "A, C" in caught.value.what
    assert "export A=" in caught.value.hint


def test_only_secrets_that_the_profile_names_are_sent_to_a_box() -> None:
    assert take_secrets(["B"], environment={"A": "1", "B": "2"}).values == {"B": "2"}


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_secrets_packed_for_a_box_unpack_to_the_same_values(values: dict[str, str]) -> None:
    parts = packed(values).decode().split("\0")
    assert parts.pop() == ""
    assert dict(part.partition("=")[::2] for part in parts) == values


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), VALUES)
def test_the_fingerprint_of_secrets_changes_if_a_value_changes_or_a_secret_is_added(
    values: dict[str, str], other: str
) -> None:
    assert fingerprint(values) == fingerprint(dict(values))
    for name, value in values.items():
        changed = fingerprint({**values, name: other})
        assert (changed == fingerprint(values)) is (other == value)
    assert fingerprint({**values, "ANOTHER_ONE": other}) != fingerprint(values)


def test_the_same_secrets_get_another_fingerprint_with_another_private_key_file_here() -> None:
    before = fingerprint({"A": "guess"})
    assert fingerprint({"A": "guess"}) == before
    key = state_dir() / "secrets.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    key.unlink()
    assert fingerprint({"A": "guess"}) != before
    assert fingerprint({}) == ""


@pytest.mark.parametrize("left", [b"", b"short"])
def test_a_cut_off_or_empty_key_file_of_secrets_is_replaced_by_a_new_key(left: bytes) -> None:
    fingerprint({"A": "guess"})
    key = state_dir() / "secrets.key"
    key.write_bytes(left)
    made = fingerprint({"A": "guess"})
    assert len(key.read_bytes()) == 32
    assert fingerprint({"A": "guess"}) == made
    key.write_bytes(b"\0" * 32)
    assert fingerprint({"A": "guess"}) != made


def script(user: User, value: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RIG_SECRET", value)
    loaded = read_profile(None, repo_root=user.place).for_provider("vast")
    payload = build_payload(loaded, SetupRequest(repo=user.place), local=False)
    assert payload.secrets.values == {"RIG_SECRET": value}
    return payload.script


def test_a_secret_is_neither_in_the_script_nor_in_any_file_at_home(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.repository(boxstrap__yaml="version: 1\nsecrets: [RIG_SECRET]\n")
    one = script(user, CANARY, monkeypatch)
    assert "canary" not in one
    assert "SECRETS_ID='" in one
    assert script(user, CANARY, monkeypatch) == one
    assert script(user, CANARY + "x", monkeypatch) != one
    kept = [path for path in Path(user.home).rglob("*") if path.is_file()]
    holding = [path for path in kept if b"canary" in path.read_bytes()]
    assert holding == []


def test_setup_with_a_missing_secret_stops_before_it_renders_a_script(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.repository(boxstrap__yaml="version: 1\nsecrets: [RIG_SECRET]\n")
    monkeypatch.delenv("RIG_SECRET", raising=False)
    loaded = read_profile(None, repo_root=user.place).for_provider("vast")
    with pytest.raises(UsageError, match="RIG_SECRET"):
        build_payload(loaded, SetupRequest(repo=user.place), local=False)
