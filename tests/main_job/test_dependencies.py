"""Private dependencies by git URL: their sources are sent, and the box gets no credential."""

import subprocess
from dataclasses import dataclass, field

import pytest

from tests.boxes import Rig, RigBox
from tests.cli import User, UserRepository
from tests.hostile.leaks import Planted, leaks
from tests.main_job.conftest import Rent
from tests.main_job.own_backend import PROJECT, backend
from tests.main_job.rented import Rented
from tests.plain_environment import BIN

BUILD = """\
import subprocess
told = ["git", "describe", "--tags", "--always"]
tag = subprocess.run(told, capture_output=True, text=True).stdout.strip()
return write_wheel(folder, "{name}.py", "STATE = '" + open("state").read().strip() + f" {{tag}}'")
"""
LOCKED = """\
[project]
name = "homework"
version = "0"
requires-python = ">=3.10"
dependencies = ["library", "helper"]
[tool.uv.sources]
library = {{ git = "{library}", tag = "v1.0" }}
helper = {{ git = "{helper}" }}
"""
TRAIN = "import helper, library\nprint('step 1', library.STATE, '/', helper.STATE, flush=True)\n"


@dataclass
class KeyedGitHost:
    """A box that serves git repositories to logins with the user's key."""

    box: RigBox
    user: User
    made: dict[str, UserRepository] = field(default_factory=dict)

    def __post_init__(self) -> None:
        folder = self.user.home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "config").write_text(f"IdentityFile {self.box.identity}\n")
        (folder / "known_hosts").write_text(f"{self.box.address} {self.box.host_key}\n")

    def address(self, name: str) -> str:
        return f"ssh://{self.box.user}@{self.box.address}{self.box.home}/{name}.git"

    def push(self, name: str, state: str, tag: str = "") -> str:
        """Push a state of a package; return its commit."""
        files = {"state": state, "backend.py": backend(name, BUILD.format(name=name))}
        files["pyproject.toml"] = PROJECT.format(name=name)
        if name not in self.made:
            root = self.user.home / "packages" / name
            self.made[name] = UserRepository(root, self.user.env, files)
            user = self.box.user
            self.box.run(f"git init -q --bare -b main ~/{name}.git", user=user)
        else:
            self.made[name].commit(files)
        repository = self.made[name]
        if tag:
            repository.git("tag", tag)
        repository.git("push", "-q", "--tags", self.address(name), "main")
        return repository.head


@pytest.fixture
def host(rent: Rent) -> KeyedGitHost:
    rented = rent("nosudo")
    return KeyedGitHost(rented.box, rented.user)


def agreed(rented: Rented, *words: str) -> str:
    """Consent to the git URLs that the requirements take; return what the setup then printed."""
    refused = rented.run("setup", *words, "--json").must(2).json()["error"]
    assert {each["key"] for each in refused["takes"]} == {"python.private"}
    done = rented.run("setup", *words, "--consent", refused["digest"]).must(0)
    return done.out + done.err


def credentials(host: KeyedGitHost) -> Planted:
    return Planted({"the key": host.box.identity.read_text()})


@pytest.mark.sampled
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_private_git_requirements_are_sent_from_here_so_the_box_gets_no_credential(
    installer: str, rented: Rented, host: KeyedGitHost
) -> None:
    pinned = host.push("library", "first", "v1.0")
    host.push("library", "second")
    host.push("helper", "old")
    listed = (
        f"library @ git+{host.address('library')}@{pinned}\nhelper @ git+{host.address('helper')}\n"
    )
    repository = rented.user.repository(train__py=TRAIN, requirements__txt=listed)
    choice = ("--set", f"python.installer={installer}")

    said = agreed(rented, *choice)
    assert f"{host.address('library')} at {pinned[:12]} is sent" in said
    head = host.made["helper"].head
    assert f"{host.address('helper')}, its default branch at {head[:12]} is sent" in said
    # The package takes its version from a git tag, as many do.
    assert f"step 1 first v1.0 / old {head[:7]}" in said
    assert leaks(rented.box, credentials(host)) == []
    assert "nothing to do" in rented.run("setup", *choice).must(0).out

    if installer == "pip":  # pip keeps a package of the same version, wherever it came from
        return
    # Without python.private the box can't read them, and says what to do.
    repository.commit({"requirements.txt": listed.replace(pinned, "main")})
    failed = rented.run("setup", *choice, "--set", "python.private=[]").must(7)
    assert "needs a credential" in failed.err
    assert "python.private" in failed.err

    # Another commit, by its abbreviated id; what the box already has is not sent again.
    again = host.push("library", "third")
    repository.commit({"requirements.txt": listed.replace(pinned, again[:9])})
    host.push("helper", "new")
    done = rented.run("setup", *choice).must(0)
    assert "step 1 third v1.0-2-g" in done.out
    # The git host is gone, but the pinned commit is already on the box.
    repository.commit({"requirements.txt": listed.replace(pinned, again).splitlines()[0]})
    repository.commit({"train.py": TRAIN.replace("helper", "library")})
    host.box.kill_sshd()
    assert "step 1 third" in rented.run("setup", *choice).must(0).out


def test_private_git_packages_of_a_uv_lock_are_sent_at_their_locked_commit(
    rented: Rented, host: KeyedGitHost, mirror_rig: Rig
) -> None:
    host.push("library", "first", "v1.0")
    host.push("helper", "old")
    addresses = {name: host.address(name) for name in ("library", "helper")}
    repository = rented.user.repository(train__py=TRAIN, pyproject__toml=LOCKED.format(**addresses))
    subprocess.run(
        [str(BIN / "uv"), "lock", "--quiet", "--default-index", mirror_rig.mirror.index_url],
        cwd=repository.root,
        env={**rented.user.env, "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(rented.user.home / "uv")},
        check=True,
        timeout=120,
    )
    repository.commit({}, "Lock")
    # The branch moves on after the lock: the locked commit counts.
    old = host.made["helper"].head
    host.push("helper", "new")
    said = agreed(rented)
    assert f"{addresses['helper']} at {old[:12]} is sent" in said
    assert f"step 1 first v1.0 / old {old[:7]}" in said
    assert leaks(rented.box, credentials(host)) == []
    assert "nothing to do" in rented.run("setup").must(0).out
