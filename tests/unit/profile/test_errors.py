"""The exact error messages for wrong profiles."""

import os
from pathlib import Path

import pytest

from bootstrap.errors import ProfileError, exit_code
from bootstrap.profile.load import read_profile
from bootstrap.profile.yaml_source import WrongProfileError
from bootstrap.value import document
from tests.cases import read_cases

UNSEEN = ("2: a character that can't be seen (U+001B)", "version: 1\nenv: {A: \x1b[0m}")
ONE_LINERS = [*read_cases(Path(__file__).with_name("errors.txt"))[1:], UNSEEN]


@pytest.mark.parametrize(("says", "profile"), ONE_LINERS, ids=[says for says, _ in ONE_LINERS])
def test_a_profile_with_a_single_mistake_gives_its_exact_error_message(wrong, profile, says):
    assert wrong(profile) == f"a.yaml:{says}"


def test_all_mistakes_of_a_profile_are_reported_at_once_in_line_order(wrong):
    text = wrong(
        "version: 1\n"
        "pyhton: {}\n"
        "python:\n"
        "  version: 3.10\n"
        '  venv: "../x"\n'
        "box: {workdir: relative}\n"
        "box: {workdir: /x}\n"
        "packages: [ok, '-x']\n"
    )
    assert text.splitlines() == [
        "a.yaml:2: pyhton: there is no such key; did you mean python?",
        'a.yaml:4: python.version: YAML reads 3.10 as the number 3.1; write it in quotes: "3.10"',
        "a.yaml:5: python.venv: '../x' leaves its folder with '..'",
        "a.yaml:6: box.workdir: expected a folder on the box that starts with / or ~/ "
        "(letters, digits, . _ + @ = -), got 'relative'",
        "a.yaml:7: box: given twice; first in line 6",
        "a.yaml:8: packages[1]: '-x' starts with a dash: a program would take it for an option",
    ]


def test_fifty_mistakes_of_a_profile_are_cut_to_twenty_lines_and_the_rest_counted(wrong):
    lines = wrong("\n".join(f"k{number}: x" for number in range(50))).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 30 more"


def test_a_profile_that_is_no_yaml_is_refused_with_the_line(wrong):
    assert wrong("version: 1\nenv: [a").startswith("a.yaml:2: this is not YAML: ")
    tab = "line 2 begins with a tab; indent with spaces"
    assert wrong("version: 1\n\tenv: 1") == f"a.yaml:2: {tab}"
    assert wrong("gpu:\n  \tcount: 1\n  name: x") == f"a.yaml:2: {tab}"
    assert wrong("gpu:\n\n\n\tcount: 1").startswith("a.yaml:4: line 4 begins with a tab")


def test_a_mistake_in_an_extended_profile_names_the_parents_file_and_line(write, wrong):
    write("python:\n  venv: ../x\n", "b.yaml")
    assert wrong("extends: ./b.yaml\npackages: [-x]").splitlines() == [
        "a.yaml:2: packages[0]: '-x' starts with a dash: a program would take it for an option",
        "b.yaml:2: python.venv: '../x' leaves its folder with '..'",
    ]


def test_a_wrong_value_in_an_extended_profile_is_no_error_if_overridden(write):
    write("python: {venv: ../x}\n", "b.yaml")
    write("extends: ./b.yaml\npython: {venv: .env}\n")
    assert read_profile("./a.yaml").profile.python.venv == ".env"


def test_json_output_for_a_wrong_profile_lists_file_line_key_and_message(write):
    write("pyton: {}\nextends: 3\n")
    with pytest.raises(WrongProfileError) as caught:
        read_profile("./a.yaml")
    answer = document(caught.value)
    assert (answer["error"], answer["exit"], answer["where"]) == ("Profile", 2, "a.yaml:1")
    assert answer["problems"] == [
        {
            "file": "a.yaml",
            "line": 1,
            "key": "pyton",
            "message": "there is no such key; did you mean python?",
        },
        {
            "file": "a.yaml",
            "line": 2,
            "key": "extends",
            "message": 'YAML reads 3 as a number; write it in quotes: "3"',
        },
    ]


def test_an_unknown_profile_name_exits_with_2_and_lists_the_profiles(write, config):
    for name in ("mine", "config", "groups", "notify"):  # the others are no profiles
        write("version: 1\n", f"{name}.yaml", config)
    with pytest.raises(ProfileError, match="there is no profile 'groups'"):
        read_profile("groups")
    with pytest.raises(ProfileError) as caught:
        read_profile("vats")
    assert caught.value.text() == (
        "there is no profile 'vats'\n"
        "Did you mean vast? There are: azure, demo, ec2, gcp, hf, lambda, local, paperspace, "
        "runpod, ssh, vast, mine; or give a path, as in ./a100.yaml."
    )
    assert exit_code(caught.value) == 2


@pytest.mark.parametrize("name", ["", "../x\n", "$(id)", "-rf", "a" * 5000, "\x1b[31m"])
def test_a_hostile_profile_name_exits_with_2_and_a_short_printable_message(name):
    with pytest.raises(ProfileError) as caught:
        read_profile(name)
    assert exit_code(caught.value) == 2
    assert all(line.isprintable() for line in caught.value.text().splitlines())
    assert len(caught.value.text()) < 400


def said(path):
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    return caught.value.text()


def test_a_missing_profile_file_gives_an_error_with_no_such_file(here):
    assert said("nowhere.yaml") == "nowhere.yaml: can't be read: No such file or directory"


def test_a_fifo_or_device_given_as_profile_gives_the_error_this_is_not_a_file(here):
    os.mkfifo(here / "pipe.yaml")
    assert said("./pipe.yaml") == "pipe.yaml: this is not a file"
    assert said("/dev/zero") == "/dev/zero: this is not a file"


def test_a_profile_that_is_not_utf8_is_refused_with_the_line(here):
    (here / "a.yaml").write_bytes(b"version: 1\nenv: {A: \xff}\n")
    assert said("./a.yaml") == "a.yaml:2: this is not UTF-8 text"
