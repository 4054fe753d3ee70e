"""Scripts are kept in the cache folder; nobody can tell a kept one from a fresh one."""

from __future__ import annotations

from pathlib import Path

from bootstrap.paths import cache_dir
from bootstrap.render.script import KEPT, render_script


def kept() -> list[Path]:
    return sorted((cache_dir() / "scripts").glob("*"))


def test_a_kept_script_is_the_fresh_one_byte_for_byte() -> None:
    odd = "a\rb\r\nc\u2028d\x85e\x0cf 'g' \\ é"
    fresh = render_script("x", [("A", odd)], ())
    assert odd.replace("'", "'\\''") in fresh
    assert render_script("x", [("A", odd)], ()) == fresh
    assert [path.stat().st_mode & 0o777 for path in kept()] == [0o600]


def test_no_more_than_a_few_are_kept() -> None:
    for number in range(KEPT + 5):
        render_script("x", [("A", number)], ())
    assert len(kept()) == KEPT


def test_a_cache_that_cannot_be_written_is_none() -> None:
    cache_dir().parent.mkdir(parents=True, exist_ok=True)
    cache_dir().write_text("a file where the folder should be")
    assert "A=1" in render_script("x", [("A", 1)], ())


def test_a_damaged_one_is_made_anew() -> None:
    fresh = render_script("x", [("A", 1)], ())
    (file,) = kept()
    file.write_bytes(b"\xff\xfe")
    assert render_script("x", [("A", 1)], ()) == fresh
