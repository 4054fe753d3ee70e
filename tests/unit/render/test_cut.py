"""A script that arrives cut does nothing at all, wherever the cut is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.render.scripts import shipped_script

TRIPWIRE = "this-must-never-be-shown"
# What bash says of a text that ends too early; the line it stopped at may follow.
UNREADABLE = re.compile(r"unexpected |syntax error|here-document|: `")
MODES = (["preflight"], ["plan"], ["run", "20260101-000000-abcdef", "0"])


@pytest.fixture(scope="module")
def script() -> bytes:
    return shipped_script("vast").encode()


def places(whole: bytes) -> Iterator[int]:
    """Where to cut: every 97th byte, and every byte of the last 2 KB; the last newline may go."""
    yield from range(0, len(whole) - 2048, 97)
    yield from range(len(whole) - 2048, len(whole) - 1)


def run(home: Path, script: bytes, mode: list[str]) -> tuple[str, str]:
    """Let bash read it, as a box does, where no program can be found; output and errors."""
    # One argument of a command is no longer than 128 KiB, and the script is.
    file = home / f"{len(script)}.sh"
    file.write_bytes(script)
    done = subprocess.run(
        ["/bin/bash", "--norc", str(file), *mode],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=home,
        env={"PATH": str(home / "empty"), "HOME": str(home), "TRIPWIRE": TRIPWIRE},
        timeout=20,
        check=False,
    )
    file.unlink()
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def wrong(home: Path, cut: bytes, mode: list[str]) -> str | None:
    """What is wrong with what a cut script did; None where it did nothing."""
    out, errors = run(home, cut, mode)
    if TRIPWIRE in out + errors:
        return f"it shows the environment: {(out + errors)[:200]}"
    # No program is in reach, so whatever began to work answers, or complains.
    others = [line for line in errors.splitlines() if not UNREADABLE.search(line)]
    return f"it began to work: {out[:200]} {others[:3]}" if out or others else None


def test_cut_anywhere_it_does_nothing(script: bytes, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cuts = [(at, MODES[number % len(MODES)]) for number, at in enumerate(places(script))]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda cut: wrong(tmp_path, script[: cut[0]], cut[1]), cuts)
        bad = [(at, said) for (at, _), said in zip(cuts, found, strict=True) if said]
    assert bad == []
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode[0])
def test_whole_it_begins_to_work_so_the_test_above_can_fail(
    script: bytes, tmp_path: Path, mode: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert "it began to work" in (wrong(tmp_path, script, mode) or "")
    assert "it began to work" in (wrong(tmp_path, script[:-1], mode) or "")


def test_it_never_shows_the_environment(script: bytes, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for mode in ([], ["unknown"], *MODES):
        assert TRIPWIRE not in "".join(run(tmp_path, script, mode))
