"""Every line of shell that is shipped or rendered passes shellcheck."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import bootstrap
from bootstrap.render.program import program_files
from tests.unit.profile import hostile
from tests.unit.render.scripts import (
    SHIPPED,
    profile,
    render,
    shipped_script,
    static_parts,
    variables_part,
)

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]


def shellcheck(*paths: Path) -> str:
    """Return what shellcheck finds."""
    program = shutil.which("shellcheck")
    assert program, "shellcheck is not installed: install it (apt-get install shellcheck)"
    done = subprocess.run(
        [program, "--norc", "--format=gcc", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def written(folder: Path, script: str) -> Path:
    path = folder / "setup.sh"
    path.write_text(script)
    return path


SHELL_FOLDERS = sorted({path.parent for path in static_parts()})


@pytest.mark.parametrize("folder", SHELL_FOLDERS, ids=lambda path: path.name)
def test_static_parts_are_clean_as_they_are(folder: Path) -> None:
    assert shellcheck(*(path for path in static_parts() if path.parent == folder)) == ""


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["vast", "local"])
def test_rendered_scripts_are_clean(name: str, tmp_path: Path) -> None:
    assert shellcheck(written(tmp_path, shipped_script(name))) == ""


def test_a_script_full_of_odd_values_is_clean(tmp_path: Path) -> None:
    odd = {f"A{n}": case.value for n, case in enumerate(hostile.ACCEPTED) if case.key == "env.A"}
    script = render(profile("vast", 'packages=["g++"]', 'python.extras=["a"]').replace(env=odd))
    # Everything but its values was checked above.
    assert without_values(script) == without_values(shipped_script("vast"))
    head = script.partition("\n{\n")[0]
    assert shellcheck(written(tmp_path, f"{head}\n{{\n{variables_part(script)}\n}}\n")) == ""


def without_values(script: str) -> str:
    """Return a script without the part that differs between profiles."""
    return script.replace(variables_part(script), "", 1)


def test_it_finds_an_unquoted_variable(tmp_path: Path) -> None:
    assert "SC2086" in shellcheck(written(tmp_path, "#!/bin/sh\nrm $1\n"))


@pytest.mark.parametrize("name", SHIPPED)
def test_bash_can_read_it(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, shipped_script(name))
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["queries", "lib"])
def test_the_posix_parts_say_so(kind: str) -> None:
    """Queries run in any /bin/sh, so the library parts that they share must be POSIX too.

    Queries for boxes that were set up run in bash, with the script's own functions."""
    shared, in_bash = (
        {"owner.sh", "process.sh", "run_state.sh"},
        {
            "plan.sh",
            "resume.sh",
            "run.sh",
            "server.sh",
            "sync.sh",
        },
    )
    for path in static_parts():
        if path.parent.name == kind and (kind == "queries" or path.name in shared):
            shell = "bash" if kind == "queries" and path.name in in_bash else "sh"
            assert path.read_text().startswith(f"# shellcheck shell={shell}"), path


def test_no_file_of_the_box_has_the_sign_that_parts_them() -> None:
    assert [name for name, text in program_files().items() if "\f" in text] == []


def test_the_package_goes_to_a_box_as_it_is() -> None:
    package = Path(bootstrap.__file__).parent
    python = [(name, text) for name, text in program_files().items() if name.endswith(".py")]
    assert all((package / name).read_text() == text for name, text in python)
    folders = {Path(name).parent for name, _ in python}
    assert {str(folder / "__init__.py") for folder in folders} <= {name for name, _ in python}
