"""uv: found on the box, else fetched from the index that the box uses anyway, else sent by the
machine that started the setup; the last two are checked against a known SHA-256."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

from .. import MAIN
from ..client import Client
from ..retries import Retries, classify
from ..run_folder import end_of
from ..short_program import run, which
from ..step_report import StepError, log, tell
from .uv import call
from .uv_release import OLDEST, VERSION, wheel_here

_UNLISTED = re.compile("has no uv-|error:? 404", re.IGNORECASE)


def find_uv(home: str) -> tuple[str, ...]:
    """Return the one to use, and what makes it trust the system's certificates; () if none is new
    enough."""
    user = os.path.expanduser("~")
    usual = (f"{home}/bin/uv", which("uv"), f"{user}/.local/bin/uv", f"{user}/.cargo/bin/uv")
    for path in filter(None, usual):
        version = _numbers(_said_by(path))
        if version >= _numbers(OLDEST):
            # Newer ones warn of it, in each log.
            return path, "UV_SYSTEM_CERTS" if version >= [0, 11] else "UV_NATIVE_TLS"
    return ()


def _said_by(path: str) -> str:
    with suppress(OSError):
        return run([path, "--version"], os.environ).output.decode("utf-8", "replace")
    return ""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", version)[:3]]


class UvWheel:
    """uv's file for this machine."""

    def __init__(self, home: str, setup: str, step_log: str) -> None:
        """`setup`: the folder of the setup that needs it."""
        self._home, self._setup, self._log = home, setup, step_log
        self._uv = f"{home}/bin/uv"
        self._file, self._sha256 = wheel_here()

    def bring(self, index: str) -> tuple[str, ...]:
        """Return what `find_uv` does then. Raises StepError."""
        self._fetch(index)
        if found := find_uv(self._home):
            return found
        said = run(["sh", "-c", '"$0" --version 2>&1', self._uv], os.environ).output
        first = said.decode("utf-8", "replace").partition("\n")[0]
        raise StepError("uv-missing", f"the uv that was fetched does not run here: {first}")

    def _fetch(self, index: str) -> None:
        if not self._file:
            machine = f"{os.uname().sysname} {os.uname().machine}"
            why = f"no uv is known for {machine}: install it, then set up again"
            raise StepError("uv-missing", why)
        os.makedirs(os.path.dirname(self._uv), exist_ok=True)
        # The index is that of the box's own pip.
        python = which("python3") or sys.executable
        fetch = [python, MAIN, "python.fetch_uv", index, self._file, self._sha256, self._uv]
        if not Retries(self._log).run(lambda: call(fetch, os.environ)):
            return
        is_unlisted = _UNLISTED.search(end_of(self._log))
        if is_unlisted and self._is_sent():
            return
        if "SHA-256" in end_of(self._log):
            said = "the downloaded uv does not have the expected SHA-256; it was not run"
            raise StepError("uv-checksum", said)
        if is_unlisted:
            raise StepError("uv-unlisted", f"the box's package index does not have uv {VERSION}")
        raise StepError(classify(self._log), "uv could not be fetched")

    def _is_sent(self) -> bool:
        """The machine that started this over a login sends the wheel if it can get it; an empty
        file says that it can't."""
        from .fetch_uv import install  # late: most indexes have it

        client, sent = Client(self._setup), f"{self._setup}/uv.whl"
        if not client.may_send("uv"):
            return False
        tell("wait code=uv-unlisted")
        if not client.brings("uv", "uv.whl"):
            return False
        with open(sent, "rb") as file:
            wheel = file.read()
        if wheel:
            os.unlink(sent)
            try:
                install(wheel, self._file, self._sha256, self._uv)
            except SystemExit as error:  # its digest is wrong
                log(str(error))
                return False
        return bool(wheel)
