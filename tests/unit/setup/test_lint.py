"""What is shipped for the box is as shellcheck and a box need it; `make lint` checks its shell."""

import shutil
from pathlib import Path

import pytest

import bootstrap
from bootstrap.setup.program import program_files
from tests.programs import captured
from tests.unit.setup.scripts import static_parts

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]


def shellcheck(*paths: Path) -> str:
    """Return what shellcheck finds."""
    program = shutil.which("shellcheck")
    assert program, "shellcheck is not installed: install it (apt-get install shellcheck)"
    done = captured([program, "--norc", "--format=gcc", *map(str, paths)], check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["queries", "lib"])
def test_box_queries_and_shared_shell_parts_name_their_shell_for_shellcheck(kind: str) -> None:
    """Queries run in any /bin/sh, so the library parts that they share must be POSIX too.

    Queries for boxes that were set up run in bash, with the script's own functions."""
    shared, in_bash = {"owner.sh", "process.sh"}, {"plan.sh"}
    for path in static_parts():
        if path.parent.name == kind and (kind == "queries" or path.name in shared):
            shell = "bash" if kind == "queries" and path.name in in_bash else "sh"
            assert path.read_text().startswith(f"# shellcheck shell={shell}"), path


def test_no_file_of_the_program_sent_to_a_box_has_the_separator_character() -> None:
    assert [name for name, text in program_files().items() if "\f" in text] == []


def test_the_python_files_sent_to_a_box_equal_those_of_the_package() -> None:
    package = Path(bootstrap.__file__).parent
    python = [(name, text) for name, text in program_files().items() if name.endswith(".py")]
    assert all((package / name).read_text() == text for name, text in python)
    folders = {Path(name).parent for name, _ in python}
    assert {str(folder / "__init__.py") for folder in folders} <= {name for name, _ in python}
