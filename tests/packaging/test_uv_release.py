"""The uv that boxes get: each kind of machine has a wheel, and renewing it loses nothing."""

from __future__ import annotations

import re

from bootstrap import uv_release
from tests.packaging.uv_release import MODULE, PLATFORMS, renewed


def test_each_kind_of_machine_has_a_wheel_of_this_version() -> None:
    assert set(uv_release.WHEELS) == set(PLATFORMS)
    for machine, (name, digest) in uv_release.WHEELS.items():
        assert name.startswith(f"uv-{uv_release.VERSION}-py3-none-")
        assert PLATFORMS[machine] in name
        assert re.fullmatch("[0-9a-f]{64}", digest)


def test_writing_the_same_release_again_changes_nothing() -> None:
    text = MODULE.read_text(encoding="utf-8")
    assert renewed(text, uv_release.VERSION, uv_release.WHEELS) == text


def test_a_new_release_replaces_all_of_the_old_one() -> None:
    wheels = {machine: (f"uv-9.9.9-{machine}.whl", "0" * 64) for machine in PLATFORMS}
    text = renewed(MODULE.read_text(encoding="utf-8"), "9.9.9", wheels)
    assert uv_release.VERSION not in text
    made: dict[str, object] = {}
    exec(text, made)
    assert made["VERSION"] == "9.9.9"
    assert made["WHEELS"] == wheels
