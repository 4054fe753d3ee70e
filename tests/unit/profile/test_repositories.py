"""Small repositories (`repositories/*.txt`), each of one kind: what `init` writes and names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import notes, write_profile
from bootstrap.profile.survey.facts import inspect_repository

FOLDER = Path(__file__).with_name("repositories")


def _parts(text: str) -> dict[str, str]:
    found = re.split(r"^---- (.*)\n", text + "\n", flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def _repositories() -> dict[str, dict[str, str]]:
    found = {}
    for file in sorted(FOLDER.glob("*.txt")):
        usual, *rest = re.split(r"^==== (.*)\n", file.read_text(), flags=re.MULTILINE)
        for name, text in zip(rest[::2], rest[1::2], strict=True):
            found[f"{file.stem}: {name}"] = {**_parts(usual), **_parts(text)}
    return found


REPOSITORIES = _repositories()


@pytest.mark.slow
@pytest.mark.parametrize("parts", REPOSITORIES.values(), ids=REPOSITORIES)
def test_init_writes_the_expected_profile_and_notes_for_a_small_repository(
    here: Path, parts: dict[str, str]
) -> None:
    said = {name[2:]: text.strip() for name, text in parts.items() if name.startswith("= ")}
    absent = {name.removeprefix("no ") for name in parts if name.startswith("no ")}
    for name in parts.keys() - absent:
        if not name.startswith(("= ", "no ")):
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_text(parts[name], encoding="utf-8")
    facts = replace(
        inspect_repository(here, command=said.get("command", "")),
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


def test_at_least_60_small_repositories_are_tested() -> None:
    assert len(REPOSITORIES) >= 60
