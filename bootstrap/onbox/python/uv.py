"""uv, as a step runs it: the one that the step `agent` chose, with the box's settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from subprocess import call as call_program

from .. import MAIN
from ..run_folder import lines_of
from ..short_program import run
from ..step_report import StepError
from .uv_progress import follow

_OWN_INDEX = ("DEFAULT_INDEX", "INDEX", "INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS")


class Uv:
    """Its settings are variables; `without`: those that it doesn't get from the box."""

    def __init__(self, home: str, without: Sequence[str] = ()) -> None:
        self._path, certs = [*lines_of(f"{home}/uv"), "", ""][:2]
        if not os.access(self._path, os.X_OK):
            raise StepError("uv-missing", "uv is gone from this box", "set up again")
        self._without = without
        self._usual = {
            **{"UV_SYSTEM_CERTS": "1", certs or "UV_NATIVE_TLS": "1", "UV_NO_PROGRESS": "1"},
            **{"UV_CACHE_DIR": f"{home}/cache/uv", "UV_PYTHON_INSTALL_DIR": f"{home}/python"},
            **{"UV_HTTP_TIMEOUT": "20", "UV_NO_MODIFY_PATH": "1"},
        }
        self.settings: dict[str, str] = {}

    @property
    def _box(self) -> dict[str, str]:
        return {name: text for name, text in os.environ.items() if name not in self._without}

    def read_indexes(self) -> None:
        """Read the indexes that the box's pip is set to; uv does not read pip's settings itself.
        What the box set for uv itself wins."""
        with suppress(OSError):  # a box without that Python
            said = os.fsdecode(run(["python3", MAIN, "pip_indexes"], self._box).output)
            rows = (line.partition("\t") for line in said.splitlines())
            self.settings = {name: value for name, _, value in rows if not self._box.get(name)}

    def put_first(self, indexes: Sequence[str]) -> None:
        """Let these indexes come before those of the box."""
        others = self.settings.get("UV_INDEX", self._box.get("UV_INDEX", ""))
        self.settings["UV_INDEX"] = f"{' '.join(indexes)} {others}"

    @property
    def has_own_index(self) -> bool:
        return bool(self.settings) or any(self._box.get(f"UV_{name}") for name in _OWN_INDEX)

    def _variables(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {**self._box, **self._usual, **self.settings, **(more or {})}

    def find_python(self, words: Sequence[str], more: Mapping[str, str] | None) -> str:
        """Return its path, as `uv python find` does; "" if it finds none."""
        done = run([self._path, "python", "find", *words], self._variables(more))
        return "" if done.code else os.fsdecode(done.output).strip()

    def would(self, words: Sequence[str], more: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Return the exit code, and what it says that it would do, without doing it."""
        done = run([self._path, *words, "--dry-run"], self._variables(more))
        return done.code, (done.output + done.errors).decode("utf-8", "replace")

    def freeze(self, python: str) -> str:
        """Return what is installed beside this Python, a requirement a line. Raises StepError."""
        words = ["pip", "list", "--format", "freeze", "--python", python]
        done = run([self._path, *words], self._variables(None))
        if done.code:
            raise StepError("install", done.errors.decode("utf-8", "replace"))
        return os.fsdecode(done.output)

    def run(
        self,
        words: Sequence[str],
        more: Mapping[str, str] | None = None,
        folder: str = ".",
        keep: Sequence[int] = (),
    ) -> int:
        return call([self._path, *words], self._variables(more), folder, keep)

    def run_with_progress(self, words: Sequence[str], more: Mapping[str, str] | None) -> int:
        """Turn what it prints into progress and warnings too."""
        command, variables = [self._path, *words], self._variables(more)
        with Popen(command, env=variables, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT) as uv:
            assert uv.stdout  # noqa: S101 - it is a pipe
            follow(uv.stdout.fileno())
        return uv.returncode


def call(
    words: Sequence[str], variables: Mapping[str, str], folder: str = ".", keep: Sequence[int] = ()
) -> int:
    """Run a program, which prints into the log; it gets no open files but these."""
    return call_program(words, env=variables, cwd=folder, stdin=DEVNULL, stdout=2, pass_fds=keep)
