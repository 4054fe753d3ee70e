"""Host keys: pinned at first contact, refused when they changed."""

import base64
import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap import paths
from bootstrap.boxes import Run
from bootstrap.boxes.at_home import RunAtHome, all_kept
from bootstrap.boxes.receipt import check_receipt, receipt_file, write_receipt
from bootstrap.errors import HostKeyError, UsageError, exit_code
from bootstrap.link import forgotten, record, registry
from bootstrap.link.hostkeys import HostKeyCheck, read_pins
from bootstrap.link.prompt import Prompt
from bootstrap.link.public_key import PublicKey
from bootstrap.link.registry import check_fingerprint
from bootstrap.link.wire import not_found
from bootstrap.runs.remote_command import ssh_command
from bootstrap.transfer.manifest import Manifest, RunOrigin
from tests.logins import login_to
from tests.sshd import Sshd, fingerprint, keygen
from tests.unit.link.conftest import SshUser

pytestmark = pytest.mark.slow

WRONG = "SHA256:" + "A" * 43


def public(server: Sshd, kind: str = "ed25519") -> str:
    return " ".join((server.folder / f"host_{kind}.pub").read_text().split()[:2])


def logins(server: Sshd) -> int:
    """Count the logins that the server saw: those that got as far as trying a key."""
    return server.log.read_text().count("Accepted publickey") + server.log.read_text().count(
        "Failed publickey"
    )


