"""A user with a home of their own, a repository, and the programs `boxstrap` and `inv`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.documents import check_documents
from tests.forked import Forked, can_fork
from tests.plain_environment import BIN, HERE, plain_environment, shared

PATIENCE_S = 180
ME = {"name": "Me Myself", "email": "me@example.org"}

TRAIN = """\
import os, time
print("step 1 loss 0.5", os.environ.get("GREETING", "-"), flush=True)
time.sleep(float(os.environ.get("LINGER", "0")))
print("step 2 loss 0.4", flush=True)
"""
NO_GPU = "version: 1\ngpu: {require: false}\n"
PROFILE = NO_GPU + "train: {command: python train.py}\n"
LONG = PROFILE + 'env: {LINGER: "600"}\n'
RESULTS = NO_GPU + "train: {command: python train.py, results: [out/]}\n"
OWN_MACHINE = "version: 1\nextends: local\nbox: {workdir: ~/work}\n"
"""How profiles of tests begin: for a box without a GPU, and for this machine as the box."""


_MAKING = threading.Lock()


def _new_repository() -> Path:
    """Return the git folder of a new repository with an author, to be copied.

    Otherwise git would start three programs for each of a thousand repositories. Threads of a test
    ask at the same time, and a cache without the lock would let each of them make it.
    """
    with _MAKING:
        return _made_repository()


@functools.cache
def _made_repository() -> Path:
    folder = shared() / "new"
    folder.mkdir()
    made = plain_environment(folder / "home")
    for words in (
        ("init", "-q", "-b", "main", "."),
        ("config", "user.name", ME["name"]),
        ("config", "user.email", ME["email"]),
    ):
        subprocess.run(["git", *words], cwd=folder, env=made, check=True)
    return folder / ".git"


@dataclass(frozen=True)
class Completed:
    """A program that ended."""

    rc: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        """All its output."""
        return self.out + self.err

    @property
    def imported(self) -> set[str]:
        """The modules that it imported, if it ran with PYTHONPROFILEIMPORTTIME."""
        found = {line.rpartition("|")[2].strip() for line in self.err.splitlines()}
        assert "bootstrap" in found
        return found

    def json(self) -> dict[str, Any]:
        """Return the one document on standard output; fails if there is more, or none."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def must(self, rc: int) -> Completed:
        """Assert that it ended with `rc` and without a traceback; return itself."""
        assert self.rc == rc, f"exit {self.rc}, not {rc}\n{self.out}\n{self.err}"
        assert "Traceback (most recent call last):\n" not in self.text, self.text
        return self


_KILLED_S = 10.0
"""Seconds for a killed program's output to end."""


