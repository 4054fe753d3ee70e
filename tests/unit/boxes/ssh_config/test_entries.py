"""What the entries say, as the real ssh understands them; when a setup writes or leaves them."""

import dataclasses
import io
from pathlib import Path

import pytest

from bootstrap.boxes import ssh_config as updating
from bootstrap.boxes.alias import drop_alias, update_alias
from bootstrap.boxes.ssh_config import TAKEN, remove_block, update
from bootstrap.boxes.userfile import VARIABLE, ConfigPlace
from bootstrap.link import Endpoint, KnownBox, Route, all_boxes, forget_box, parse_host, registry
from bootstrap.ui.screen import Screen
from bootstrap.ui.screens import make_screen
from tests.unit.boxes.ssh_config.asking import meaning, options
from tests.unit.boxes.ssh_config.conftest import KEY, MakeBox


def test_an_ssh_config_entry_holds_host_port_user_key_and_host_key_of_its_box(
    place: ConfigPlace, make_box: MakeBox, tmp_path: Path
) -> None:
    key = tmp_path / "my key 100%"
    key.touch()
    box = make_box(
        "my-box", route=Route(identities=(str(key),), identity=str(key), identities_only=True)
    )
    update(place)
    place.config.write_text(
        place.config.read_text()
        + "Host *\n  ForwardAgent yes\n  RemoteCommand tmux\n  RequestTTY force\n"
        "  ForwardX11 yes\n  ForwardX11Trusted yes\n  GSSAPIDelegateCredentials yes\n"
        "  StrictHostKeyChecking no\n  UpdateHostKeys yes\n  ProxyJump corp\n  User other\n"
    )
    mine = options(place.config, "my-box")
    said = {
        "hostname": "5.17.27.63",
        "port": "46769",
        "user": "root",
        "identityfile": f"{key}%",  # as written: ssh reads `%%` as `%`
        "identitiesonly": "yes",
        "userknownhostsfile": str(box.known_hosts),
        "hostkeyalias": "my-box",
        "stricthostkeychecking": "true",
        "updatehostkeys": "false",
        "serveraliveinterval": "15",
        "serveralivecountmax": "4",
        "forwardagent": "no",
        "forwardx11": "no",
        "forwardx11trusted": "no",
        "gssapidelegatecredentials": "no",
        "requesttty": "auto",
    }
    if "GSSAPI" not in place.entries.read_text():  # an ssh without Kerberos has no such option
        del said["gssapidelegatecredentials"]
    assert {name: mine.get(name) for name in said} == said
    assert "remotecommand" not in mine
    assert "proxyjump" not in mine
    assert "proxycommand" not in mine


@pytest.mark.parametrize(
    ("fields", "option", "value"),
    [
        ({"jump": "me@bastion:2222,second"}, "proxyjump", "me@bastion:2222,second"),
        ({"proxy": "colab ssh --at 100% -s x"}, "proxycommand", "colab ssh --at 100%% -s x"),
    ],
)
def test_an_ssh_config_entry_keeps_the_jump_host_or_proxy_of_its_box(
    fields: dict[str, str], option: str, value: str, place: ConfigPlace, make_box: MakeBox
) -> None:
    make_box("my-box", route=Route(**fields))
    update(place)
    assert options(place.config, "my-box")[option] == value