def test_ssh_accepts_the_saved_host_key_by_address_and_by_alias(
    ssh_user: SshUser, server: Sshd
) -> None:
    ssh_user.login("box")
    strict = ["-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    strict += ["-o", f"UserKnownHostsFile={ssh_user.box('box').known_hosts}"]
    for alias in ([], ["-o", "HostKeyAlias=box"]):
        subprocess.run(
            ["ssh", "-F", str(ssh_user.config), *strict, *alias, "box", "true"], check=True
        )


def test_the_real_ssh_finds_the_pinned_key_in_a_folder_with_blanks_and_percent_signs(
    ssh_user: SshUser, server: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as `/mnt/c/Users/First Last` under WSL."""
    monkeypatch.setattr("bootstrap.paths.state_dir", lambda: tmp_path / "First Last 100%")
    ssh_user.reach("box").close()
    endpoint = ssh_user.endpoint("box")
    box = login_to(ssh_user.box("box"), endpoint, host="box")
    # Even if the user's own config sets another HostKeyAlias.
    ssh_user.write(ssh_user.alias("box", server, "HostKeyAlias theirs"))
    command = ssh_command(box, "true", terminal=False)
    command[1:1] = ["-F", str(ssh_user.config), "-o", "BatchMode=yes"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def test_the_real_ssh_uses_the_jump_host_of_the_login_and_no_commands_of_the_ssh_config(
    ssh_user: SshUser, start_server: Callable[..., Sshd], tmp_path: Path
) -> None:
    """Through a pasted jump host; what the user's config adds to a login there disturbs nothing."""
    jump, server = start_server("jump", ssh_user.key), start_server("box", ssh_user.key)
    own = ("RemoteCommand echo own", "RequestTTY force", "ForwardX11 yes", "SessionType none")
    own += (f"LocalForward {server.port} 127.0.0.1:1", "ExitOnForwardFailure yes", "StdinNull yes")
    own += ("PermitLocalCommand yes", f"LocalCommand touch {tmp_path}/local", "Tunnel yes")
    ssh_user.write(
        ssh_user.alias("hop", jump, "StrictHostKeyChecking accept-new")
        + "\n"
        + ssh_user.alias("box", server, *own)
    )
    for host, is_through in (("ssh box", False), ("ssh -J hop box", True)):
        ssh_user.reach(host).close()
        seen = jump.log.read_text().count("Accepted publickey")
        box = login_to(ssh_user.box(host), ssh_user.endpoint(host), host=host)
        command = ssh_command(box, "cat; tty; echo; exit 3", terminal=False)
        command[1:1] = ["-F", str(ssh_user.config), "-o", "BatchMode=yes"]
        done = subprocess.run(command, check=False, input=b"typed\n", capture_output=True)
        assert (done.returncode, done.stdout) == (3, b"typed\nnot a tty\n\n"), done.stderr
        assert (jump.log.read_text().count("Accepted publickey") > seen) is is_through
    assert not (tmp_path / "local").exists()


def test_the_real_ssh_uses_no_control_socket_that_boxstrap_did_not_create(
    ssh_user: SshUser, start_server: Callable[..., Sshd], tmp_path: Path
) -> None:
    """The user's config shares connections, and one is open to the box that was there before.

    Another user of this machine could also have put a socket where that config looks for it.
    """
    server, before = start_server("box", ssh_user.key), start_server("before", ssh_user.key)
    socket = tmp_path / "shared"
    shared = ("ControlMaster auto", f"ControlPath {socket}", "StrictHostKeyChecking no")
    ssh_user.write(ssh_user.alias("box", before, *shared))
    ssh = ["ssh", "-F", str(ssh_user.config), "-o", "BatchMode=yes"]
    subprocess.run(
        [*ssh, "-o", "ControlPersist=60", "box", "true"], check=True, capture_output=True
    )
    ssh_user.write(ssh_user.alias("box", server, *shared))
    ssh_user.reach("box").close()
    box = login_to(ssh_user.box("box"), ssh_user.endpoint("box"), host="box")
    command = ssh_command(box, "true", terminal=False)
    command[1:1] = ssh[1:]
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        assert before.log.read_text().count("Starting session") == 1
    finally:
        subprocess.run([*ssh, "-O", "exit", "box"], check=False, capture_output=True)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_login_works_if_the_box_got_host_keys_of_more_kinds_since_the_first_login(
    ssh_user: SshUser, start_server: Callable[..., Sshd], kind: str
) -> None:
    server = start_server("box", ssh_user.key, host_key_types=(kind,))
    ssh_user.write(ssh_user.alias("box", server))
    ssh_user.login("box")
    server.stop()
    server.host_key_types = ("ed25519", "ecdsa", "rsa")
    for other in server.host_key_types:
        if not (server.folder / f"host_{other}").exists():
            keygen(server.folder / f"host_{other}", "-t", other)
    server.start()
    ssh_user.login("box")


def test_a_changed_host_key_exits_with_4_before_any_login(ssh_user: SshUser, server: Sshd) -> None:
    ssh_user.login("box")
    before, old = logins(server), server.fingerprint
    server.new_host_key()
    with pytest.raises(HostKeyError) as caught:
        ssh_user.login("box")
    message = caught.value.text()
    assert old in message
    assert server.fingerprint in message
    assert "--new-box" in message
    assert "boxstrap boxes --forget box\n" in message
    assert exit_code(caught.value) == 4
    assert logins(server) == before
    assert [key.fingerprint for key in read_pins(ssh_user.box("box"))] == [old]


def test_the_first_login_saves_host_key_and_address_of_the_box_and_prints_the_key_once(
    ssh_user: SshUser, server: Sshd
) -> None:
    """Whatever happens after the login, the next one must find the pin again."""
    ssh_user.reach("box").close()
    box = registry.box_by_name("box")
    assert box is not None
    assert (box.address, box.port) == ("127.0.0.1", server.port)
    assert [key.fingerprint for key in read_pins(box)] == [server.fingerprint]
    assert [path.name for path in box.folder.parent.iterdir()] == ["box"]
    ssh_user.login("box")
    (said,) = ssh_user.said
    assert server.fingerprint in said
    server.new_host_key()
    for typed in ("box", f"me@127.0.0.1:{server.port}"):
        with pytest.raises(HostKeyError, match="changed"):
            ssh_user.reach(typed)
    with pytest.raises(HostKeyError, match="pinned for box"):  # a new name typed for the place
        ssh_user.reach(typed, box=ssh_user.box(typed, name="other"))
    assert [path.name for path in box.folder.parent.iterdir()] == ["box"]


def test_a_known_box_on_a_new_port_keeps_its_pinned_key(ssh_user: SshUser, server: Sshd) -> None:
    ssh_user.reach("box").close()
    server.stop()
    server.port += 1
    server.start()
    ssh_user.write(ssh_user.alias("elsewhere", server))
    ssh_user.reach("elsewhere", box=ssh_user.box("elsewhere", name="box")).close()
    moved = registry.box_by_name("box")
    assert moved is not None
    assert moved.port == server.port
    server.new_host_key()
    with pytest.raises(HostKeyError):
        ssh_user.reach(f"me@127.0.0.1:{server.port}")


@pytest.mark.parametrize("lost", ["box.json", "known_hosts", "both are empty"])
def test_a_login_to_a_box_whose_record_or_host_key_was_lost_needs_option_new_box(
    ssh_user: SshUser, server: Sshd, lost: str
) -> None:
    ssh_user.reach("box").close()
    folder = ssh_user.box("box").folder
    for path in folder.iterdir():
        if lost == path.name:
            path.unlink()
        elif lost == "both are empty":
            path.write_text("")
    left = sorted(path.name for path in folder.iterdir())
    before = logins(server)
    hosts = ["box", f"me@127.0.0.1:{server.port}"] if lost == "box.json" else ["box"]
    for typed in hosts:
        with pytest.raises(HostKeyError) as caught:
            ssh_user.reach(typed)
        message = caught.value.text()
        assert "boxstrap boxes --forget box" in message
        assert "--new-box" in message
        if lost == "box.json":
            assert f"--host-key {server.fingerprint}" in message
    assert logins(server) == before
    assert sorted(path.name for path in folder.iterdir()) == left
    ssh_user.reach("box", box=ssh_user.box("box", new_box=True)).close()
    assert ssh_user.box("box").name == "box-2"
    with pytest.raises(UsageError, match="already"):
        ssh_user.box("box", name="box", new_box=True)


def test_of_two_first_logins_at_once_the_later_refuses_a_host_key_other_than_the_saved_one(
    ssh_user: SshUser, server: Sshd
) -> None:
    first, second = ssh_user.box("box"), ssh_user.box("box")
    ssh_user.reach("box", box=first).close()
    ssh_user.reach("box", box=second).close()
    server.new_host_key()
    with pytest.raises(HostKeyError):  # the box was not known yet when this contact started
        ssh_user.reach("box", box=second)


def test_a_first_login_with_another_host_key_than_one_pinned_meanwhile_is_refused(
    ssh_user: SshUser, server: Sshd, start_server: Callable[..., Sshd]
) -> None:
    """Both started before either was pinned; the second saw another key."""
    late = ssh_user.box("box")
    check = HostKeyCheck(ssh_user.endpoint("box"), late, Prompt(ssh_user.said.append))
    other = start_server("other", ssh_user.key)
    check.judge(PublicKey("ssh-ed25519", base64.b64decode(public(other).split()[1])))
    ssh_user.reach("box").close()
    with pytest.raises(HostKeyError, match="pinned for box"):
        check.keep()
    assert [key.fingerprint for key in read_pins(late)] == [server.fingerprint]


def test_a_new_box_at_a_known_address_gets_its_own_pin(ssh_user: SshUser, server: Sshd) -> None:
    ssh_user.login("box")
    old = ssh_user.box("box")
    server.new_host_key()
    new = ssh_user.box("box", new_box=True)
    ssh_user.login("box", box=new)
    assert new.name == "box-2"
    assert [key.fingerprint for key in read_pins(new)] == [server.fingerprint]
    assert read_pins(old) != read_pins(new)
    assert not [said for said in ssh_user.said if "has this address and this host key" in said]
    ssh_user.login("box", box=ssh_user.box("box", new_box=True))  # once more, by mistake
    assert ssh_user.said[-2].startswith("box-2 has this address and this host key, too: unless")


def test_a_changed_host_key_is_refused_on_another_port_too(ssh_user: SshUser, server: Sshd) -> None:
    """A box's name is its HostKeyAlias: another port is not a first contact."""
    ssh_user.login("box")
    server.stop()
    server.port += 1
    server.new_host_key()
    ssh_user.write(ssh_user.alias("box", server))
    with pytest.raises(HostKeyError):
        ssh_user.login("box", box=ssh_user.box("box", name="box"))


def test_an_unexpected_host_key_is_refused_before_login(ssh_user: SshUser, server: Sshd) -> None:
    with pytest.raises(HostKeyError) as caught:
        ssh_user.login("box", host_key=WRONG)
    assert WRONG in caught.value.text()
    assert server.fingerprint in caught.value.text()
    assert logins(server) == 0
    assert not ssh_user.box("box").known_hosts.exists()
    ssh_user.login("box", host_key=server.fingerprint + "=")
    assert ssh_user.said == []
    # Once pinned, a wrong expectation is still refused.
    with pytest.raises(HostKeyError):
        ssh_user.login("box", host_key=WRONG)


def test_with_first_contact_strict_or_ask_and_no_terminal_an_unknown_host_key_is_refused(
    ssh_user: SshUser, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.link.prompt.Prompt.has_terminal", lambda _: False)
    for first_contact in ("strict", "ask"):
        with pytest.raises(HostKeyError) as caught:
            ssh_user.login("box", first_contact=first_contact)
        assert f"--host-key {server.fingerprint}" in caught.value.text()
    assert logins(server) == 0


@pytest.mark.parametrize("answer", [True, False])
def test_first_contact_ask_pins_the_host_key_only_after_a_yes(
    ssh_user: SshUser, server: Sshd, monkeypatch: pytest.MonkeyPatch, *, answer: bool
) -> None:
    questions: list[str] = []

    def confirm(_: object, build_query: str) -> bool:
        questions.append(build_query)
        return answer

    monkeypatch.setattr("bootstrap.link.prompt.Prompt.confirm", confirm)
    if answer:
        ssh_user.login("box", first_contact="ask")
    else:
        with pytest.raises(HostKeyError):
            ssh_user.login("box", first_contact="ask")
    assert len(questions) == 1
    assert server.fingerprint in questions[0]
    assert ssh_user.box("box").known_hosts.exists() == answer


def test_a_host_key_in_known_hosts_is_pinned_silently(ssh_user: SshUser, server: Sshd) -> None:
    ssh_user.known_hosts.write_text(f"[127.0.0.1]:{server.port} {public(server)}\n")
    ssh_user.login("box", first_contact="strict")
    assert ssh_user.said == []
    assert ssh_user.box("box").known_hosts.exists()


def test_a_box_with_several_host_keys_is_accepted_if_known_hosts_has_one_of_them(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    """A box has several host keys; the one that is known must not look like a contradiction."""
    server = start_server("box", ssh_user.key, host_key_types=("ed25519", "ecdsa", "rsa"))
    for kind in ("rsa", "ecdsa"):
        ssh_user.write(ssh_user.alias(kind, server))
        ssh_user.known_hosts.write_text(f"[127.0.0.1]:{server.port} {public(server, kind)}\n")
        ssh_user.login(kind, box=ssh_user.box(kind), first_contact="strict")
        forgotten.forget_box(ssh_user.box(kind))


def test_a_login_to_a_forgotten_box_with_the_same_host_key_restores_its_name_and_runs(
    ssh_user: SshUser, start_server: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, other = (start_server(name, ssh_user.key) for name in ("box", "other"))
    ssh_user.write(f"{ssh_user.alias('box', server)}\n{ssh_user.alias('other', other)}")
    run = Run("key", "train-1", "running", None, 1, "", "", "train", 0, 0, "true")

    def meet(host: str, name: str | None = None) -> tuple[str, list[str]]:
        said: list[str] = []
        known = ssh_user.box(host, name=name)
        box = login_to(known, ssh_user.endpoint(host), said.append, host=host)
        box.options = dataclasses.replace(box.options, name=name)
        assert box.wire
        box.close()
        return box.name, [line.partition(";")[0] for line in said if "forgotten" in line]

    def forget(name: str) -> None:
        box = registry.box_by_name(name)
        assert box is not None
        forgotten.forget_box(box)

    def owners() -> list[bool]:
        there = {(box.name, box.created) for box in record.all_boxes()}
        return [(one.box, one.created) in there for one in all_kept()]

    def proven() -> list[str]:
        """Return the names of boxes whose receipt of the run proves that its results are here."""
        found = [(box, receipt_file(box.folder, "key", run.name)) for box in record.all_boxes()]
        return [
            box.name
            for box, file in found
            if not check_receipt(file, (box.name, "key", run.name), {}, {})
        ]

    assert meet("box", "trainer") == ("trainer", [])
    own = record.all_boxes()[0].using("key", workdir="/w").using("other-key", root="abc")
    record.save_box(own)
    RunAtHome("trainer", own.created, "box", run).save()
    receipt = receipt_file(record.all_boxes()[0].folder, "key", run.name)
    origin = RunOrigin("trainer", "key", run.name)
    write_receipt(receipt, Manifest(origin, [], {}, frozenset()), paths.state_dir())
    for name in ("nina", "trainer"):
        assert meet("box", name) == (name, [])
        assert (owners(), proven()) == ([True], [name])
    assert "No box is known here" in not_found(ssh_user.endpoint("nobody")).hint
    forget("trainer")
    gone = not_found(ssh_user.endpoint("trainer")).text()
    assert gone.startswith("trainer: the box of this name was forgotten here.\nWith its address ")
    assert (owners(), proven()) == ([False], [])
    assert meet("other") == ("other", [])
    told = "box was known here as trainer until it was forgotten"
    assert meet("box") == ("trainer", [f"{told}, and is called so again"])
    assert (owners(), proven()) == ([True], ["trainer"])
    theirs = [(one.key, one.root) for one in registry.only_box("key").repositories]
    assert theirs == [("other-key", "abc"), ("key", "")]
    assert meet("box") == ("trainer", [])
    # Where its name is another's by now, or it is given one, it is only told.
    forget("trainer")
    forget("other")
    assert meet("other", "Trainer")[0] == "Trainer"
    assert meet("box") == ("box", [told])
    assert proven() == ["box"]
    forget("box")
    # Another box may have the same key (images bring keys), or the same place (it is rented anew).
    nina = ssh_user.box("box", name="nina")
    for port, key in ((nina.port + 1, server), (nina.port, other)):
        another = dataclasses.replace(nina, port=port)
        record.save_with_pin(another, f"x {public(key)}\n", is_new=True)
        assert forgotten.met_again(another) is None
        forgotten.forget_box(another)
    assert meet("box", "nina") == ("nina", ["nina was known here as box until it was forgotten"])
    assert (owners(), proven()) == ([True], ["nina"])
    # Of those forgotten last only so many are kept.
    monkeypatch.setattr(forgotten, "_MOST", 1)
    forget("Trainer")
    forget("nina")
    assert len([*(paths.state_dir() / "forgotten").iterdir()]) == 1
    assert [meet("other"), meet("box")[0]] == [("other", []), "nina"]


def test_a_host_key_that_contradicts_the_users_known_hosts_is_refused_before_any_login(
    ssh_user: SshUser, server: Sshd
) -> None:
    other = keygen(ssh_user.home / "other")
    stale = " ".join(other.with_name("other.pub").read_text().split()[:2])
    ssh_user.known_hosts.write_text(f"[127.0.0.1]:{server.port} {stale}\n")
    with pytest.raises(HostKeyError) as caught:
        ssh_user.login("box")
    assert fingerprint(other) in caught.value.text()
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'\n" in caught.value.text()
    assert logins(server) == 0
    # The user can override it: with another box, or with the fingerprint.
    ssh_user.login("box", box=ssh_user.box("box", name="third"), host_key=server.fingerprint)
    ssh_user.login("box", box=ssh_user.box("box", new_box=True))


def test_a_revoked_host_key_is_refused_even_if_expected(ssh_user: SshUser, server: Sshd) -> None:
    ssh_user.known_hosts.write_text(f"@revoked * {public(server)}\n")
    with pytest.raises(HostKeyError, match="revoked"):
        ssh_user.login("box", host_key=server.fingerprint)


def test_an_expected_host_key_fingerprint_other_than_sha256_is_refused() -> None:
    for text in ("", "SHA256:short", "MD5:00:11", WRONG + "AA", "sha256:" + "A" * 43):
        with pytest.raises(UsageError):
            check_fingerprint(text)
