"""`init` in real training repositories: the profile that each gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import notes, write_profile
from bootstrap.profile.survey.facts import inspect_repository
from tests.real_repositories import REPOSITORIES


@pytest.mark.parametrize("name", REPOSITORIES)
def test_init_writes_the_expected_profile_for_a_real_repository(name: str, here: Path) -> None:
    repository = REPOSITORIES[name]
    repository.write(here)
    facts = inspect_repository(here)
    (here / "boxstrap.yaml").write_text(write_profile(facts), encoding="utf-8")
    loaded = read_profile(None, repo_root=here)
    written = {
        key: origin
        for key, origin in loaded.origins.items()
        if origin.file and key not in ("version", "python.torch_backend", "train.session")
    }
    found = {key: value_of(loaded.profile.as_dict(), key) for key in written}
    env = {key.partition(".")[2]: found.pop(key) for key in [*found] if key.startswith("env.")}
    assert found | ({"env": env} if env else {}) == repository.writes
    said = notes(facts)
    assert len(said) == len(repository.notes), said
    for part, note in zip(repository.notes, said, strict=True):
        assert part in note


def value_of(document: dict, key: str) -> object:
    """Return the value at a dotted key."""
    for step in key.split("."):
        document = document[step]
    return document
