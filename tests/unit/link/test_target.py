"""Hosts as people type them, what is refused before anything runs, and the real `ssh -G`."""

import getpass
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.link.endpoint import resolve
from bootstrap.link.target import looks_like_unquoted_ssh, parse_host
from tests.cli import User
from tests.sshd import keygen
from tests.unit.link.conftest import SshUser

FORWARD = "8080:localhost:8080"
VAST = f"ssh -p 46769 root@5.17.27.63 -L {FORWARD}"


@pytest.mark.parametrize(
    ("text", "user", "address", "port"),
    [
        ("box", None, "box", None),
        ("me@box", "me", "box", None),
        ("me@box:2200", "me", "box", 2200),
        ("box:2200", None, "box", 2200),
        ("ssh://me@box:2200", "me", "box", 2200),
        ("ssh://box/", None, "box", None),
        ("2001:db8::1", None, "2001:db8::1", None),
        ("me@[2001:db8::1]:2200", "me", "2001:db8::1", 2200),
        ("[fe80::1%eth0]", None, "fe80::1%eth0", None),
        ("pod-64410d@ssh.runpod.io", "pod-64410d", "ssh.runpod.io", None),
        ("me@example.org@box", "me@example.org", "box", None),
        ("  box  ", None, "box", None),
    ],
)
def test_each_way_of_typing_a_host_is_parsed_into_user_address_and_port(
    text: str, user: str | None, address: str, port: int | None
) -> None:
    target = parse_host(text)
    assert (target.user, target.address, target.port) == (user, address, port)
    assert not target.is_local


def test_host_may_be_an_ssh_command_with_port_identity_jump_host_and_forward() -> None:
    target = parse_host(VAST)
    assert (target.user, target.address, target.port) == ("root", "5.17.27.63", 46769)
    assert target.forwards == ("8080:localhost:8080",)
    target = parse_host("ssh me@box -i ~/.ssh/id_gpu -p2200 -J a@jump:22,second")
    assert (target.identity, target.port) == ("~/.ssh/id_gpu", 2200)
    assert target.jump == "a@jump:22,second"
    assert parse_host("ssh -l me ssh://box:7").user == "me"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ssh -D 1080 box", "-D 1080"),
        ("ssh -o ProxyCommand=x box", "-o ProxyCommand=x"),
        ("ssh -A box", "-A"),
        ("ssh -p 1 -p 2 box", "twice"),
        ("ssh -p 1 ssh://box:2", "two ports"),
        ("ssh -l a b@box", "two users"),
        ("ssh box reboot", "reboot"),
        ("ssh -p 22", "no address"),
        ("ssh", "no address"),
        ("ssh box -p", "lacks its value"),
        ("ssh -J -oX box", "lacks its value"),
        ("ssh -J a,,b box", "empty host"),
        ("ssh -L x box", "no forward"),
    ],
)
def test_an_ssh_command_with_other_options_is_refused_by_option_name(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_host(text)
    assert why in caught.value.what


REFUSED = (
    "", "  ", "-oProxyCommand=x", "a b", "a\tb", "a\nb", "a;b", "a$b", "`a`", "a'b", 'a"b',
    "a\\b", "a|b", "a&b", "a>b", "a(b", "me@-oX", "-l@box", "@box", "me@", "box:", "box:0",
    "box:65536", "box:-1", "box:+1", "box:x", "box:\u0661",
    "[::1", "[::1]x", "[::1]:", "[nope]",
    "1:2:3", "a\u202eb", "a\u200bb", "a\u00a0b", "a\x7fb", "a\x1b[31mb", "a*b", "a/b", "a%b",
    "ssh://", "ssh -p 22 -- -oX", "ssh -i $(x) box", "a:b@box:2", "ssh -J a@-oX box",
)  # fmt: skip


def test_a_host_with_shell_or_control_characters_is_refused_with_an_example() -> None:
    for text in REFUSED:
        with pytest.raises(UsageError) as caught:
            parse_host(text)
        message = caught.value.text()
        assert '--host "ssh -p 46769' in message, text
        assert all(c.isprintable() or c == "\n" for c in message), text


@given(st.text(max_size=40) | st.text("ssh -piJL@:[]a1.%/", max_size=40))
def test_any_text_typed_as_host_is_wrong_usage_unless_it_has_no_shell_characters(text: str) -> None:
    try:
        target = parse_host(text)
    except UsageError:
        return
    for word in (target.address, target.user or "x", target.jump or "x", *target.forwards):
        assert not word.startswith("-")
        assert not set(word) & set("\"'`$;\\&|<>(){} \t\n")
    assert target.port is None or 1 <= target.port <= 65535


NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20).filter(
    lambda name: not name.startswith("-") and name not in ("local", "ssh")
)


@given(NAMES, NAMES, st.integers(1, 65535))
def test_each_way_of_typing_a_host_means_the_same_box(user: str, address: str, port: int) -> None:
    forms = [
        f"{user}@{address}:{port}",
        f"ssh://{user}@{address}:{port}",
        f"ssh -p {port} {user}@{address}",
        f"ssh {address} -l {user} -p{port}",
        f"ssh -p {port} -- {user}@{address}",
    ]
    parsed = [parse_host(form) for form in forms]
    assert {(t.user, t.address, t.port) for t in parsed} == {(user, address, port)}


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (f"setup --host {VAST}", f'--host "{VAST}"'),
        (f"setup --host {VAST} --profile vast", f'--host "{VAST}"'),
        (f"setup --host={VAST}", f'--host "{VAST}"'),
        (f"setup {VAST} --profile vast", f'--host "{VAST}"'),
        ("setup --host box -p 22", None),
        ("setup --name ssh -p 22", None),
        ("setup --host ssh", None),
        ("setup", None),
    ],
)
def test_an_ssh_command_pasted_without_quotes_after_host_is_suggested_with_quotes(
    line: str, form: str | None
) -> None:
    assert looks_like_unquoted_ssh(line.split()) == form
    if form:
        parse_host(form.removeprefix("--host ").strip('"'))


def test_status_of_a_pasted_ssh_command_with_a_port_forward_advises_tunnel(user: User) -> None:
    """Also if the box can't be reached: the message comes before the login."""
    paste = f"ssh -p 1 root@127.0.0.1 -L {FORWARD}"
    done = user.run("status", "--host", paste).must(3)
    assert f"this command doesn't open -L {FORWARD}; use: boxstrap tunnel" in done.err
    assert "tunnel" not in user.run("status", "--host", "ssh -p 1 root@127.0.0.1").must(3).err
    assert "doesn't open" not in user.run("tunnel", "--host", paste).must(3).err


def test_a_host_alias_in_an_included_ssh_config_file_is_resolved(ssh_user: SshUser) -> None:
    (ssh_user.home / "more").write_text("Host gpu\n HostName 10.1.2.3\n Port 2200\n User ubuntu\n")
    ssh_user.write(f"Include {ssh_user.home}/more")
    endpoint = ssh_user.endpoint("gpu")
    assert endpoint.label == "ubuntu@10.1.2.3:2200"
    assert endpoint.identity_files == (ssh_user.key,)


def test_user_and_port_of_a_match_block_of_the_ssh_config_yield_to_typed_ones(
    ssh_user: SshUser,
) -> None:
    ssh_user.write("Match host gpu exec true\n  User matched\n  Port 2200")
    for host, means in (("gpu", ("matched", 2200)), ("ssh -p 7 root@gpu", ("root", 7))):
        assert (ssh_user.endpoint(host).user, ssh_user.endpoint(host).port) == means


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
