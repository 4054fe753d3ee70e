"""Hosts through the real `ssh -G`."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.link.resolve import resolve
from bootstrap.link.target import parse_host
from tests.unit.link.conftest import Person
from tests.unit.link.sshd import keygen


def test_alias_in_an_included_file(person: Person) -> None:
    (person.home / "more").write_text("Host gpu\n HostName 10.1.2.3\n Port 2200\n User ubuntu\n")
    person.write(f"Include {person.home}/more")
    endpoint = person.endpoint("gpu")
    assert endpoint.label == "ubuntu@10.1.2.3:2200"
    assert endpoint.identity_files == (person.key,)


def test_match_blocks_count(person: Person) -> None:
    person.write("Match host gpu exec true\n  User matched")
    assert person.endpoint("gpu").user == "matched"


def test_what_was_typed_wins_over_the_config(person: Person) -> None:
    person.write("Host gpu\n User ubuntu\n Port 2200")
    endpoint = person.endpoint("ssh -p 7 root@gpu")
    assert (endpoint.user, endpoint.port) == ("root", 7)


def test_the_profiles_user_counts_where_nobody_named_one(person: Person) -> None:
    assert person.endpoint("10.1.2.3", user="ubuntu").user == "ubuntu"
    assert person.endpoint("me@10.1.2.3", user="ubuntu").user == "me"
    assert person.endpoint("10.1.2.3").user == getpass.getuser()
    person.write("Host gpu\n User configured")
    assert person.endpoint("gpu", user="ubuntu").user == "configured"


def test_jumps_become_a_command_of_the_real_ssh(person: Person) -> None:
    person.write("Host inner\n HostName 10.0.0.9\n ProxyJump first,me@second:44")
    command = person.endpoint("inner").proxy_command
    assert command == (f"ssh -F {person.config} -J first -W '[10.0.0.9]:22' -- ssh://me@second:44")
    assert "ssh://jump" in str(person.endpoint("ssh -J jump 10.0.0.9").proxy_command)


def test_proxy_command_tokens(person: Person) -> None:
    person.write("Host gpu\n HostName 10.0.0.9\n User me\n ProxyCommand way %h %p %r %n 100%%")
    assert person.endpoint("gpu").proxy_command == "way 10.0.0.9 22 me gpu 100%"
    person.write("Host gpu\n ProxyCommand none")
    assert person.endpoint("gpu").proxy_command is None


def test_identity_files(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", str(person.home))
    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.setattr("bootstrap.link.resolve._home", lambda: str(person.home))
    other = keygen(person.home / "with space")
    lonely = keygen(person.home / "lonely")
    lonely.unlink()
    lines = ["Host gpu", "IdentityFile ~/id_%r", 'IdentityFile "${KEYS}/with space"']
    lines += ["IdentityFile %d/id_ed25519", f"IdentityFile {lonely}", "IdentityFile /nowhere"]
    person.write("\n ".join([*lines, "User ed25519", "IdentitiesOnly yes"]), identity=None)
    endpoint = person.endpoint("gpu")
    assert endpoint.identity_files == (person.key, other, person.key, lonely)
    assert endpoint.identities_only


def test_chosen_identity(person: Person) -> None:
    other = keygen(person.home / "other")
    assert person.endpoint("gpu", identity=str(other)).chosen_identity == other
    assert person.endpoint(f"ssh -i {other} gpu").chosen_identity == other
    with pytest.raises(UsageError, match="no key file"):
        person.endpoint("gpu", identity="/nowhere/key")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "/the/agent"),
        ("IdentityAgent none", None),
        ("IdentityAgent SSH_AUTH_SOCK", "/the/agent"),
        ("IdentityAgent $MINE", "/my/agent"),
        ("IdentityAgent ${MINE}.sock", "/my/agent.sock"),
        ("IdentityAgent /run/%r/agent", "/run/me/agent"),
    ],
)
def test_agent_sockets(
    person: Person, monkeypatch: pytest.MonkeyPatch, line: str, expected: str | None
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/the/agent")
    monkeypatch.setenv("MINE", "/my/agent")
    person.write(f"Host gpu\n User me\n {line}")
    assert person.endpoint("gpu").identity_agent == expected


def test_other_settings(person: Person) -> None:
    person.write("Host gpu\n HostKeyAlias box\n ConnectTimeout 3\n AddressFamily inet6")
    endpoint = person.endpoint("gpu")
    assert endpoint.host_key_alias == "box"
    assert endpoint.connect_timeout == 3
    assert endpoint.address_family == "inet6"
    assert endpoint.known_hosts_files == (person.known_hosts,)
    assert person.endpoint("[2001:db8::1]:7").address == "[2001:db8::1]:7"


def test_a_broken_config_is_the_users(person: Person) -> None:
    person.config.write_text("Nonsense yes\n")
    with pytest.raises(UsageError, match=r"(?i)nonsense"):
        person.endpoint("gpu")


def test_without_ssh_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError) as caught:
        resolve(parse_host("gpu"))
    assert "openssh-client" in caught.value.hint


def test_known_hosts_files_with_blanks(person: Person, tmp_path: Path) -> None:
    """As `/mnt/c/Users/First Last/.ssh`: what it says of a changed key must not be missed."""
    there = tmp_path / "First Last 100%" / "known hosts"
    there.parent.mkdir()
    there.touch()
    quoted = str(there).replace("%", "%%")
    person.config.write_text(f'UserKnownHostsFile /none/1 "{quoted}" /none/2\n')
    assert person.endpoint("x").user_known_hosts_files == (Path("/none/1"), there, Path("/none/2"))
    person.config.write_text("UserKnownHostsFile none\n")
    assert person.endpoint("x").user_known_hosts_files == ()


def test_a_path_of_windows_is_told_as_one(person: Person) -> None:
    with pytest.raises(UsageError, match=r"/mnt/c/Users"):
        person.endpoint("x", identity=r"C:\Users\me\.ssh\id_ed25519")
