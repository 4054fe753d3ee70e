"""Hosts resolved by the real `ssh -G`."""

import getpass
from pathlib import Path

import pytest

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.link import parse_host
from bootstrap.link.endpoint import resolve
from tests.sshd import keygen
from tests.unit.link.conftest import SshUser


def test_a_host_alias_in_an_included_ssh_config_file_is_resolved(ssh_user: SshUser) -> None:
    (ssh_user.home / "more").write_text("Host gpu\n HostName 10.1.2.3\n Port 2200\n User ubuntu\n")
    ssh_user.write(f"Include {ssh_user.home}/more")
    endpoint = ssh_user.endpoint("gpu")
    assert endpoint.label == "ubuntu@10.1.2.3:2200"
    assert endpoint.identity_files == (ssh_user.key,)


def test_the_login_user_comes_from_a_match_block_of_the_ssh_config(ssh_user: SshUser) -> None:
    ssh_user.write("Match host gpu exec true\n  User matched")
    assert ssh_user.endpoint("gpu").user == "matched"


def test_a_typed_user_and_port_win_over_the_ssh_config(ssh_user: SshUser) -> None:
    ssh_user.write("Host gpu\n User ubuntu\n Port 2200")
    endpoint = ssh_user.endpoint("ssh -p 7 root@gpu")
    assert (endpoint.user, endpoint.port) == ("root", 7)


def test_the_login_user_of_a_profile_is_used_only_if_no_other_is_named(ssh_user: SshUser) -> None:
    assert ssh_user.endpoint("10.1.2.3", user="ubuntu").user == "ubuntu"
    assert ssh_user.endpoint("me@10.1.2.3", user="ubuntu").user == "me"
    assert ssh_user.endpoint("10.1.2.3").user == getpass.getuser()
    ssh_user.write("Host gpu\n User configured")
    assert ssh_user.endpoint("gpu", user="ubuntu").user == "configured"


def test_jump_hosts_of_a_box_are_reached_by_the_real_ssh(ssh_user: SshUser) -> None:
    ssh_user.write("Host inner\n HostName 10.0.0.9\n ProxyJump first,me@second:44")
    command = ssh_user.endpoint("inner").proxy_command
    assert command == (
        f"ssh -F {ssh_user.config} -J first -W '[10.0.0.9]:22' -- ssh://me@second:44"
    )
    assert "ssh://jump" in str(ssh_user.endpoint("ssh -J jump 10.0.0.9").proxy_command)


def test_proxy_command_tokens_of_the_ssh_config_are_expanded(ssh_user: SshUser) -> None:
    ssh_user.write("Host gpu\n HostName 10.0.0.9\n User me\n ProxyCommand way %h %p %r %n 100%%")
    assert ssh_user.endpoint("gpu").proxy_command == "way 10.0.0.9 22 me gpu 100%"
    ssh_user.write("Host gpu\n ProxyCommand none")
    assert ssh_user.endpoint("gpu").proxy_command is None


def test_variables_in_identity_file_of_the_ssh_config_are_replaced_and_missing_keys_skipped(
    ssh_user: SshUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYS", str(ssh_user.home))
    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.setattr("bootstrap.link.endpoint._home", lambda: str(ssh_user.home))
    other = keygen(ssh_user.home / "with space")
    lonely = keygen(ssh_user.home / "lonely")
    lonely.unlink()
    lines = ["Host gpu", "IdentityFile ~/id_%r", 'IdentityFile "${KEYS}/with space"']
    lines += ["IdentityFile %d/id_ed25519", f"IdentityFile {lonely}", "IdentityFile /nowhere"]
    ssh_user.write("\n ".join([*lines, "User ed25519", "IdentitiesOnly yes"]), identity=None)
    endpoint = ssh_user.endpoint("gpu")
    assert endpoint.identity_files == (ssh_user.key, other, ssh_user.key, lonely)
    assert endpoint.identities_only


def test_an_identity_that_is_no_existing_file_is_wrong_usage(ssh_user: SshUser) -> None:
    other = keygen(ssh_user.home / "other")
    assert ssh_user.endpoint("gpu", identity=str(other)).chosen_identity == other
    assert ssh_user.endpoint(f"ssh -i {other} gpu").chosen_identity == other
    with pytest.raises(UsageError, match="no key file"):
        ssh_user.endpoint("gpu", identity="/nowhere/key")


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
def test_the_identity_agent_of_the_ssh_config_gives_the_agents_socket(
    ssh_user: SshUser, monkeypatch: pytest.MonkeyPatch, line: str, expected: str | None
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/the/agent")
    monkeypatch.setenv("MINE", "/my/agent")
    ssh_user.write(f"Host gpu\n User me\n {line}")
    assert ssh_user.endpoint("gpu").identity_agent == expected


def test_a_public_key_as_identity_is_refused_naming_the_private_key(ssh_user: SshUser) -> None:
    with pytest.raises(UsageError) as found:
        ssh_user.endpoint("box", identity=f"{ssh_user.key}.pub")
    assert f"Name the private one: {ssh_user.key}" in found.value.text()


def test_a_login_obeys_host_key_alias_connect_timeout_and_address_family_of_the_ssh_config(
    ssh_user: SshUser,
) -> None:
    ssh_user.write("Host gpu\n HostKeyAlias box\n ConnectTimeout 3\n AddressFamily inet6")
    endpoint = ssh_user.endpoint("gpu")
    assert endpoint.host_key_alias == "box"
    assert endpoint.connect_timeout == 3
    assert endpoint.address_family == "inet6"
    assert endpoint.known_hosts_files == (ssh_user.known_hosts,)
    assert ssh_user.endpoint("[2001:db8::1]:7").address == "[2001:db8::1]:7"


def test_a_broken_ssh_config_is_a_usage_error_with_sshs_words(ssh_user: SshUser) -> None:
    ssh_user.config.write_text("Nonsense yes\n")
    with pytest.raises(UsageError, match=r"(?i)nonsense"):
        ssh_user.endpoint("gpu")


def test_without_an_ssh_program_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError) as caught:
        resolve(parse_host("gpu"))
    assert "openssh-client" in caught.value.hint


def test_known_hosts_paths_with_blanks_in_the_ssh_config_are_read(
    ssh_user: SshUser, tmp_path: Path
) -> None:
    """Such as `/mnt/c/Users/First Last/.ssh`: a changed key recorded there must not be missed."""
    there = tmp_path / "First Last 100%" / "known hosts"
    there.parent.mkdir()
    there.touch()
    quoted = str(there).replace("%", "%%")
    ssh_user.config.write_text(f'UserKnownHostsFile /none/1 "{quoted}" /none/2\n')
    assert ssh_user.endpoint("x").user_known_hosts_files == (
        Path("/none/1"),
        there,
        Path("/none/2"),
    )
    ssh_user.config.write_text("UserKnownHostsFile none\n")
    assert ssh_user.endpoint("x").user_known_hosts_files == ()


def test_a_windows_path_given_as_identity_is_refused_with_the_wsl_path(ssh_user: SshUser) -> None:
    with pytest.raises(UsageError, match=r"/mnt/c/Users"):
        ssh_user.endpoint("x", identity=r"C:\Users\me\.ssh\id_ed25519")
