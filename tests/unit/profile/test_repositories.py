"""Repositories (`repositories/*.txt`), small ones of one kind each and copies of real ones: what
`init` writes and names."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import notes, write_profile
from bootstrap.profile.survey.facts import inspect_repository
from tests.repository_files import read_repositories, write_files

REPOSITORIES = read_repositories()
assert len(REPOSITORIES) > 100


@pytest.mark.slow
@pytest.mark.parametrize("parts", REPOSITORIES.values(), ids=REPOSITORIES)
def test_init_writes_the_expected_profile_and_notes_for_each_repository(
    here: Path, parts: dict[str, str]
) -> None:
    said = {name[2:]: text.strip() for name, text in parts.items() if name.startswith("= ")}
    write_files(parts, here)
    facts = replace(
        inspect_repository(here, command=said.get("command", "")),
        url=said.get("url"),
        last_commit=said.get("last commit", ""),
    )
    text = write_profile(facts)
    (here / "boxstrap.yaml").write_text(text, encoding="utf-8")
    read_profile(None, repo_root=here)
    found = yaml.safe_load(text)
    found.pop("version")
    found["python"].pop("torch_backend")
    found.get("train", {}).pop("session", None)
    assert found == yaml.safe_load(said["profile"])
    named, told = said.get("named", "").splitlines(), notes(facts)
    assert [part for part in named if part not in "\n".join([*told, text])] == []
    assert [part for part in said.get("unsaid", "").splitlines() if part in text] == []
    assert [note for note in told if not any(part in note for part in named)] == []
