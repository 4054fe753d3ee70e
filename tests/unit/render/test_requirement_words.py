"""Requirements that a profile has besides files, in the script; nothing if it names none."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from bootstrap.onbox import MAIN
from bootstrap.render.script import python_id
from tests.unit.render.scripts import loaded, profile, render

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


def test_an_environment_without_extra_requirements_has_the_inputs_of_earlier_versions(
    tmp_path: Path,
) -> None:
    """The same text as in earlier versions, so that the work stays the same."""
    assert inputs(tmp_path) == f"v1 {tmp_path}/.venv '' uv auto '' '' '' \n"


def test_python_reuse_never_does_not_make_another_environment(tmp_path: Path) -> None:
    never = profile("ssh", "python.reuse=never")
    assert inputs(tmp_path, "python.reuse=never") == inputs(tmp_path)
    assert python_id(never.python) == python_id(profile("ssh").python)


UV = """
run_uv() {
  printf '   Building quick==1\\n      Built quick==1\\n   Building slow==1\\n'
  for _ in $(seq %d); do ! grep -q compiling told || break; sleep 0.1; done
  sleep 0.6
  printf '      Built slow==1\\nInstalled 2 packages\\n'
}
STEP=python SETUP_DIR=$PWD BUILD_PATIENCE=%d
run_uv_with_progress 3>told >/dev/null
command cat told
"""


@pytest.mark.parametrize(
    ("patience", "slow", "warnings"),
    [(1, "slow", 1), (20, "slow", 0), (20, "flash-attn", 1), (20, "vllm @ git+x", 1)],
)
def test_a_package_that_takes_long_to_build_is_warned_of_once(
    tmp_path: Path, patience: int, slow: str, warnings: int
) -> None:
    script = loaded(render(profile("ssh")))
    body = script + (UV % (500 if warnings else 10, patience)).replace("slow==1", slow)
    done = subprocess.run(
        ["bash"], input=body, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.count("python warn code=compiling\n") == warnings
    assert "python progress done=0 total=0 unit=packages" in done.stdout


def test_download_sizes_that_uv_prints_become_the_total_bytes_of_progress(tmp_path: Path) -> None:
    """Received bytes are reported too, twice a second, without starting a process."""
    said = "Downloading torch (803.2MiB)\\nDownloading x (1.5GiB)\\nDownloading y (512B)\\n"
    total = int(803.2 * 2**20) + int(1.5 * 2**30) + 512
    script = loaded(render(profile("ssh")))
    body = (
        f"{script}\nrun_uv() {{\nprintf '{said}'\n"
        f"for _ in {{1..50}}; do ! grep -q total={total} told || break; sleep 0.1; done\n}}\n"
        "awk() { echo awk; }; cat() { echo cat; }; date() { echo date; }\n"
        "STEP=python SETUP_DIR=$PWD\nrun_uv_with_progress 3>told >/dev/null; command cat told"
    )
    done = subprocess.run(
        ["bash"], input=body, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    told = re.findall(r"^python progress done=\d+ total=(\d*) unit=bytes$", done.stdout, re.M)
    assert told, done.stdout
    # A report before all lines were read counts only the lines read so far.
    assert told[-1] == str(total)
    assert not done.stderr


def test_a_network_interface_that_disappears_takes_no_received_bytes_back(tmp_path: Path) -> None:
    """A VPN's card may disappear: the bytes received through it still count."""
    script = loaded(render(profile("ssh")))
    body = (
        f"{script}\ncounts=(5000 5300 90 190)\n"
        'bytes_received() { BYTES=${counts-}; counts=("${counts[@]:1}"); [ "$BYTES" ] || exit 0; }'
        "\nSTEP=python SETUP_DIR=$PWD\nreport_bytes 3>&1"
    )
    done = subprocess.run(
        ["bash"], input=body, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert re.findall(r"done=(\S+)", done.stdout) == ["300", "300", "400"]


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
    script = loaded(render(profile("ssh", f"gpu.require={required}")))
    body = (
        f'{script}\nrun_uv() {{ echo "$*" >asked; }}\nOWN_INDEX=yes BOX_HOME=$PWD SETUP_DIR=$PWD'
        f" ONBOX={MAIN} REPO_DIR=$PWD VENV_DIR=$PWD/.venv\ntouch requirements.txt\nfits_before\n"
    )
    subprocess.run(["bash"], input=body, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "asked").exists() == (required == "true")


def test_packages_as_of_a_day_reuse_nothing_and_exclude_newer_releases(tmp_path: Path) -> None:
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
