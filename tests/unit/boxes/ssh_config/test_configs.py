"""Real-world ssh configs: every other host stays as it was, and removal restores the file."""

from pathlib import Path

import pytest

from bootstrap.boxes.ssh_config import has_block, remove_block, update, with_block, without_block
from bootstrap.boxes.userfile import ConfigPlace
from tests.unit.boxes.ssh_config.asking import hosts_in, meaning, options
from tests.unit.boxes.ssh_config.configs import CONFIGS, USUAL
from tests.unit.boxes.ssh_config.conftest import MakeBox

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", CONFIGS)
def test_adding_and_removing_entries_leaves_an_ssh_config_unchanged_byte_for_byte(
    name: str, place: ConfigPlace, make_box: MakeBox
) -> None:
    data = CONFIGS[name]
    place.config.parent.mkdir()
    place.config.write_bytes(data)
    place.config.chmod(0o640)
    hosts = hosts_in(data)
    before = {host: meaning(place.config, host) for host in hosts}
    assert before["random-host-81724"][0] == 0, before
    make_box("my-box")
    make_box("Second.box_2", port=22)

    kept = update(place)
    assert kept.changed
    assert not kept.trouble
    assert {host: meaning(place.config, host) for host in hosts} == before
    mine = options(place.config, "my-box")
    assert (mine["hostname"], mine["port"], mine["user"]) == ("5.17.27.63", "46769", "root")
    assert place.config.stat().st_mode & 0o7777 == 0o640

    assert not update(place).changed
    assert remove_block(place)
    assert place.config.read_bytes() == data
    assert place.config.stat().st_mode & 0o7777 == 0o640
    assert sorted(p.name for p in place.config.parent.iterdir()) == ["config"]
    assert not remove_block(place)


def test_an_ssh_config_that_boxstrap_created_is_deleted_with_its_last_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    make_box("my-box")
    assert update(place).changed
    assert place.config.stat().st_mode & 0o7777 == 0o600
    assert place.entries.stat().st_mode & 0o7777 == 0o600
    for folder in (place.config.parent, place.folder):
        assert folder.stat().st_mode & 0o7777 == 0o700
    assert options(place.config, "my-box")["port"] == "46769"
    assert remove_block(place)
    assert not place.config.exists()


def test_removing_the_ssh_config_block_keeps_lines_added_by_the_user(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    make_box("my-box")
    update(place)
    with place.config.open("ab") as file:
        file.write(USUAL)
    remove_block(place)
    assert place.config.read_bytes() == USUAL


def test_an_include_line_that_the_user_moved_in_the_ssh_config_is_not_added_a_second_time(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    include = place.include
    moved = USUAL + f"\n  Include   {include}\n".encode()
    assert has_block(moved, include)
    assert with_block(moved, include) == moved
    assert without_block(moved, include) == USUAL + b"\n"
    for lookalike in (f"# Include {include}\n", f"Include {include}x\n", "Include other\n"):
        assert not has_block(lookalike.encode(), include)


def test_an_include_line_inside_a_host_block_of_the_ssh_config_is_reported_as_without_effect(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    make_box("my-box")
    update(place)
    place.config.write_text(f"Host work\n    Include {place.include}\n")
    box = make_box("other", port=1)
    kept = update(place)
    assert "has no effect at its position" in kept.trouble
    assert kept.alias(box) == ""


def test_an_ssh_config_that_ssh_refuses_is_not_changed(
    place: ConfigPlace, make_box: MakeBox, tmp_path: Path
) -> None:
    place.config.parent.mkdir()
    for broken in (b"\xef\xbb\xbf" + USUAL, b"Host a\n  Prot 22\n", b'Host "a\n'):
        place.config.write_bytes(broken)
        make_box("my-box")
        kept = update(place)
        assert "ssh does not accept" in kept.trouble
        assert f"Include {place.include}" in kept.trouble
        assert str(place.config) in kept.trouble
        assert ".config." not in kept.trouble
        assert kept.alias(make_box("my-box")) == ""
        assert place.config.read_bytes() == broken
        assert [p.name for p in place.config.parent.iterdir()] == ["config"]
