"""Arguments and profile values are data: never run, and refused before any box is contacted.

Each row runs in this process, through the code that `setup` starts with; only git and `ssh -G` may
be started, and nothing may connect. A few go through the real program, with a wrapper that logs
uses of `ssh`, and a port that listens.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import UsageError, exit_code
from bootstrap.setup import SetupRequest
from bootstrap.setup.context import get_context
from bootstrap.ui.screens import make_screen
from tests.cli import User
from tests.doors.terminal import terminal
from tests.faults.plugin import Faults
from tests.hostile import measure
from tests.hostile.inputs import ADDRESS, CANARY, OPTIONS
from tests.hostile.measure import OBEYED
from tests.listener import Listener
from tests.plain_environment import BIN
from tests.programs import captured

# These only look something up, and run nothing that a value names.
_HARMLESS = {"git", "ssh"}


@dataclass
class ProcessWatch:
    """What was started and connected during a test."""

    started: list[list[str]] = field(default_factory=list)
    connected: list[object] = field(default_factory=list)

    def nothing_happened(self) -> None:
        assert self.connected == []
        for argv in self.started:
            assert argv[0] in _HARMLESS, argv
            assert argv[0] != "ssh" or argv[1] == "-G", argv


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> ProcessWatch:
    """Record what this process starts and connects to; a shell is refused."""
    seen = ProcessWatch()
    popen = subprocess.Popen.__init__

    def start(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        assert not options.get("shell"), args
        seen.started.append([os.fspath(args)] if isinstance(args, str) else list(map(str, args)))
        popen(self, args, *rest, **options)

    def connect(self: socket.socket, address: object) -> None:
        seen.connected.append(address)
        raise ConnectionRefusedError

    def refuse(*args: object) -> None:
        raise AssertionError(f"something was run: {args}")

    monkeypatch.setattr(subprocess.Popen, "__init__", start)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, connect)
    for name in ("system", "popen", "posix_spawn", "execv", "execve"):
        monkeypatch.setattr(os, name, refuse)
    return seen


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user whose current folder is a repository."""
    user = User(tmp_path_factory.mktemp("stand") / "home")
    user.repository()
    return user


