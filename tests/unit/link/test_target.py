"""Hosts as people type them, and what is refused before anything runs."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.errors import UsageError
from bootstrap.link.target import looks_like_unquoted_ssh, parse_host
from tests.cli import User

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


def test_the_host_local_means_this_machine() -> None:
    assert parse_host("local").is_local


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
