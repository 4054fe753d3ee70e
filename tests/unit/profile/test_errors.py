"""The exact error messages for wrong profiles."""

import os

import pytest

from bootstrap.errors import ProfileError, exit_code
from bootstrap.profile.load import read_profile
from bootstrap.profile.yaml_source import WrongProfileError
from bootstrap.value import document

# (profile, its error message behind the file's name); one problem each
ONE_LINERS = [
    ("pyton: {}", "1: pyton: there is no such key; did you mean python?"),
    (
        "version: 1\npython:\n  versoin: '3.11'",
        "3: python.versoin: there is no such key; did you mean python.version?",
    ),
    ("workdir: /x", "1: workdir: there is no such key here; did you mean box.workdir?"),
    ("comand: x", "1: comand: there is no such key here; did you mean train.command?"),
    ("name: x", "1: name: there is no such key here; did you mean provider.name?"),
    (
        "ssh: {zzz: 1}",
        "1: ssh.zzz: there is no such key; there are: "
        "user, identity, authorized_keys, first_contact, keep_open",
    ),
    (
        "gpu:\n  checks: {ecc: warn, pci: ignore}",
        "2: gpu.checks.pci: there is no check 'pci': did you mean pcie?",
    ),
    ("box:\n  workdir: /a\n  workdir: /b", "3: box.workdir: given twice; first in line 2"),
    ("env: {A: x, A: y}", "1: env.A: given twice; first in line 1"),
    # YAML's surprises
    (
        "python:\n  version: 3.10",
        '2: python.version: YAML reads 3.10 as the number 3.1; write it in quotes: "3.10"',
    ),
    (
        "python: {version: 3.11}",
        '1: python.version: YAML reads 3.11 as a number; write it in quotes: "3.11"',
    ),
    (
        "gpu: {min_cuda: 12.10}",
        '1: gpu.min_cuda: YAML reads 12.10 as the number 12.1; write it in quotes: "12.10"',
    ),
    (
        "env: {MODE: 0600}",
        '1: env.MODE: YAML reads 0600 as the number 384; write it in quotes: "0600"',
    ),
    (
        "env: {PORTS: 22:22}",
        '1: env.PORTS: YAML reads 22:22 as the number 1342; write it in quotes: "22:22"',
    ),
    ("env: {A: on}", '1: env.A: YAML reads on as true; write it in quotes: "on"'),
    ("env: {A: No}", '1: env.A: YAML reads No as false; write it in quotes: "No"'),
    ("env: {NO: x}", '1: env.NO: YAML reads NO as false; write it in quotes: "NO"'),
    ("env: {A: 8}", '1: env.A: YAML reads 8 as a number; write it in quotes: "8"'),
    (
        "git: {ref: 2024-01-02}",
        '1: git.ref: YAML reads 2024-01-02 as a date; write it in quotes: "2024-01-02"',
    ),
    ("env: {A: }", "1: env.A: expected text, got nothing"),
    ("env: {A: =}", '1: env.A: YAML reads = as something other than text; write it in quotes: "="'),
    # kinds
    ("gpu: {require: yes}", "1: gpu.require: expected true or false, got 'yes'"),
    (
        'gpu: {require: "true"}',
        "1: gpu.require: expected true or false, got the text 'true'; write it without quotes",
    ),
    ("gpu: {count: 010}", "1: gpu.count: expected a whole number, got '010'"),
    ("gpu: {count: 1.5}", "1: gpu.count: expected a whole number, got '1.5'"),
    ("gpu: {count: 0}", "1: gpu.count: expected 1 or more"),
    ("gpu: {count: 2000}", "1: gpu.count: expected 1,024 or less"),
    ("gpu: {min_memory_gib: 0}", "1: gpu.min_memory_gib: expected more than 0"),
    ("gpu: {min_memory_gib: .inf}", "1: gpu.min_memory_gib: expected a number, got '.inf'"),
    ("version: 2", "1: version: expected 1, got 2"),
    ("packages: ffmpeg", "1: packages: expected a list, as in [a, b], got 'ffmpeg'"),
    ("packages: [[a]]", "1: packages[0]: expected text, got a list"),
    ("packages:", "1: packages: expected a list, as in [a, b], got nothing"),
    ("python: .venv", "1: python: expected a section with keys of its own, got '.venv'"),
    ("env: [A]", "1: env: expected names and values, as in {NAME: value}, got a list"),
    ("git: {ref: {a: b}}", "1: git.ref: expected text, got keys and values"),
    (
        "git: {access: urll}",
        "1: git.access: expected over-ssh or url, got 'urll'; did you mean url?",
    ),
    # values
    ("train:\n  session: x", "1: train.command: is missing here"),
    (
        "packages:\n  - git\n  - -rf",
        "3: packages[1]: '-rf' starts with a dash: a program would take it for an option",
    ),
    (
        "git: {ref: --upload-pack=x}",
        "1: git.ref: '--upload-pack=x' starts with a dash: a program would take it for an option",
    ),
    ("python: {venv: ../x}", "1: python.venv: '../x' leaves its folder with '..'"),
    (
        "ssh: {authorized_keys: [~/.ssh/id_ed25519]}",
        "1: ssh.authorized_keys[0]: expected a public key file, which ends in .pub, "
        "got '~/.ssh/id_ed25519'",
    ),
    (
        'train: {command: "a\\nb"}',
        "1: train.command: 'a\\nb' holds a control character (U+000A): "
        "write it as one line, with && between commands (YAML's >- joins lines)",
    ),
    ('env: {A: "\\u202Efdp"}', "1: env.A: '\\u202efdp' holds a Unicode direction control (U+202E)"),
    (
        "env: {PATH: /x}",
        "1: env.PATH: PATH belongs to the shells or to git on the box and can't be set",
    ),
    ("env: {A-B: x}", "1: env.A-B: expected a variable's name (letters, digits, _), got 'A-B'"),
    # values that contradict each other
    (
        "env:\n  HF_TOKEN: x\nsecrets: [HF_TOKEN]",
        "2: env.HF_TOKEN: is also listed under secrets; its value would be in this file",
    ),
    (
        "python:\n  requirements: [a.txt]\n  lock: uv.lock",
        "3: python.lock: python.requirements is set too; one of them decides",
    ),
    (
        "python:\n  conda: environment.yml\n  lock: uv.lock",
        "3: python.lock: python.conda is set too; one of them decides",
    ),
    (
        "python: {installer: pip, lock: uv.lock}",
        "1: python.lock: pip can't read it; use python.installer: uv",
    ),
    (
        'python: {installer: pip, as_of: "2023-05-01"}',
        "1: python.as_of: only uv can choose by dates, and a lock has chosen already",
    ),
    (
        'python: {torch_backend: cu126, as_of: "2023-05-01"}',
        "1: python.as_of: needs python.torch_backend: auto; torch's indexes have no dates",
    ),
    (
        "secrets: [RESULTS_KEY]\ntrain: {command: x, results_to: s3://mine}",
        "2: train.results_to: needs train.results: what to upload",
    ),
    (
        "train: {command: x, results: [out/], results_to: s3://mine}",
        "1: train.results_to: RESULTS_KEY must be listed under secrets: "
        "the box uploads with this key",
    ),
    # YAML that a profile doesn't use
    ("env: &a {A: x}", "1: env: anchors (&a) are not used here"),
    ("version: !!int 1", "1: version: tags (tag:yaml.org,2002:int) are not used here"),
    ("[1]", "1: expected keys and values, as in `version: 1`"),
    ("hello", "1: expected keys and values, as in `version: 1`"),
    ("a: 1\n---\nb: 2", "2: a second document starts here; one is expected"),
    ("? [a, b]\n: c", "1: a key is one word, followed by a colon"),
    ("version: 1\nenv: {A: \x1b[0m}", "2: a character that can't be seen (U+001B)"),
    # extends
    (
        "extends: vasst",
        "1: extends: there is no profile 'vasst'. Did you mean vast? There are: azure, "
        "demo, ec2, gcp, hf, lambda, local, paperspace, runpod, ssh, vast; or give a path, as in "
        "./a100.yaml.",
    ),
    ("extends: ./b.yaml", "1: extends: there is no file b.yaml"),
    ("extends: ./a.yaml", "1: extends: extends itself in a circle"),
]


@pytest.mark.parametrize(("profile", "says"), ONE_LINERS, ids=[says for _, says in ONE_LINERS])
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