@pytest.fixture
def place(stand: User, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(stand.place)
    yield stand.place
    assert {path.name for path in stand.place.iterdir()} == {".git", "train.py", "boxstrap.yaml"}


def refused(watch: ProcessWatch, **asked: Any) -> UsageError:
    """Return the UsageError, after checking that nothing was run or connected before it."""
    asked.setdefault("host", f"root@{ADDRESS}")
    with pytest.raises(UsageError) as caught:
        get_context(SetupRequest(**asked, committed_only=True), make_screen(json=True))
    watch.nothing_happened()
    said = caught.value.text()
    assert exit_code(caught.value) == 2
    assert not OBEYED.search(said.encode("utf-8", "surrogatepass")), ascii(said[:300])
    assert len(said) < 30_000
    return caught.value


def write(place: Path, text: str) -> str:
    """Write a profile next to the repository; return its path."""
    file = place.parent / "hostile.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("text", ["-----BEGIN OPENSSH PRIVATE KEY-----", "ssh-rsa", "a\nb", "\0"])
def test_malformed_public_keys_of_a_profile_are_refused_before_a_box_is_contacted(
    text: str, place: Path, watch: ProcessWatch, faults: Faults
) -> None:
    file = place.parent / "key.pub"
    file.write_text(text)
    with faults.attempt("hostile value of a profile", at=f"public key: {text[:20]!a}"):
        profile = write(place, f"version: 1\nssh: {{authorized_keys: [{file}]}}")
        said = refused(watch, profile=profile).text()
        assert "hostile.yaml:2: ssh.authorized_keys" in said
        os.mkfifo(fifo := file.with_name("fifo.pub"))
        refused(watch, profile=write(place, f"ssh: {{authorized_keys: [{fifo}]}}"))
        fifo.unlink()


@pytest.mark.parametrize("option", OPTIONS)
def test_hostile_values_of_options_are_refused_before_anything_runs_or_connects(
    option: str, place: Path, watch: ProcessWatch, faults: Faults
) -> None:
    for value in OPTIONS[option]:
        with faults.attempt("hostile option", at=f"--{option} {value[:40]!a}"):
            refused(watch, **{option: Path(value) if option == "repo" else value})
            assert not (place / CANARY).exists()


@pytest.fixture
def victim(user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    """A user with a key that is not theirs, in a clone."""
    root = user.repository().root
    (user.home / "evil.pub").write_text(f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'E' * 43} evil\n")
    monkeypatch.chdir(root)
    return user


@pytest.mark.boxes  # only root may mount
def test_a_cloned_profile_asks_for_consent_also_when_its_folder_is_bind_mounted_elsewhere(
    victim: User, faults: Faults
) -> None:
    """By a bind mount here; a case-insensitive file system has the same effect."""
    (victim.place / "boxstrap.yaml").write_text("version: 1\nsecrets: [A_TOKEN]\n")
    (victim.home / "twin").mkdir()
    mount = f"mount --bind {victim.place} {victim.home}/twin"
    inside = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", str(BIN / "boxstrap")]
    for named in ("../twin/boxstrap.yaml", f"{victim.home}/twin/boxstrap.yaml"):
        with faults.attempt("a cloned profile takes what is not its own", at=named):
            done = captured(
                [*inside, "oneliner", "--profile", named],
                cwd=victim.place,
                env=victim.env,
                check=False,
            )
            assert done.returncode == 2
            assert "  secret      A_TOKEN" in done.stderr


@pytest.mark.boxes  # only root may give a file away
@pytest.mark.parametrize("whose", ["file", "link"])
def test_a_profile_owned_by_another_user_is_refused_until_git_safe_directory_allows_it(
    whose: str, victim: User, watch: ProcessWatch, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, shared = victim.place / "boxstrap.yaml", victim.home / "shared"
    shared.mkdir()
    (shared / "own.yaml").write_text("version: 1\nwrong: [\n")
    named.unlink()
    if whose == "file":
        (shared / "own.yaml").rename(named)
    else:
        named.symlink_to("../shared/own.yaml")
    os.chown(named, 4711, -1, follow_symlinks=False)
    (shared / "mine.yaml").write_text("version: 1\nextends: ../homework/boxstrap.yaml\n")
    for profile in (None, str(named), str(shared / "mine.yaml")):
        with faults.attempt("a profile of another user", at=f"{whose} {profile and profile[-13:]}"):
            error = refused(watch, profile=profile)
            assert "belongs to another user" in error.what
            assert f"safe.directory {victim.place.resolve()}" in error.hint
    # The user's own git config counts, as with git; then the profile's content is refused.
    monkeypatch.setenv("SUDO_UID", "4711")
    assert "belongs" not in refused(watch).text()
    monkeypatch.delenv("SUDO_UID")
    (victim.home / ".gitconfig").write_text(f"[safe]\n\tdirectory = {victim.place.resolve()}\n")
    assert "belongs" not in refused(watch).text()


GREEDY_TASKS = [("setup",), ("plan",), ("render",), ("render", "--for", "ec2"), ("oneliner",)]
GREEDY_TASKS += [("verify",), ("setup", "--json"), ("setup", "--consent", "0" * 32)]


@pytest.mark.parametrize("task", GREEDY_TASKS, ids=" ".join)
def test_no_command_gives_a_cloned_profile_secrets_or_keys_without_consent(
    task: tuple[str, ...], victim: User, port: Port, faults: Faults
) -> None:
    (victim.place / "boxstrap.yaml").write_text(
        "version: 1\nsecrets: [AWS_SECRET_ACCESS_KEY]\nssh: {authorized_keys: [~/evil.pub]}\n"
    )
    host = (
        ("--host", f"root@127.0.0.1:{port.port}") if task[0] in ("setup", "plan", "verify") else ()
    )
    with faults.attempt("a cloned profile takes what is not its own", at=" ".join(task)):
        done = victim.run(*task, *host, AWS_SECRET_ACCESS_KEY="canary-5e7d").must(2)
        assert "SHA256:" in done.text
        assert "--consent " in done.text
        assert (f"--consent {'0' * 32} is for another list" in done.text) is ("--consent" in task)
        # `verify` and `render` take no secret, so they ask for none.
        takes_none = task in (("verify",), ("render",))
        assert ("AWS_SECRET_ACCESS_KEY" in done.text) is not takes_none
        assert "canary" not in done.text
        assert port.knocks == 0


def test_setup_on_a_terminal_asks_for_consent_until_yes_or_no_and_goes_on_only_after_yes(
    victim: User, tmp_path: Path, faults: Faults
) -> None:
    (victim.place / "boxstrap.yaml").write_text("version: 1\nextends: local\nsecrets: [A_TOKEN]\n")
    environment = [f"{name}={value}" for name, value in victim.env.items()]
    shell = ["env", "-i", "TERM=xterm", "A_TOKEN=canary-1", *environment, "sh"]
    command = f"cd {victim.place}; boxstrap setup --host local --committed-only; echo it ended: $?"
    with terminal(tmp_path, shell) as shown:
        for answer in ("no", "N"):
            with faults.attempt(
                "a cloned profile takes what is not its own", at=f"says {answer!r}"
            ):
                shown.type_lines(f"clear; {command}")
                asked = shown.wait_for("Do you agree? (yes/no)", timeout=120)
                assert "  secret      A_TOKEN" in asked
                shown.type_lines("YES!")
                shown.wait_for("Please type yes or no", timeout=120)
                shown.type_lines(answer)
                shown.wait_for("it ended: 2", timeout=120)
                shown.type_lines("tmux -S x clear-history; reset")
                assert not (victim.state / "consent").exists()
        shown.type_lines(f"clear; {command}")
        shown.until(lambda text: text.rstrip().endswith("(yes/no)"), timeout=120)
        shown.type_lines("y")
        shown.wait_for("it ended: 0", timeout=120)
        assert "canary" not in shown.screen()
    assert len(list((victim.state / "consent").iterdir())) == 1


def test_the_process_watch_of_the_hostile_tests_fails_a_test_that_opens_a_connection(
    place: Path, watch: ProcessWatch
) -> None:
    from bootstrap.errors import UnreachableError

    with pytest.raises(UnreachableError):
        get_context(
            SetupRequest(host=f"root@{ADDRESS}", committed_only=True), make_screen(json=True)
        )
    with pytest.raises(AssertionError):
        watch.nothing_happened()


class Port:
    """A port of this machine that counts connections."""

    def __init__(self) -> None:
        self.knocks = 0
        self._listener = Listener(self._count)
        self.port = self._listener.port
        self.close = self._listener.close

    def _count(self, line: socket.socket) -> None:
        self.knocks += 1
        line.close()


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.close()


# Arguments of the real program -> words of its error; {port} is one that listens.
TYPED = {
    ("setup", f"--host=-oProxyCommand=touch {CANARY}"): "--host",
    ("setup", "--host", "ssh", "-p", "{port}", f"root@127.0.0.1;touch {CANARY}"): "--host",
    ("setup", "--host", "root@127.0.0.1:{port}", "--set", f"git.url=ext::touch {CANARY}"): "--set",
    ("setup", "--host", "root@127.0.0.1:{port}", "--name", "../../x"): "--name",
    ("setup", "--host", "root@127.0.0.1:{port}", "--wait", f"$(touch {CANARY})"): "--wait",
    ("boxes", "--forget", "../../../etc"): "no box",
}


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: " ".join(typed)[:60])
def test_the_program_refuses_hostile_words_without_using_ssh_or_writing_a_file(
    typed: tuple[str, ...], user: User, port: Port, faults: Faults
) -> None:
    user.repository()
    shim = user.home / "bin"
    shim.mkdir()
    real = shutil.which("ssh")
    (shim / "ssh").write_text(
        f'#!/bin/sh\n[ "$1" = -G ] || echo "$@" >>"{shim}/log"\nexec {real} "$@"\n'
    )
    (shim / "ssh").chmod(0o755)
    words = [word.replace("{port}", str(port.port)) for word in typed]
    env = {**user.env, "PATH": f"{shim}:{user.env['PATH']}"}
    before = {path for path in user.home.rglob("*") if ".git" not in path.parts}
    with faults.attempt("hostile words to the real program", at=" ".join(typed)[:60]):
        seen = measure.run([str(BIN / "boxstrap"), *words], user.place, env)
        seen.must(2, seconds=10, mib=200)
        assert TYPED[typed] in seen.text
        assert port.knocks == 0
        assert not (shim / "log").exists()
        made = {path for path in user.home.rglob("*") if ".git" not in path.parts} - before
        assert not [path for path in made if path.is_file()], made
