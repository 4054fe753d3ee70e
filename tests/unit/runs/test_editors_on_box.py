"""The queries of `code`, run on this machine: what it has, and settings replaced as a whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.link import LocalWire
from bootstrap.runs.editors import EDITORS, lacks, read_editor_state, write_settings

CODE = EDITORS["code"]


@pytest.fixture
def wire() -> Iterator[LocalWire]:
    made = LocalWire()
    yield made
    made.close()


def test_asking_a_box_if_it_suits_an_editor_writes_no_file_and_gives_libc_tools_and_disk(
    wire: LocalWire, own_home: Path
) -> None:
    found = read_editor_state(wire, CODE, "/bin/sh")
    assert found.has_python  # any program will do here
    assert found.facts["libc"][0].startswith("glibc ")
    assert {"bash", "tar"} <= set(found.facts["tool"])
    assert int(found.facts["free"][0]) > 0
    assert (found.settings, found.sum) == ("", "")
    assert not read_editor_state(wire, CODE, "/nowhere/python").has_python
    assert list(own_home.iterdir()) == []
    assert "glibc" not in [lack.code for lack in lacks(found.facts, forwards=True)]


def test_an_editors_settings_on_a_box_are_not_overwritten_if_they_changed_since_they_were_read(
    wire: LocalWire, own_home: Path
) -> None:
    path = own_home / CODE.machine_settings
    assert write_settings(wire, CODE, read_editor_state(wire, CODE, "x"), '{"a": "ä"}\n')
    assert path.read_text() == '{"a": "ä"}\n'
    path.chmod(0o640)
    found = read_editor_state(wire, CODE, "x")
    assert found.settings == '{"a": "ä"}\n'
    assert write_settings(wire, CODE, found, "{}\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert not write_settings(wire, CODE, found, "too late")
    assert path.read_text() == "{}\n"
    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]


def test_writing_editor_settings_on_a_box_changes_neither_a_symlink_to_them_nor_odd_bytes(
    wire: LocalWire, own_home: Path
) -> None:
    path = own_home / CODE.machine_settings
    path.parent.mkdir(parents=True)
    (own_home / "real").write_bytes(b'// caf\xe9\n{"a": 1}')
    path.symlink_to("../../../real")
    found = read_editor_state(wire, CODE, "x")
    assert write_settings(wire, CODE, found, found.settings.replace("1", "2"))
    assert (own_home / "real").read_bytes() == b'// caf\xe9\n{"a": 2}'
    assert path.is_symlink()
