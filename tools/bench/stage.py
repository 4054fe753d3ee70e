"""What all competitors share: boxes, the repository, the git server, keys, tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.boxes import Rig, RigBox
from tests.cli import close_shared
from tests.plain_environment import plain_environment
from tools.bench.clock import BenchError, TimedCall
from tools.bench.delay import DelayProxy

HERE = Path(__file__).parent
PEERS = HERE / "peers"
_FOR_PEERS = ("ansible-core", "pyinfra>=3,<4")
_FAR_S = 0.1


@dataclass(frozen=True)
class StagePlace:
    """A box as a client reaches it: directly, or through the proxy that makes it far away."""

    box: RigBox
    address: str
    port: int
    ssh_config: Path
    """Has the box as `box`, with its host key and the rig's key."""
    is_far: bool = False

    @property
    def host(self) -> str:
        """As a user types it."""
        return f"{self.box.user}@{self.address}:{self.port}"


class Stage:
    """One rig with everything that the benchmark needs; all of it is removed on exit.

    `cores`: how many of them a box may use; 0 for all.
    """

    def __init__(self, cores: int = 0) -> None:
        self.cores = cores
        self.folder = Path(tempfile.mkdtemp(prefix="boxstrap-bench-"))
        self._rig: Rig | None = None
        self._agent: subprocess.Popen[bytes] | None = None
        self._far: dict[str, StagePlace] = {}
        self._proxies: list[DelayProxy] = []

    def __enter__(self) -> Stage:
        try:
            self._rig = Rig(mirror=True)
            self.git_box = self._rig.start("lambda")
            self.homework = self._repository(
                "homework", ("train.py", "requirements.txt", "boxstrap.yaml")
            )
            self.git_url = f"{self.git_box.user}@{self.git_box.address}:homework.git"
            self._publish()
            self._start_agent()
            self.peers_bin = _peers_venv()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rig(self) -> Rig:
        """The rig; its boxes use its package mirror."""
        assert self._rig is not None
        return self._rig

    def box(self, kind: str, on: Path | None = None) -> StagePlace:
        """Start a fresh box. Its uv and pip use the mirror, whichever program calls them.

        `on`: a layer from `RigBox.keep` of another box, to start from.
        """
        box = self.rig.start(kind, files={"/etc/uv/uv.toml": self.rig.mirror.uv_toml}, on=on)
        if self.cores:
            every = "for p in /proc/[0-9]*; do taskset -acp $1 ${p#/proc/} || :; done"
            box.run(["sh", "-c", every, "sh", f"0-{self.cores - 1}"])
        return self._place(box, box.address, box.port)

    def far(self, place: StagePlace) -> StagePlace:
        """Return the same box, 100 ms away."""
        if place.box.name not in self._far:
            proxy = DelayProxy(place.box.address, place.box.port, _FAR_S)
            self._proxies.append(proxy)
            far = self._place(place.box, proxy.host, proxy.port, is_far=True)
            self._far[place.box.name] = far
        return self._far[place.box.name]

    def file(self, name: str) -> Path:
        """Return a path for a file of this run."""
        return self.folder / name

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a user with an empty home."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        env = {**plain_environment(home), "LC_ALL": "C.UTF-8", **more}
        del env["PYTHONPATH"]  # the peers have their own Python
        del env["BOXSTRAP_KEEP_OPEN"]  # as a user has it
        return env

    @property
    def agent_socket(self) -> str:
        """The socket of an agent that holds the rig's key."""
        return str(self.folder / "agent")

    def boxstrap(self, *words: str, state: str, repository: Path | None = None) -> TimedCall:
        """Return a call of boxstrap that keeps its state in the folder `state`."""
        program = Path(sys.executable).parent / "boxstrap"
        if not program.exists():
            raise BenchError(f"{program} is not there: make install")
        env = self.environment(XDG_STATE_HOME=str(self.folder / "state" / state))
        return TimedCall([str(program), *words], env, repository or self.homework)

    def repository_for_log(self, size: int) -> Path:
        """Make a repository whose training only writes a log of this size."""
        profile = (
            "version: 1\nextends: vast\ngpu:\n  require: false\n"
            f"train:\n  command: python write_log.py {size}\n  log_max_mib: {size // 2**19}\n"
        )
        return self._repository("longlog", ("write_log.py",), {"boxstrap.yaml": profile})

    def repository(self, name: str, texts: dict[str, str]) -> Path:
        """Make a repository of these files."""
        return self._repository(name, (), texts)

    def commit_all(self, folder: Path) -> None:
        """Commit everything in it."""
        self._git(folder, "add", "-A")
        self._git(folder, "commit", "-q", "-m", "Go on")

    def close(self) -> None:
        """Remove everything."""
        if self._agent is not None:
            self._agent.terminate()
            self._agent.wait()
        for state in (self.folder / "state").glob("*"):
            close_shared(self.environment(XDG_STATE_HOME=str(state)))
        for proxy in self._proxies:
            proxy.close()
        if self._rig is not None:
            self._rig.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _place(self, box: RigBox, address: str, port: int, *, is_far: bool = False) -> StagePlace:
        name = f"{box.name}-{'far' if is_far else 'near'}"
        known = self.file(f"{name}.known_hosts")
        known.write_text(f"{name} {box.host_key}\n")
        config = self.file(f"{name}.ssh_config")
        config.write_text(
            f"Host box\n  HostName {address}\n  Port {port}\n  User {box.user}\n"
            f"  IdentityFile {box.identity}\n  IdentitiesOnly yes\n  HostKeyAlias {name}\n"
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n"
        )
        return StagePlace(box, address, port, config, is_far)

    def _repository(
        self, name: str, files: Sequence[str], texts: dict[str, str] | None = None
    ) -> Path:
        folder = self.folder / name
        folder.mkdir()
        for file in files:
            shutil.copy(HERE / "homework" / file, folder / file)
        for file, text in (texts or {}).items():
            (folder / file).write_text(text)
        self._begin(folder)
        return folder

    def commit(self, name: str, write: Callable[[Path], None]) -> Path:
        """Make a repository of what `write` puts into its folder."""
        folder = self.folder / name
        folder.mkdir()
        write(folder)
        self._begin(folder)
        return folder

    def _begin(self, folder: Path) -> None:
        for words in (
            ("init", "-q", "-b", "main"),
            ("config", "user.name", "Me"),
            ("config", "user.email", "me@example.org"),
            ("add", "."),
            ("commit", "-q", "-m", "Homework"),
        ):
            self._git(folder, *words)

    def _git(self, folder: Path, *words: str) -> None:
        subprocess.run(["git", "-C", str(folder), *words], env=self.environment(), check=True)

    def _publish(self) -> None:
        """Push the repository to the git server, a box that the other boxes can reach."""
        self.git_box.run("git init -q --bare -b main ~/homework.git", user=self.git_box.user)
        place = self._place(self.git_box, self.git_box.address, self.git_box.port)
        ssh = f"core.sshCommand=ssh -F {place.ssh_config}"
        self._git(self.homework, "-c", ssh, "push", "-q", "box:homework.git", "main")
        self._git(self.homework, "remote", "add", "origin", self.git_url)

    def _start_agent(self) -> None:
        self._agent = subprocess.Popen(
            ["ssh-agent", "-D", "-a", self.agent_socket], stdout=subprocess.DEVNULL
        )
        env = self.environment(SSH_AUTH_SOCK=self.agent_socket)
        for _ in range(100):
            if Path(self.agent_socket).exists():
                break
            self._agent.poll()
            subprocess.run(["sleep", "0.02"], check=True)
        subprocess.run(["ssh-add", "-q", str(self.rig.identity)], env=env, check=True)


def _peers_venv() -> Path:
    """Return the programs of a cached environment with Ansible and pyinfra."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    venv = cache / "boxstrap-bench" / "venv"
    if not (venv / "bin" / "pyinfra").exists():
        # Not with --clear: another bench may be using it.
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "-qq"]
        subprocess.run([*pip, "install", *_FOR_PEERS], check=True)
    return venv / "bin"
