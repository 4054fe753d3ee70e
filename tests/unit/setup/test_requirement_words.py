"""Requirements that a profile has besides files, in the script; nothing if it names none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bootstrap.onbox import MAIN
from bootstrap.setup.script import python_id
from tests.unit.setup.scripts import loaded, profile, render

pytestmark = pytest.mark.slow  # each starts programs

BESIDE = (
    "python.groups=[train]",
    'python.packages=["torch>=2.4"]',
    'python.no_build_isolation=["flash-attn>=2"]',
    "python.only_binary=[flash-attn]",
    'python.index=["https://example.org/whl"]',
    "python.as_of=2023-05-01",
)


def inputs(home: Path, *sets: str) -> str:
    """Return the inputs of the step python as in its stamp."""
    script = render(profile("ssh", f"box.workdir={home}", *sets))
    body = loaded(script) + (
        f'\nREPO_DIR={home} MAIN_VENV={home}/.venv BOX_HOME={home}; inputs_python; echo "$INPUTS"\n'
    )
    done = subprocess.run(["bash"], input=body, capture_output=True, text=True, check=True)
    return done.stdout


def test_an_environment_without_extra_requirements_is_not_rebuilt_by_a_newer_boxstrap(
    tmp_path: Path,
) -> None:
    """The same text as in earlier versions, so that the work stays the same."""
    assert inputs(tmp_path) == f"v1 {tmp_path}/.venv '' uv auto '' '' '' \n"


def test_python_reuse_never_in_a_profile_keeps_the_environment(tmp_path: Path) -> None:
    never = profile("ssh", "python.reuse=never")
    assert inputs(tmp_path, "python.reuse=never") == inputs(tmp_path)
    assert python_id(never.python) == python_id(profile("ssh").python)


@pytest.mark.parametrize("pinned", [True, False])
def test_bytecode_is_compiled_ahead_only_on_several_cores(tmp_path: Path, *, pinned: bool) -> None:
    cores = os.sched_getaffinity(0)
    script = loaded(render(profile("ssh", "train.command=true")))
    body = (
        f"{script}\nVENV_DIR=$PWD PROGRAMS=$PWD REPO_DIR=$PWD VENV_NOTES=$PWD WORKDIR=$PWD\n"
        'mkdir bin; printf "#!/bin/sh\\n: >begun\\n" >bin/python; chmod +x bin/python\n'
        "compile_ahead x; wait"
    )
    on = ["taskset", "-c", str(min(cores))] if pinned else []
    subprocess.run(
        [*on, "bash"], input=body, capture_output=True, check=True, cwd=tmp_path, text=True
    )
    assert (tmp_path / "begun").exists() == (not pinned and len(cores) > 1)


@pytest.mark.parametrize("required", ["true", "false"])
def test_uv_is_asked_about_torch_only_if_the_profile_requires_a_gpu(
    tmp_path: Path, required: str
) -> None:
    """The query makes uv resolve everything once more."""
    script = loaded(render(profile("ssh")))
    (tmp_path / "gpu.order").write_text(f'{{"require":{required}}}\n')
    body = (
        f'{script}\nrun_uv() {{ echo "$*" >asked; }}\nOWN_INDEX=yes BOX_HOME=$PWD SETUP_DIR=$PWD'
        f" ONBOX={MAIN} REPO_DIR=$PWD VENV_DIR=$PWD/.venv\ntouch requirements.txt\nfits_before\n"
    )
    subprocess.run(["bash"], input=body, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "asked").exists() == (required == "true")


def test_python_as_of_excludes_newer_packages_and_those_of_the_image(tmp_path: Path) -> None:
    """An image's packages and the indexes of torch's builds have none."""
    script = loaded(render(profile("ssh", "python.as_of=2023-05-01")))
    body = f'{script}\nUV_SETTINGS=()\nchoose_settings\necho "$REUSE" "${{UV_SETTINGS[@]}}"\n'
    done = subprocess.run(["bash"], input=body, capture_output=True, text=True, check=True)
    assert done.stdout == "never UV_EXCLUDE_NEWER=2023-05-01\n"


@pytest.mark.slow
def test_each_further_requirement_of_a_profile_makes_another_environment(tmp_path: Path) -> None:
    found = [inputs(tmp_path, *BESIDE[:count]) for count in range(len(BESIDE) + 1)]
    assert len(set(found)) == len(found)
    assert "flash-attn\\>=2" in found[-1]


@pytest.mark.parametrize("own", [True, False])
def test_a_plan_at_login_is_made_by_the_program_version_of_the_last_setup(
    tmp_path: Path, *, own: bool
) -> None:
    program = tmp_path / ".boxstrap/box" / ("0" * 16 if own else "current")
    (program / "onbox").mkdir(parents=True)
    (program / "onbox/__main__.py").touch()
    script = loaded(render(profile("ssh", f"box.workdir={tmp_path}")))
    body = f'{script}\nPROGRAM={"0" * 64}\nbegin_script\necho "$ONBOX"\n'
    done = subprocess.run(["bash"], input=body, capture_output=True, text=True, check=True)
    assert done.stdout == f"{program}/onbox/__main__.py\n"
