"""The recipe of each shipped profile, kept for review in tests/golden/recipes.

The first is whole; of each of the others stands there which of its lines differ from it. The
digest of the program is replaced by a placeholder. Update with
`pytest tests/unit/setup --update-golden`, and review the difference.
"""

import os
import re
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import pytest

from bootstrap.paths import cache_dir
from bootstrap.setup.program import program
from bootstrap.setup.script import KEPT, render_recipe
from bootstrap.steps.plan import NAMES
from bootstrap.steps.shell import Value
from tests.faults.plugin import Faults
from tests.unit.setup.scripts import SHIPPED, profile, render, shipped_script, variables_part

GOLDEN = Path(__file__).resolve().parents[2] / "golden/recipes"
FIRST = "ssh"
"""The profile of no provider."""


def recipe(name: str) -> str:
    return variables_part(shipped_script(name)).replace(program().digest, "(the program)")


def reviewable() -> str:
    """Return the recipes of all shipped profiles."""
    first = recipe(FIRST)
    parts = [f"==== {FIRST}\n{first}"]
    for name in (name for name in SHIPPED if name != FIRST):
        differs = list(unified_diff(first.splitlines(True), recipe(name).splitlines(True), n=0))
        changed = (line for line in differs[2:] if not line.startswith("@@"))
        parts.append(f"==== {name}\n{''.join(changed)}")
    return "".join(parts)


def test_shipped_profiles_setup_scripts_equal_their_reviewed_copy(
    request: pytest.FixtureRequest,
) -> None:
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(reviewable())
    assert reviewable() == GOLDEN.read_text(), "see the module's docstring"


def test_a_changed_profile_value_changes_a_single_line_of_the_setup_script() -> None:
    assert shipped_script("vast") == shipped_script("vast")
    many = ("prepare=[make data]", "lease.hours=1", "python.packages=[torch,numpy]", "shared=[x/]")
    first = render(profile("vast", *many, "env.A=1")).splitlines()
    other = render(profile("vast", *many, "env.A=2")).splitlines()
    assert len(first) <= 300
    assert [pair for pair in zip(first, other, strict=True) if len({*pair}) > 1] == [
        ("  ENV_VALUES=('1')", "  ENV_VALUES=('2')")
    ]


@pytest.mark.parametrize("name", ["local", "demo"])
def test_setup_scripts_for_local_and_demo_profiles_have_no_ssh_step(name: str) -> None:
    script = shipped_script(name)
    assert re.findall(r"^  step (\w+)$", script, re.MULTILINE) == [
        name for name in NAMES if name not in ("ssh", "smoke", "data", "prepare", "lease")
    ]
    assert "\n  IS_LOCAL='yes'\n" in script
    # tests/main_job/test_local.py checks what its step `shell` leaves alone.


def made(value: Value) -> str:
    return render_recipe("x", {"": {"A": value}}, (), "")


def kept() -> list[Path]:
    return sorted((cache_dir() / "scripts").glob("*"))


def test_a_cached_setup_script_equals_a_newly_rendered_one() -> None:
    odd = "a\rb\r\nc\u2028d\x85e\x0cf 'g' \\ é"
    fresh = made(odd)
    assert odd.replace("'", "'\\''") in fresh
    assert made(odd) == fresh
    assert [path.stat().st_mode & 0o777 for path in kept()] == [0o600]


def test_the_cache_of_setup_scripts_never_has_more_than_a_fixed_number() -> None:
    for number in range(KEPT + 5):
        made(number)
    assert len(kept()) == KEPT


def test_a_setup_script_is_rendered_even_if_its_cache_is_not_writable() -> None:
    cache_dir().parent.mkdir(parents=True, exist_ok=True)
    cache_dir().write_text("a file where the folder should be")
    assert "A=1" in made(1)


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"\0" * 900, b"#!/usr/bin/env bash\n"])
def test_a_damaged_cached_setup_script_is_rendered_again(damage: bytes, faults: Faults) -> None:
    """Emptied by a power cut, filled with NUL bytes, or cut off: the digest detects it."""
    with faults.attempt("script cache damaged", damage[:2].hex() or "emptied"):
        fresh = made(1)
        (file,) = kept()
        file.write_bytes(damage)
        assert made(1) == fresh
        (file,) = kept()
        assert made(1) == fresh
        assert file.read_bytes().endswith(fresh.encode())


def test_a_cached_setup_script_overwritten_with_another_is_rendered_again() -> None:
    fresh = made(1)
    (file,) = kept()
    made(2)
    (other,) = set(kept()) - {file}
    file.write_bytes(other.read_bytes())
    assert made(1) == fresh


def test_a_disk_that_fills_while_a_script_is_cached_leaves_no_file(tmp_path: Path) -> None:
    """A file size limit cuts the write off as a full disk would."""
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (90, 90))\n"
        "from bootstrap.setup.script import render_recipe\n"
        "assert 'A=1' in render_recipe('x', {'': {'A': 1}}, (), '')\n"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("COVERAGE_PROCESS_CONFIG", None)  # its own file would be cut as well
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