def test_a_box_known_by_a_bare_address_gets_an_ssh_alias_with_its_port(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """An entry for the address itself would apply to every other box there."""
    make_box("203.0.113.7-22", address="203.0.113.7", port=22)
    before = meaning(place.config.parent / "none", "203.0.113.7")
    kept = update(place)
    assert kept.entries.aliases == ("203.0.113.7-22",)
    mine = options(place.config, "203.0.113.7-22")
    assert (mine["hostname"], mine["hostkeyalias"]) == ("203.0.113.7", "203.0.113.7-22")
    assert options(place.config, "203.0.113.7")["stricthostkeychecking"] == "ask"
    assert before[0] != 0


def test_a_box_recorded_by_a_newer_boxstrap_keeps_its_ssh_config_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    make_box("one")
    newer = make_box("two", address="198.51.100.9", port=2222)
    update(place)
    (newer.folder / "box.json").write_text('{"v": 999}')
    before = options(place.config, "two")
    make_box("one", port=50001)
    assert update(place).changed
    assert not update(place).changed
    assert options(place.config, "one")["port"] == "50001"
    assert options(place.config, "two") == before
    forget_box(newer)
    assert update(place).changed
    assert options(place.config, "two")["hostname"] == "two"


def test_only_the_newest_of_several_boxes_at_one_address_has_an_ssh_config_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    make_box("old")
    make_box("other", port=22)
    make_box("new")
    assert set(update(place).entries.aliases) == {"new", "other"}
    assert {box.name for box in all_boxes()} == {"old", "other", "new"}


def test_a_users_own_ssh_alias_of_a_box_gains_only_the_pinned_host_key(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """If the box is reached by it, the pinned host key is added, and nothing else."""
    text = "Host gpu\n  HostName 5.17.27.63\n  Port 46769\n  ForwardAgent yes\n  User me\n"
    place.config.parent.mkdir()
    place.config.write_text(text)
    plain = options(place.config, "gpu")
    box = make_box("gpu", "gpu", route=Route(known_hosts=("/home/me/kh 1",)))
    update(place)
    now = options(place.config, "gpu")
    assert now.pop("userknownhostsfile") == f"/home/me/kh 1 {box.known_hosts}"
    plain.pop("userknownhostsfile")
    assert plain.pop("updatehostkeys") != now.pop("updatehostkeys")  # ssh: off if files are set
    assert now == plain


def test_a_second_box_at_the_address_of_a_users_ssh_alias_gets_an_ssh_entry_by_box_name(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """--new-box: `ssh gpu` accepts both keys; the new box also has its own name."""
    place.config.parent.mkdir()
    place.config.write_text("Host gpu\n  HostName 5.17.27.63\n")
    old = make_box("gpu", "gpu", port=22)
    new = make_box("gpu-2", "gpu", port=46769)
    update(place)
    files = options(place.config, "gpu")["userknownhostsfile"]
    assert str(old.known_hosts) in files
    assert str(new.known_hosts) in files
    assert options(place.config, "gpu-2")["port"] == "46769"


@pytest.mark.slow
def test_a_box_with_the_name_of_another_host_in_the_users_ssh_config_gets_no_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    place.config.parent.mkdir()
    place.config.write_text("Host work\n  HostName work.example.org\n")
    before = meaning(place.config, "work")
    box = make_box("work", "root@5.17.27.63:46769")
    kept = update(place)
    assert meaning(place.config, "work") == before
    assert dict(kept.entries.left_out) == {"work": TAKEN}
    assert kept.alias(box) == ""
    assert not update(place).changed
    place.config.write_text(place.config.read_text().replace("Host work", "Host office"))
    assert not update(place).changed
    assert update(place, afresh=True).alias(box) == "work"


def test_a_box_name_in_the_users_ssh_config_in_other_capitals_gets_no_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """The entry of `GPU` has the name `gpu` too."""
    place.config.parent.mkdir()
    place.config.write_text("Host gpu\n  HostName work.example.org\n  User me\n")
    before = [meaning(place.config, form) for form in ("gpu", "GPU")]
    box = make_box("GPU")
    kept = update(place)
    assert [meaning(place.config, form) for form in ("gpu", "GPU")] == before
    assert kept.alias(box) == ""
    assert dict(kept.entries.left_out) == {"GPU": TAKEN}


def test_boxes_whose_names_differ_only_in_capitals_share_no_ssh_config_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """An earlier version of boxstrap recorded both."""
    make_box("gpu")
    make_box("GPU", port=22)
    kept = update(place)
    assert options(place.config, "gpu")["port"] == "22"
    assert dict(kept.entries.left_out) == {
        "gpu": "its name differs from a newer box's only in upper and lower case"
    }


def test_a_box_without_a_pinned_host_key_and_this_machine_get_no_ssh_config_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    make_box("no-pin").known_hosts.unlink()
    make_box("local", "local", address="")
    assert update(place).entries.aliases == ()


@pytest.mark.slow
def test_a_box_whose_key_path_can_not_be_quoted_gets_no_ssh_entry_and_a_reason(
    place: ConfigPlace, make_box: MakeBox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = tmp_path / 'a "key"'
    key.touch()
    make_box("odd", route=Route(identities=(str(key),)))
    make_box("fine", port=22)
    kept = update(place)
    assert kept.entries.aliases == ("fine",)
    assert "can name the path" in kept.entries.left_out["odd"]
    assert not update(place).changed
    key.unlink()
    assert "odd" in update(place).entries.aliases


@pytest.mark.slow
def test_a_box_named_like_a_host_that_the_user_knows_never_gets_an_ssh_config_entry(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """Else `git push`, or a script of theirs, would log in to a rented box."""
    place.config.parent.mkdir(parents=True)
    place.config.with_name("known_hosts").write_text(f"prod.example.org {KEY}\n")
    for name in ("github.com", "localhost", "127.0.0.1", "prod.example.org", "gpu-1"):
        make_box(name, address=f"{name}.invalid")
    assert update(place).entries.aliases == ("gpu-1",)
    place.config.write_text(
        place.config.read_text()
        + "Host corp\n  User me\nHost *.lan\n  ProxyJump gate\nHost gpu-*\n  User root\n"
    )
    for name in ("corp", "db.lan", "gpu-2"):
        make_box(name, address=f"{name}.invalid")
    kept = update(place)
    assert set(kept.entries.aliases) == {"gpu-1", "gpu-2"}
    assert options(place.config, "corp")["user"] == "me"
    assert set(kept.entries.left_out.values()) == {TAKEN}


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
    """`root@my-box` is resolved by our own entry, so the host by which the box was met is kept.
    ssh tells the entry's alias in small letters."""
    box = make_box("My-Box")
    led = Endpoint(
        "my-box",
        box.address,
        "root",
        box.port,
        host_key_alias="my-box",
        user_known_hosts_files=(box.known_hosts,),
    )
    met = registry.get_or_create(parse_host("root@my-box"), led)
    assert (met.name, met.host_text) == ("My-Box", box.host_text)
    other = registry.get_or_create(parse_host("root@my-box"), led, new_box=True)
    assert other.host_text == box.host_text
    alone = dataclasses.replace(led, user_known_hosts_files=(Path("/elsewhere"),))
    assert registry.get_or_create(parse_host("root@my-box"), alone).host_text == "root@my-box"
