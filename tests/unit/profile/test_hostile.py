"""Hostile profiles are refused with file, line and key before anything is run."""

import json
import subprocess
import time
from itertools import groupby
from operator import attrgetter

import pytest

from bootstrap.profile.load import read_profile
from bootstrap.profile.yaml_source import WrongProfileError
from tests.unit.profile.hostile import (
    ACCEPTED,
    DOCUMENTS,
    REFUSED,
    REFUSED_NAMES,
    HostileCase,
    yaml_text,
)
from tests.waiting import slowness


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"something was run: {args}")

    for name in ("system", "execve", "posix_spawn", "fork"):
        monkeypatch.setattr(f"os.{name}", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)


def each_key(cases):
    """One test per key, with all of its cases: two thousand tests would be mostly overhead."""
    grouped = groupby(sorted(cases, key=attrgetter("key")), attrgetter("key"))
    return pytest.mark.parametrize(
        "cases", [pytest.param([*those], id=key) for key, those in grouped]
    )


def refusal(write, text, *sets):
    write(text)
    with pytest.raises(WrongProfileError) as caught:
        read_profile("./a.yaml", sets=sets)
    said = caught.value.text()
    assert all(line.isprintable() for line in said.splitlines()), ascii(said)
    assert len(said) < 10_000
    return caught.value.problems


@pytest.mark.slow
@each_key(REFUSED)
def test_the_error_of_a_hostile_profile_value_names_its_line_or_set_option(write, cases):
    for case in cases:
        (problem,) = refusal(write, "version: 1\n" + case.document()[1:-1])
        assert (problem.origin.file, problem.origin.line) == ("a.yaml", 2), case
        assert problem.key == case.key.replace("[]", "[0]"), case
        assert 0 < len(problem.message) < 300, case
        if case.key == "extends":
            continue
        problems = refusal(write, "train: {command: x}", setting(case))
        assert [str(problem.origin) for problem in problems] == ["--set"], case
        assert problems[0].key == case.key.replace("[]", "[0]"), case


@each_key(ACCEPTED)
def test_an_unusual_but_valid_value_is_read_unchanged_from_file_or_set_option(write, cases):
    for case in cases:
        write(case.document())
        assert value_at(read_profile("./a.yaml").profile, case) == case.value
        write("train: {command: x}")
        found = read_profile("./a.yaml", sets=[setting(case)]).profile
        assert value_at(found, case) == case.value


def setting(case: HostileCase) -> str:
    value = f"[{yaml_text(case.value)}]" if case.key.endswith("[]") else case.value
    return f"{case.key.removesuffix('[]')}={value}"


def value_at(profile, case: HostileCase):
    value = json.loads(json.dumps(profile.as_dict()))
    for step in case.key.removesuffix("[]").split("."):
        value = value[step]
    return value[0] if case.key.endswith("[]") else value


def test_a_hostile_variable_name_in_env_or_secrets_is_refused_with_its_line(write):
    for name in REFUSED_NAMES:
        texts = {"secrets": f"[{yaml_text(name)}]", "env": f'{{{yaml_text(name)}: "x"}}'}
        for section, text in texts.items():
            (problem,) = refusal(write, f"version: 1\n{section}: {text}")
            assert problem.origin.line == 2, name
            assert problem.key.startswith(section), name


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_hostile_profile_document_is_refused_within_two_seconds_of_cpu_time(write, name):
    started = time.process_time()
    problems = refusal(write, DOCUMENTS[name])
    assert time.process_time() - started < 2 * slowness()
    assert problems[0].origin.file == "a.yaml"
    assert problems[0].origin.line or name == "a huge file"
