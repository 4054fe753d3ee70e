"""What can be known here is said before a box that isn't known yet hears or keeps anything."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.person import Done, Person
from tests.unit.link.conftest import start_server  # noqa: F401 - a fixture
from tests.unit.link.sshd import USER, Sshd, keygen


def empty(person: Person) -> None:
    person.place = person.home / "empty"
    subprocess.run(["git", "init", "-q", str(person.place)], env=person.env, check=True)


def nowhere(person: Person) -> None:
    person.place = person.home


def unsaved(person: Person) -> None:
    person.repository()
    (person.place / "new.py").write_text("x = 1\n")


def whole(person: Person) -> None:
    person.repository()


def no_profile(person: Person) -> None:
    repository = person.repository()
    repository.git("rm", "-q", "boxstrap.yaml")
    repository.git("commit", "-q", "-m", "No profile")
    (person.place / "new.py").write_text("x = 1\n")


REFUSED = {
    "a repository without a commit": (empty, [], "commit"),
    "no repository": (nowhere, [], "repository"),
    "work that stays behind": (unsaved, [], "new.py"),
    "the same, and no profile": (no_profile, [], "new.py"),
    "a secret that isn't set": (whole, ["--set", "secrets=[NO_SUCH]"], "NO_SUCH"),
    "a public key that isn't there": (whole, ["--set", "ssh.authorized_keys=[x.pub]"], "x.pub"),
    "a wrong value": (whole, ["--set", "gpu.count=x"], "gpu.count"),
    "no such profile": (whole, ["--profile", "nobody"], "nobody"),
}


@pytest.mark.parametrize("as_json", [False, True], ids=["plain", "json"])
@pytest.mark.parametrize("case", REFUSED)
def test_nobody_logs_in_and_nothing_is_pinned(
    case: str,
    as_json: bool,
    person: Person,
    start_server: Callable[..., Sshd],  # noqa: F811
) -> None:
    stand, options, said = REFUSED[case]
    stand(person)
    key = keygen(person.home / "key")
    server = start_server("box", key)
    host = ["--host", f"{USER}@127.0.0.1:{server.port}", "--identity", str(key)]
    done: Done = person.run("setup", *host, *options, *(["--json"] if as_json else [])).must(2)
    assert said in done.text
    assert "first contact" not in done.text
    assert "Accepted" not in server.log.read_text()
    assert list(person.state.glob("boxes/*")) == []