class Running:
    """A program that is still running."""

    def __init__(self, argv: list[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        self._err = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 - it goes with us
        self._argv = argv
        self.process = self._start(argv, cwd, env)

    def _start(
        self, argv: list[str], cwd: Path, env: Mapping[str, str]
    ) -> Forked | subprocess.Popen[str]:
        if can_fork(argv, env):
            return Forked(argv, cwd, env, self._err.fileno())
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._err,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def line(self) -> str:
        """Read the next line of standard output and nothing after it: `end` returns the rest."""
        assert self.process.stdout is not None
        got = b""
        while not got.endswith(b"\n") and (more := os.read(self.process.stdout.fileno(), 1)):
            got += more
        return got.decode(errors="replace")

    def interrupt(self) -> None:
        """Interrupt it, as Ctrl-C does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill it, as a laptop with an empty battery would; it may have ended already."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self, timeout: float = PATIENCE_S) -> Completed:
        """Wait for its end."""
        try:
            out, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            out = self._rest()
            raise AssertionError(f"not over after {timeout} s:\n{out}\n{self.said()}") from None
        seconds = time.monotonic() - self._began
        with self._err:
            rc = self.process.wait()
            if rc >= 0:
                check_documents(self._argv, out)
            return Completed(rc, out, self.said(), seconds)

    def close(self) -> None:
        """Kill it if it still runs, so that a failed test leaves nothing running."""
        if self.process.poll() is None:
            self.kill()
        self._rest()
        self._err.close()

    def _rest(self) -> str:
        """Return the rest of its output once it is killed. What it started, and still lives, may
        hold its output open: nobody waits for that, as no time limit would end it."""
        try:
            return self.process.communicate(timeout=_KILLED_S)[0]
        except subprocess.TimeoutExpired:
            if self.process.stdout:
                self.process.stdout.close()
            return "(what it started still holds its output open)"

    def said(self) -> str:
        """Return its standard error so far."""
        size = os.fstat(self._err.fileno()).st_size
        return os.pread(self._err.fileno(), size, 0).decode(errors="replace")

    def await_said(self, text: str, timeout: float = PATIENCE_S) -> None:
        """Wait until this is on standard error."""
        limit = time.monotonic() + timeout
        while text not in self.said():
            if self.process.poll() is not None or time.monotonic() > limit:
                raise AssertionError(f"it never said {text!r}:\n{self.said()}")
            time.sleep(0.05)


class UserRepository:
    """A real repository with a training in it."""

    def __init__(self, root: Path, env: Mapping[str, str], files: Mapping[str, str]) -> None:
        self.root = root
        self._env = dict(env)
        root.mkdir(parents=True)
        shutil.copytree(_new_repository(), root / ".git")
        self.commit(files, "Begin")

    def git(self, *arguments: str) -> str:
        """Run git there."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=self._env,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def write(self, files: Mapping[str, str]) -> None:
        """Write files, without a commit."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, files: Mapping[str, str], subject: str = "Go on") -> str:
        """Write and commit; return the commit's id."""
        self.write(files)
        self.git("add", "--all")
        self.git("-c", "maintenance.auto=false", "commit", "-q", "-m", subject)
        return self.head

    @property
    def head(self) -> str:
        """The current commit, read from .git if possible, to save starting git."""
        with contextlib.suppress(OSError):
            stands_on = (self.root / ".git/HEAD").read_text().strip()
            if (name := stands_on.removeprefix("ref: ")) != stands_on:
                return (self.root / ".git" / name).read_text().strip()
        return self.git("rev-parse", "HEAD")


_CLOSE = """\
from bootstrap.link import record, shared
for box in record.all_boxes():
    shared.close(box)
"""


def close_shared(env: Mapping[str, str]) -> None:
    """End the connections that stayed open after commands in this environment."""
    subprocess.run([sys.executable, "-c", _CLOSE], env=dict(env), cwd=HERE, check=True)


class User:
    """A user who types commands in a folder."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.env = plain_environment(home)
        self.place = home

    def repository(self, name: str = "homework", **files: str) -> UserRepository:
        """Make a repository with a training and enter it; `name__py` is the file name.py."""
        named = {key.replace("__", "."): text for key, text in files.items()}
        found = {"train.py": TRAIN, "boxstrap.yaml": PROFILE, **named}
        made = UserRepository(self.home / name, self.env, found)
        self.place = made.root
        return made

    def begin(self, *arguments: str, program: str = "boxstrap", **env: str) -> Running:
        """Start a command without waiting for it."""
        return Running([str(BIN / program), *arguments], self.place, {**self.env, **env})

    def run(
        self, *arguments: str, program: str = "boxstrap", timeout: float = PATIENCE_S, **env: str
    ) -> Completed:
        """Run a command and wait for its end."""
        return self.begin(*arguments, program=program, **env).end(timeout)

    def agree(self) -> None:
        """Consent to what the current repository's profile takes; fails if it takes nothing."""
        error = self.run("oneliner", "--json").must(2).json()["error"]
        self.run("oneliner", "--json", "--consent", error["digest"])

    @property
    def state(self) -> Path:
        """The user's state folder of boxstrap."""
        return Path(self.env["XDG_STATE_HOME"]) / "boxstrap"
