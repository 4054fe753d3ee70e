"""Logging in: through the user's ssh config, with the right key, or with a clear reason why not."""

import contextlib
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bootstrap.errors import UnreachableError, exit_code
from bootstrap.link import ReconnectingLink, keys
from bootstrap.link.dial import HeardSocket
from bootstrap.link.exchange import run_script
from bootstrap.link.transport import BoxTransport, KeyAuth
from tests.boxes.ports import free_port
from tests.listener import Listener
from tests.sshd import USER, Sshd, fingerprint, keygen, start_agent
from tests.unit.link.conftest import SshUser
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _forget_decrypted_keys() -> None:
    keys._loaded.clear()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A real ssh-agent; call it to add keys."""
    path = tmp_path / "agent"
    process = start_agent(path)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))

    def add(*options: str | Path) -> None:
        subprocess.run(["ssh-add", "-q", *map(str, options)], check=True, capture_output=True)

    yield add
    process.terminate()
    process.wait()


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A terminal whose user knows the passphrase; the list of questions asked."""
    asked: list[str] = []

    def secret(_: object, prompt: str) -> str:
        asked.append(prompt)
        return "opensesame"

    monkeypatch.setattr("bootstrap.link.prompt.Prompt.has_terminal", lambda _: True)
    monkeypatch.setattr("bootstrap.link.prompt.Prompt.secret", secret)
    return asked


def tries(server: Sshd) -> list[str]:
    """The fingerprints of the keys that the server was offered, each with the result."""
    pattern = r"(Accepted|Failed|Postponed) publickey for \S+ from .*?(SHA256:\S+)"
    return [f"{m[1]} {m[2]}" for m in re.finditer(pattern, server.log.read_text())]


def refusal(ssh_user: SshUser, host: str = "box", **options: object) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        ssh_user.login(host, **options)  # type: ignore[arg-type]
    assert exit_code(caught.value) == 3
    return caught.value


