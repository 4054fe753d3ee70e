"""A server of a repository for people, Jupyter or TensorBoard: found, or made and started, or ended
(`want`). Its program has an environment of its own: the project's stays as it is.

Comes with a query, with BOX_HOME and REQUEST, and prints `doing WHAT`, `found yes`, `failed CODE`,
`log LINE`, `stopped KIND`, `server JSON` (as the server wrote it), each with a tab.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from glob import escape, glob
from subprocess import DEVNULL, Popen

from .env_files import env_file
from .processes import forget_locale, identity, is_alive
from .python.uv import Uv
from .retries import Retries
from .run_folder import RunFolder, end_of, lines_of, remove_file, write_whole
from .run_processes import reap
from .short_program import run
from .step_report import StepError, answer, question
from .work.repair import remove_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LISTENS_S = 90
_SEARCH_S = 20
_DEEPEST = 8
_GRACE_S = 15
_SHOWN = 1 << 14
_BEGIN = """\
umask 022
if [ -n "$2" ]; then
  [ ! -r "$1" ] || . "$1"
  export VIRTUAL_ENV="$2" PATH="$2/bin:$PATH"
fi
unset "${!JUPYTER@}" "${!TENSORBOARD@}"
exec env "${@:3}"
"""
"""Only kernels, which run the user's own code, get the secrets; a server that just shows files gets
none."""


class PeoplesServer:
    def __init__(self, home: str, asked: Mapping[str, Any]) -> None:
        self._home, self._asked, self._logdir = home, asked, asked.get("logdir", "")
        self._kind, self._place = asked["kind"], asked["place"]
        self._tool = f"{home}/tools/{self._kind}"
        self._log = f"{self._place}/install.log"
        self._retries = Retries(self._log, self._tell_wait)

    def serve(self) -> None:
        if self._asked["want"] != "start" and not os.path.isfile(f"{self._place}/pid"):
            return
        for folder in (self._place, os.path.dirname(self._tool)):
            os.makedirs(folder, exist_ok=True)
        with open(f"{self._home}/tools/lock", "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._asked["want"] == "start":
                self._take()
            elif self._is_alive:
                self._stop()
                answer("stopped", self._kind)

    def _take(self) -> None:
        log = ""
        try:
            if self._is_wanted():
                answer("found", "yes")
            else:
                self._make()
                answer("doing", f"starting {self._kind}")
                self._start()
            log = f"{self._place}/log"
            self._await()
        except StepError as error:
            answer("failed", error.code)
            log = self._log if error.code == "install" else log
            for line in end_of(log, _SHOWN).splitlines()[-15:]:
                answer("log", line[:500])

    @property
    def _is_alive(self) -> bool:
        return is_alive(RunFolder(self._place).first("pid"))

    def _is_wanted(self) -> bool:
        """TensorBoard keeps nothing outside its files: for another folder it is started again."""
        words = lines_of(f"{self._place}/words")
        if self._is_alive and self._logdir and self._logdir not in words:
            self._stop()
        return self._is_alive

    def _stop(self) -> None:
        reap(None, [RunFolder(self._place).first("pid")], time.time() + _GRACE_S)
        for name in ("pid", "secret"):
            remove_file(f"{self._place}/{name}")

    def _make(self) -> None:
        # A profile's settings of uv and pip are only for its own environment.
        for line in lines_of(f"{self._home}/env"):
            if found := re.match("export ((?:UV|PIP)_[A-Z0-9_]+)=", line):
                os.environ.pop(found[1], None)
        uv = Uv(self._home)
        uv.read_indexes()
        if self._kind == "jupyter" and not os.access(f"{self._asked['venv']}/bin/python", os.X_OK):
            raise StepError("no-environment")
        if self._kind == "tensorboard" and not self._logdir:
            self._logdir = events_below(self._asked["folder"])
        with open(self._log, "wb") as log:
            os.dup2(log.fileno(), 2)
        self._make_tool(uv)
        if self._kind == "jupyter":
            self._make_kernel(uv)

    def _make_tool(self, uv: Uv) -> None:
        tool, package = self._tool, self._asked["package"]
        python, mark = f"{tool}/bin/python", f"{tool}/complete"
        if os.access(python, os.X_OK) and lines_of(mark) == [package]:
            return
        answer("doing", f"installing {self._kind}")
        remove_folder(tool)
        made = ("venv", "--quiet", "--python-preference", "system", "--no-project", tool)
        code = self._retries.run(lambda: uv.run(made))
        if code or self._install(uv, python, package):
            raise StepError("install")
        write_whole(mark, package, 0o600)

    def _make_kernel(self, uv: Uv) -> None:
        """What it needs is next to the project's environment, in the project's own versions where
        it has them."""
        place, asked, venv = self._place, self._asked, self._asked["venv"]
        python, known = f"{venv}/bin/python", f"{place}/kernel.for"
        os.makedirs(f"{place}/share/kernels/python3", exist_ok=True)
        write_whole(
            f"{place}/share/kernels/python3/kernel.json", json.dumps(asked["kernel"]), 0o600
        )
        version = os.fsdecode(run([python, "-VV"], os.environ).output).replace("\n", " ")
        project = f"# {version}\n{uv.freeze(python)}"
        if os.path.isdir(f"{place}/kernel") and lines_of(known) == project.splitlines():
            return
        answer("doing", f"installing the kernel for {os.path.basename(venv)}")
        remove_folder(f"{place}/kernel")
        write_whole(f"{place}/project", project)
        words = (python, "--target", f"{place}/kernel", "ipykernel")
        if self._install(uv, *words, "--constraint", f"{place}/project") and (
            self._retries.network_error() or self._install(uv, *words)
        ):
            raise StepError("install")
        os.replace(f"{place}/project", known)

    def _install(self, uv: Uv, python: str, *words: str) -> int:
        install = ("pip", "install", "--quiet", "--python", python, *words)
        return self._retries.run(lambda: uv.run(install))

    def _start(self) -> None:
        place, asked = self._place, self._asked
        remove_folder(f"{place}/runtime")
        os.mkdir(f"{place}/runtime")
        if not RunFolder(place).first("secret"):
            write_whole(f"{place}/secret", os.urandom(24).hex(), 0o600)
        words = [*asked["words"], *(["--logdir", self._logdir] if self._logdir else [])]
        write_whole(f"{place}/words", "".join(f"{word}\n" for word in words))
        venv = asked["venv"] if self._kind == "jupyter" else ""
        env = env_file(self._home, folder=asked["folder"])
        begin = ("bash", "-c", _BEGIN, "bash", env, venv, *asked["settings"])
        with open(f"{place}/log", "wb") as log:
            server = Popen(
                (*begin, f"{self._tool}/bin/python", "-I", *words),
                cwd=asked["folder"],
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        write_whole(f"{place}/pid", f"{identity(server.pid)}\n")

    def _await(self) -> None:
        """Wait for what the server writes once it listens: its port, and how to log in."""
        until = time.monotonic() + _LISTENS_S
        pattern = f"{escape(self._place)}/{self._asked['says']}"
        while True:
            for file in glob(pattern):
                said = "".join(lines_of(file)).rstrip()
                if said.endswith("}"):
                    return answer("server", said)
            if not self._is_alive or time.monotonic() >= until:
                raise StepError("start")
            time.sleep(0.1)

    @staticmethod
    def _tell_wait(event: str) -> None:
        answer("doing", f"{event.partition('code=')[2]}, trying again")


def events_below(folder: str) -> str:
    """Return the folder above all that have TensorBoard's event files: a run is named by its path
    below it. Raises StepError."""
    found, until = [], time.monotonic() + _SEARCH_S
    for at, folders, names in os.walk(folder):
        is_deep = at.count("/") - folder.count("/") >= _DEEPEST - 1
        folders[:] = [] if is_deep else [name for name in folders if not name.startswith(".")]
        if any(".tfevents." in name and not name.startswith(".") for name in names):
            found.append(at if at == folder else os.path.dirname(at))
        if time.monotonic() > until:
            break
    if not found:
        raise StepError("no-events")
    return os.path.commonpath(found)


def main() -> None:
    os.umask(0o077)
    forget_locale()
    PeoplesServer(*question()).serve()
