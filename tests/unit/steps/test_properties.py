"""Every value that a profile allows arrives byte for byte, and none of it is executed.

It arrives in the script's variables (see also test_values.py), in the environment of each kind of
shell, and in a run's command as bash gets it; shellcheck finds nothing in the script.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bootstrap.onbox.env_files import write_env_files
from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.runs import new_run
from bootstrap.onbox.setup.wanted import WantedSetup
from bootstrap.onbox.steps.train import TrainStep
from bootstrap.profile import make_profile
from tests.box_programs import lay_programs, runner_of
from tests.unit.setup.scripts import render, variables_part
from tests.unit.setup.test_lint import shellcheck
from tests.unit.steps import test_env_file
from tests.unit.steps.test_env_file import SHELLS

CHARACTERS = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\0")
SHELLY = st.sampled_from("'\"`$()\\ !*?{}[]~#=;&|<>%-^aé日😀\u00a0")
TEXT = st.text(CHARACTERS, max_size=60) | st.text(SHELLY, max_size=40)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}_Q", fullmatch=True)
FEW = settings(max_examples=12)


def fits(document: object) -> bool:
    """Return whether the profile's own rules allow it."""
    try:
        make_profile(document)
    except ValueError:
        return False
    return True


VALUES = TEXT.filter(lambda text: fits({"env": {"A": text}}))
COMMANDS = TEXT.filter(lambda text: fits({"train": {"command": text}}))
# A secret may hold anything that a variable can: newlines, control characters, invalid UTF-8.
SECRETS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


def environment_in(shell: str, values: Mapping[str, str], folder: Path) -> dict[bytes, bytes]:
    """Return the environment of a program that this shell starts after reading the file."""
    name, argv, source = SHELLS[shell]
    file = folder / name
    write_env_files(str(folder), values)
    program = shutil.which(argv[0])
    if program is None:
        pytest.skip(f"{argv[0]} is not installed: its environment file is not read")
    done = subprocess.run(
        [program, *argv[1:], f"{source}{file}; /usr/bin/env -0"],
        capture_output=True,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        cwd=folder,
        check=False,
    )
    assert done.stderr == b""
    return dict(entry.partition(b"=")[::2] for entry in done.stdout.split(b"\0"))


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
@FEW
@given(values=st.dictionaries(NAMES, VALUES | SECRETS, max_size=20))
@example(values={**test_env_file.VALUES, **test_env_file.SECRETS})
def test_any_environment_value_arrives_byte_for_byte_in_every_kind_of_shell(
    shell: str, values: dict[str, str]
) -> None:
    with TemporaryDirectory() as folder:
        found = environment_in(shell, values, Path(folder))
        wanted = {name.encode(): value.encode() for name, value in values.items()}
        assert {name: found.get(name) for name in wanted} == wanted
        made = {path.name for path in Path(folder).iterdir()}
        assert made <= {"env", "env.fish", "env.csh", ".config", ".local", ".cache"}


@pytest.mark.parametrize("shell", ["bash", "dash"])
@FEW
@given(values=st.dictionaries(NAMES, st.binary(max_size=60), max_size=10))
def test_secrets_of_any_bytes_arrive_byte_for_byte_in_bash_and_dash(
    shell: str, values: dict[str, bytes]
) -> None:
    given_ = {name: os.fsdecode(value.replace(b"\0", b"")) for name, value in values.items()}
    with TemporaryDirectory() as folder:
        found = environment_in(shell, given_, Path(folder))
        assert {name: os.fsdecode(found[name.encode()]) for name in given_} == given_


# Stands in for bash when a run starts its command: records the command that it was given.
RECORDER = """\
#!/bin/sh
[ "$1 $2 $3" = '-o pipefail -c' ] && [ "$#" = 6 ] || exec /bin/bash "$@"
printf %s "$4" >"$SEEN"
"""
# READ_FIRST comes before every command; FROM_ITS_FILE replaces a simple command, so that only the
# command's own process has its words on the command line.
READ_FIRST = '. "$1"; shift; '
FROM_ITS_FILE = 'eval "$(<"$BOXSTRAP_RUN/command")"'


@pytest.mark.slow
@FEW
@given(command=COMMANDS)
def test_any_training_command_arrives_unchanged_in_bash_of_the_environment(command: str) -> None:
    profile = make_profile({"train": {"command": command}})
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "bin/bash").write_text(RECORDER)
        (folder / "bin/bash").chmod(0o755)
        env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "SEEN": f"{folder}/seen", "HOME": name}
        programs = lay_programs(folder / "box")
        (folder / "setup.sh").write_text(render(profile))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bootstrap.onbox.SHELL_PROGRAMS", str(programs))
            wanted = WantedSetup(str(folder / "setup.sh"), [])
        tree = BoxTree(name, "k", name)
        run = Path(new_run.make(TrainStep(wanted.facts(tree, name, home=name)).request).path)
        all_ended, held = os.pipe()
        subprocess.run(
            runner_of(programs, run),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            cwd=folder,
            check=True,
            pass_fds=[held],
        )
        os.close(held)
        os.read(all_ended, 1)  # what notes its end outlives the runner
        os.close(all_ended)
        wanted = command
        for python in ("python ", "python3 "):
            if command.startswith(python):
                wanted = f"{folder}/.venv/bin/python {command.removeprefix(python)}"
        given_ = wanted if {*";&|\n"} & {*wanted} else FROM_ITS_FILE
        assert (folder / "seen").read_bytes() == f"{READ_FIRST}{given_}".encode()
        assert (run / "command").read_bytes() == f"{wanted}\n".encode()
        assert (run / "exit").read_text() == "0\n"


@pytest.mark.slow
@settings(max_examples=8)
@given(
    env=st.dictionaries(NAMES, VALUES, max_size=10),
    command=COMMANDS,
    session=st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
)
def test_shellcheck_finds_nothing_in_the_script_of_any_profile(
    env: dict[str, str], command: str, session: str
) -> None:
    document = {"env": env, "train": {"command": command, "session": session}}
    if not fits(document):
        return
    script = render(make_profile(document))
    # `make lint` checks the static parts.
    head = script.partition("\n{\n")[0]
    with TemporaryDirectory() as folder:
        file = Path(folder, "setup.sh")
        file.write_text(f"{head}\n{{\n{variables_part(script)}\n}}\n")
        assert shellcheck(file) == ""