def test_login_through_a_jump_host_works_unless_ssh_refuses_the_jump_hosts_key(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    jump, inner = start_server("jump", ssh_user.key), start_server("inner", ssh_user.key)
    behind = ssh_user.alias("inner", inner, "ProxyJump jump")
    ssh_user.write(f"{ssh_user.alias('jump', jump, 'StrictHostKeyChecking yes')}\n{behind}")
    error = refusal(ssh_user, "inner")
    assert "Host key verification failed" in error.text() or "No ED25519" in error.text()
    assert "Accepted publickey" not in inner.log.read_text()
    ssh_user.write(f"{ssh_user.alias('jump', jump, 'StrictHostKeyChecking accept-new')}\n{behind}")
    assert run_script(ssh_user.login("inner"), "echo there") == b"there\n"
    assert "Accepted publickey" in jump.log.read_text()
    assert f"[127.0.0.1]:{jump.port}" in ssh_user.known_hosts.read_text()
    assert str(inner.port) not in ssh_user.known_hosts.read_text()


def test_login_through_a_proxy_command_works(ssh_user: SshUser, server: Sshd) -> None:
    relay = f"ssh -F {ssh_user.config} -W %h:%p box -o UserKnownHostsFile=/dev/null"
    relay += " -o StrictHostKeyChecking=no -o LogLevel=ERROR"
    ssh_user.write(
        ssh_user.alias("box", server)
        + "\n"
        + ssh_user.alias("behind", server, f"ProxyCommand {relay}")
    )
    wire = ssh_user.login("behind")
    assert run_script(wire, "echo there") == b"there\n"


def test_the_output_of_a_failing_proxy_command_is_in_the_login_error(ssh_user: SshUser) -> None:
    ssh_user.write("Host box\n ProxyCommand echo no way through >&2; exit 1")
    assert "no way through" in refusal(ssh_user).what


def test_a_refused_login_names_the_keys_tried_and_the_public_key_to_paste_and_pins_no_host_key(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box")
    ssh_user.write(ssh_user.alias("box", server))
    error = refusal(ssh_user)
    assert fingerprint(ssh_user.key) in error.what
    assert ssh_user.key.with_name("id_ed25519.pub").read_text().strip() in error.hint
    assert USER in error.what
    assert not ssh_user.box("box").known_hosts.exists()


def test_login_without_any_key_file_says_how_to_make_a_key(ssh_user: SshUser, server: Sshd) -> None:
    ssh_user.write(ssh_user.alias("box", server, "IdentityFile /nowhere"), identity=None)
    assert "ssh-keygen" in refusal(ssh_user).hint


def test_login_works_with_each_kind_and_format_of_key_file(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    forms = {
        "rsa": ["-t", "rsa"],
        "rsa_pem": ["-t", "rsa", "-m", "PEM"],
        "rsa_pkcs8": ["-t", "rsa", "-m", "PKCS8"],
        "ecdsa": ["-t", "ecdsa"],
        "ecdsa_521": ["-t", "ecdsa", "-b", "521"],
        "ecdsa_pkcs8": ["-t", "ecdsa", "-m", "PKCS8"],
        "ed25519": ["-t", "ed25519"],
    }
    made = [keygen(ssh_user.home / name, *options) for name, options in forms.items()]
    server = start_server("box", *made)
    ssh_user.write(ssh_user.alias("box", server), identity=None)
    for key in made:
        key.with_name(key.name + ".pub").rename(key.with_name(key.name + ".moved"))
        ssh_user.login("box", identity=str(key))
    assert [t.split()[0] for t in tries(server)] == ["Accepted"] * len(made)


def test_login_tries_the_chosen_identity_first_or_else_the_key_that_worked_last(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    import dataclasses

    others = [keygen(ssh_user.home / f"other{number}") for number in range(2)]
    server = start_server("box", ssh_user.key)
    lines = [f"IdentityFile {key}" for key in others]
    ssh_user.write(ssh_user.alias("box", server, *lines))
    ssh_user.login("box")
    assert len(tries(server)) == 3
    ssh_user.login("box", identity=str(ssh_user.key))
    assert len(tries(server)) == 4
    box = dataclasses.replace(ssh_user.box("box"), key=fingerprint(ssh_user.key))
    ssh_user.login("box", box=box)
    assert len(tries(server)) == 5


@pytest.mark.parametrize("form", [(), ("-t", "rsa", "-m", "PEM")], ids=["OpenSSH", "PEM"])
def test_the_passphrase_of_an_encrypted_key_is_asked_for_once_for_two_logins(
    ssh_user: SshUser, start_server: Callable[..., Sshd], prompts: list[str], form: tuple[str, ...]
) -> None:
    key = keygen(ssh_user.home / "locked", *form, passphrase="opensesame")
    server = start_server("box", key)
    if form:  # nothing beside it says which key it is
        key.with_name("locked.pub").unlink()
    ssh_user.write(ssh_user.alias("box", server, f"IdentityFile {key}"), identity=None)
    for _ in range(2):
        assert run_script(ssh_user.login("box"), "echo in") == b"in\n"
    assert len(prompts) == 1
    assert "locked" in prompts[0]


def test_no_passphrase_is_asked_for_a_key_that_the_box_would_refuse(
    ssh_user: SshUser, start_server: Callable[..., Sshd], prompts: list[str]
) -> None:
    locked = keygen(ssh_user.home / "locked", passphrase="opensesame")
    server = start_server("box", ssh_user.key)
    ssh_user.write(ssh_user.alias("box", server, f"IdentityFile {locked}"))
    ssh_user.login("box")
    assert prompts == []


def test_a_wrong_passphrase_fails_the_login_after_a_single_question(
    ssh_user: SshUser, start_server: Callable[..., Sshd], prompts: list[str]
) -> None:
    key = keygen(ssh_user.home / "locked", passphrase="something else")
    server = start_server("box", key)
    ssh_user.write(ssh_user.alias("box", server, f"IdentityFile {key}"), identity=None)
    assert "wrong passphrase" in refusal(ssh_user).what
    assert len(prompts) == 1


def test_without_a_terminal_the_error_says_that_the_accepted_key_needs_its_passphrase(
    ssh_user: SshUser, start_server: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.link.prompt.Prompt.has_terminal", lambda _: False)
    key = keygen(ssh_user.home / "locked", passphrase="opensesame")
    server = start_server("box", key)
    ssh_user.write(ssh_user.alias("box", server, f"IdentityFile {key}"), identity=None)
    refused = refusal(ssh_user)
    assert refused.what.startswith(f"it accepts your key {key}, but it needs its passphrase and")
    assert "provider's page" not in refused.hint


def test_an_encrypted_key_held_by_the_agent_needs_no_passphrase(
    ssh_user: SshUser,
    start_server: Callable[..., Sshd],
    agent: Callable[..., None],
    prompts: list[str],
) -> None:
    key = keygen(ssh_user.home / "locked", passphrase="opensesame")
    server = start_server("box", key)
    ssh_user.write(ssh_user.alias("box", server, f"IdentityFile {key}"), identity=None)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "opensesame", "-N", "", "-f", key], check=True)
    agent(key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "opensesame", "-f", key], check=True)
    ssh_user.login("box")
    assert prompts == []


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_login_works_with_agent_keys_of_every_kind(
    ssh_user: SshUser, start_server: Callable[..., Sshd], agent: Callable[..., None], kind: str
) -> None:
    key = keygen(ssh_user.home / "held", "-t", kind)
    agent(key)
    server = start_server("box", key)
    key.unlink()
    ssh_user.write(ssh_user.alias("box", server), identity=None)
    wire = ssh_user.login("box")
    assert wire.used_key == fingerprint(ssh_user.home / "held.pub")


def test_login_with_identities_only_tries_no_agent_key_that_is_not_named(
    ssh_user: SshUser, start_server: Callable[..., Sshd], agent: Callable[..., None]
) -> None:
    stray, named = keygen(ssh_user.home / "stray"), keygen(ssh_user.home / "named")
    agent(stray)
    agent(named)
    server = start_server("box", stray)
    ssh_user.write(ssh_user.alias("box", server, f"IdentityFile {named}"), identity=None)
    ssh_user.login("box")
    assert tries(server) == [f"Failed {fingerprint(named)}", f"Accepted {fingerprint(stray)}"] or (
        tries(server) == [f"Accepted {fingerprint(stray)}"]
        and len(re.findall("Failed publickey", server.log.read_text())) == 1
    )
    lines = (f"IdentityFile {named}", "IdentitiesOnly yes")
    ssh_user.write(ssh_user.alias("box", server, *lines), identity=None)
    error = refusal(ssh_user)
    assert fingerprint(named) in error.what
    assert fingerprint(stray) not in error.what


def test_a_login_tries_no_agent_key_with_identity_agent_none_and_names_a_dead_agent(
    ssh_user: SshUser, start_server: Callable[..., Sshd], agent: Callable[..., None]
) -> None:
    key = keygen(ssh_user.home / "held")
    agent(key)
    server = start_server("box", key)
    ssh_user.write(ssh_user.alias("box", server, "IdentityAgent none"))
    assert fingerprint(key) not in refusal(ssh_user).what
    ssh_user.write(ssh_user.alias("box", server, "IdentityAgent /nowhere/agent"), identity=None)
    assert "/nowhere/agent" in refusal(ssh_user).what


def test_login_works_with_user_certificates_from_files_and_from_the_agent(
    ssh_user: SshUser, start_server: Callable[..., Sshd], agent: Callable[..., None]
) -> None:
    authority = keygen(ssh_user.home / "ca")
    server = start_server("box", options=[f"TrustedUserCAKeys {authority}.pub"])
    for kind in ("ed25519", "rsa", "ecdsa"):
        key = keygen(ssh_user.home / f"certified_{kind}", "-t", kind)
        sign = ["ssh-keygen", "-q", "-s", authority, "-I", "test", "-n", USER, f"{key}.pub"]
        subprocess.run(sign, check=True)
        ssh_user.write(ssh_user.alias("box", server, f"IdentityFile {key}"), identity=None)
        ssh_user.login("box")
        # The agent signs, and the certificate is in another file.
        moved = ssh_user.home / f"elsewhere_{kind}.pub"
        key.with_name(f"{key.name}-cert.pub").rename(moved)
        agent("-D")
        agent(key)
        ssh_user.write(ssh_user.alias("box", server, f"CertificateFile {moved}"), identity=None)
        ssh_user.login("box")
    assert server.log.read_text().count("Accepted publickey") == 6


def test_unusable_ssh_keys_of_each_kind_have_an_error_message_of_their_own(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    import base64
    import struct

    def pack(part: bytes) -> bytes:
        return struct.pack(">I", len(part)) + part

    def private(kind: bytes) -> str:
        blob = pack(kind) + pack(b"x" * 32) + pack(b"ssh:")
        body = b"openssh-key-v1\0" + pack(b"none") * 2 + pack(b"") + struct.pack(">I", 1)
        text = base64.encodebytes(body + pack(blob) + pack(b"y" * 64)).decode()
        return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n"

    names = {"sk": b"sk-ssh-ed25519@openssh.com", "dsa": b"ssh-dss"}
    for name, kind in names.items():
        (ssh_user.home / name).write_text(private(kind))
        (ssh_user.home / name).chmod(0o600)
    open_key = keygen(ssh_user.home / "open_to_all")
    open_key.chmod(0o644)
    (ssh_user.home / "rubbish").write_text("no key at all\n")
    (ssh_user.home / "rubbish").chmod(0o600)
    server = start_server("box", open_key)
    lines = [f"IdentityFile {ssh_user.home}/{n}" for n in (*names, "open_to_all", "rubbish")]
    ssh_user.write(ssh_user.alias("box", server, *lines), identity=None)
    error = refusal(ssh_user).what
    assert "ssh-add" in error
    assert "DSA" in error
    assert "chmod 600" in error
    assert "damaged" in error


def test_if_the_box_hangs_up_after_too_many_agent_keys_the_hint_says_identities_only(
    ssh_user: SshUser, start_server: Callable[..., Sshd], agent: Callable[..., None]
) -> None:
    for number in range(8):
        agent(keygen(ssh_user.home / f"many{number}"))
    server = start_server("box", ssh_user.key, options=["MaxAuthTries 3"])
    ssh_user.write(ssh_user.alias("box", server))
    error = refusal(ssh_user)
    assert "hung up after" in error.what
    assert "IdentitiesOnly" in error.hint
    ssh_user.login("box", identity=str(ssh_user.key))


def test_a_box_that_demands_a_password_fails_the_login_with_a_hint(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server(
        "box", ssh_user.key, options=["PubkeyAuthentication no", "PasswordAuthentication yes"]
    )
    ssh_user.write(ssh_user.alias("box", server))
    error = refusal(ssh_user)
    assert "password" in error.what
    assert "keys only" in error.hint
    both = start_server(
        "both",
        ssh_user.key,
        options=["AuthenticationMethods publickey,password", "PasswordAuthentication yes"],
    )
    ssh_user.write(ssh_user.alias("box", both))
    assert "more than a key" in refusal(ssh_user).what


class NoSshServer:
    """A server that sends `say` to each client, or hangs up if that is None."""

    def __init__(self, say: bytes | None) -> None:
        self._say = say
        self._kept: list[socket.socket] = []
        self._listener = Listener(self._answer)
        self.port = self._listener.port

    def _answer(self, client: socket.socket) -> None:
        self._kept.append(client)
        with contextlib.suppress(OSError):
            client.close() if self._say is None else client.sendall(self._say)

    def close(self) -> None:
        self._listener.close()
        for one in self._kept:
            one.close()


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (None, "closed the connection before any login"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not an SSH server"),
        (b"x" * 5000, "not an SSH server"),
        (b"", "said nothing"),
        (b"SSH-2.0-half a line", ""),
        (b"wait\r\n", ""),
        (b"\x1b[31mred\n", "it said: red"),
        (b"Exceeded MaxStartups\r\n", "too many logins at a time"),
        (b"Not allowed at this time\r\n", "lets nobody in from this machine's address"),
        (b"SSH-1.5-old\r\n", "handshake failed"),
        (b"SSH-2.0-odd\r\n" + b"\0\0\0\0" * 50, "handshake failed"),
    ],
)
def test_a_server_that_is_no_ssh_server_is_reported_with_what_the_server_said(
    ssh_user: SshUser, monkeypatch: pytest.MonkeyPatch, say: bytes | None, words: str
) -> None:
    monkeypatch.setattr("bootstrap.link.dial._GREETING_TIMEOUT", 0.3)
    listener = NoSshServer(say)
    try:
        error = refusal(ssh_user, f"127.0.0.1:{listener.port}")
    finally:
        listener.close()
    assert words in error.what
    assert "\x1b" not in error.text()


def test_a_login_refused_because_of_too_many_logins_at_once_is_tried_again(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", ssh_user.key, options=["MaxStartups 1"])
    at = ("127.0.0.1", server.port)
    held = socket.create_connection(at)
    while held.recv(1) != b"S":  # what asked whether the server is up still counts
        held.close()
        held = socket.create_connection(at)
    warned: list[str] = []

    def warn(said: str) -> None:
        warned.append(said)
        held.close()

    host = f"127.0.0.1:{server.port}"
    link = ReconnectingLink(
        lambda: ssh_user.login(host), lost=lambda _: None, back=lambda: None, warn=warn
    )
    assert link.wire.alive()
    assert "too many logins at a time (MaxStartups). Trying again in 1 s." in warned[0]


def test_a_login_works_for_several_commands_at_once_on_a_box_with_max_sessions_1(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", ssh_user.key, options=["MaxSessions 1"])
    wire = ssh_user.login(f"127.0.0.1:{server.port}")
    wire.start("true").close()
    with ThreadPoolExecutor() as threads:
        streams = [*threads.map(wire.start, ["cat"] * 4)]
    assert run_script(wire, "echo there") == b"there\n"
    for stream in streams:
        stream.write(b"both")
        stream.close_write()
        assert stream.read(9) == b"both"
    wire.close()
    assert server.process is not None
    left = ["pgrep", "-P", str(server.process.pid)]
    wait_until(lambda: subprocess.run(left, check=False, stdout=subprocess.DEVNULL).returncode == 1)


def test_each_cause_of_an_unreachable_box_has_its_own_message(ssh_user: SshUser) -> None:
    assert "name was not found" in refusal(ssh_user, "no-such-box.invalid").what
    assert "name was not found" in refusal(ssh_user, "a..b").what
    assert "refused" in refusal(ssh_user, f"127.0.0.1:{free_port()}").what
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = full.getsockname()[1]
    filler = [socket.socket() for _ in range(3)]
    for one in filler:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    try:
        ssh_user.write("Host *\n ConnectTimeout 1")
        assert "no answer within 1 s" in refusal(ssh_user, f"127.0.0.1:{port}").what
    finally:
        for one in [full, *filler]:
            one.close()


def test_closing_an_unfinished_login_leaves_no_open_file(ssh_user: SshUser, server: Sshd) -> None:
    from bootstrap.link.dial import dial

    dialing = dial(ssh_user.endpoint("box"))
    dialing.socket()
    dialing.close()
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("open files can't be counted here")
    before = len(list(folder.iterdir()))
    dial(ssh_user.endpoint("box")).close()
    wait_until(lambda: len(list(folder.iterdir())) <= before)


@pytest.mark.parametrize("certified", ["", "-cert-v01@openssh.com"])
def test_an_rsa_key_signs_with_sha2_512_if_the_server_lists_no_algorithms(certified: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs, HeardSocket(fileno=ours.detach()) as connected:
        transport = BoxTransport(connected)
        transport.remote_version = "SSH-2.0-OpenSSH_9.6"
        chosen = KeyAuth(transport)._finalize_pubkey_algorithm(f"ssh-rsa{certified}")
        transport.close()
    assert chosen == f"rsa-sha2-512{certified}"
