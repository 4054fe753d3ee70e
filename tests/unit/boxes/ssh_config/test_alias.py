"""The end of a setup: when the ssh config is updated, when it is left alone, and what is said."""

import dataclasses
import io
from pathlib import Path

import pytest

from bootstrap.boxes import ssh_config as updating
from bootstrap.boxes.alias import drop_alias, update_alias
from bootstrap.boxes.ssh_config import remove_block
from bootstrap.boxes.userfile import VARIABLE, ConfigPlace
from bootstrap.link import Endpoint, KnownBox, parse_host, registry
from bootstrap.ui.screen import Screen
from bootstrap.ui.screens import make_screen
from tests.unit.boxes.ssh_config.conftest import MakeBox


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def screen(said: io.StringIO) -> Screen:
    return make_screen(stream=said, out=io.StringIO())


def test_setup_announces_the_ssh_alias_of_a_box_once(
    place: ConfigPlace, make_box: MakeBox, screen: Screen, said: io.StringIO
) -> None:
    box = make_box("my-box")
    assert update_alias(box, screen, is_noisy=False) == "my-box"
    assert "`ssh my-box` leads to this box" in said.getvalue()
    length = len(said.getvalue())
    assert update_alias(box, screen, is_noisy=False) == "my-box"
    assert len(said.getvalue()) == length


def test_setup_says_not_for_scp_and_rsync_for_a_box_whose_shell_prints_at_each_login(
    place: ConfigPlace, make_box: MakeBox, screen: Screen, said: io.StringIO
) -> None:
    assert update_alias(make_box("my-box"), screen, is_noisy=True) == "my-box"
    assert "for editors too; not for scp and rsync, as its shell prints" in said.getvalue()


def test_host_local_gets_no_ssh_alias(
    place: ConfigPlace, make_box: MakeBox, screen: Screen
) -> None:
    make_box("my-box")
    local = KnownBox("local", "local")
    assert update_alias(local, screen, is_noisy=False) == ""
    assert not place.config.exists()
    assert not place.folder.exists()


def test_setup_adds_no_ssh_config_entry_after_the_user_removed_the_block_or_set_the_variable_off(
    place: ConfigPlace, make_box: MakeBox, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make_box("my-box")
    update_alias(box, screen, is_noisy=False)
    remove_block(place)
    assert update_alias(box, screen, is_noisy=False) == ""
    drop_alias(screen)
    assert not place.config.exists()
    assert not place.entries.exists()
    place.off.unlink()
    monkeypatch.setenv(VARIABLE, "off")
    assert update_alias(box, screen, is_noisy=False) == ""
    assert not place.config.exists()


def test_a_read_only_ssh_config_gives_one_warning_and_fails_no_setup(
    place: ConfigPlace,
    make_box: MakeBox,
    screen: Screen,
    said: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place.config.parent.mkdir()
    place.config.write_text("Host *\n")
    place.config.chmod(0o400)
    box = make_box("my-box")
    for _ in range(2):
        assert update_alias(box, screen, is_noisy=False) == ""
    assert said.getvalue().count("is read-only") == 1

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(updating, "write_private", full)
    assert update_alias(make_box("another", port=1), screen, is_noisy=False) == ""
    assert "ssh/config can't be used: no space left on device.\n" in said.getvalue()


def test_a_login_as_root_at_box_name_does_not_replace_the_recorded_address_of_the_box(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """`root@my-box` is resolved by our own entry, so the host by which the box was met is kept."""
    box = make_box("my-box")
    led = Endpoint(
        "my-box",
        box.address,
        "root",
        box.port,
        host_key_alias="my-box",
        user_known_hosts_files=(box.known_hosts,),
    )
    met = registry.get_or_create(parse_host("root@my-box"), led)
    assert (met.name, met.host_text) == ("my-box", box.host_text)
    other = registry.get_or_create(parse_host("root@my-box"), led, new_box=True)
    assert other.host_text == box.host_text
    alone = dataclasses.replace(led, user_known_hosts_files=(Path("/elsewhere"),))
    assert registry.get_or_create(parse_host("root@my-box"), alone).host_text == "root@my-box"
