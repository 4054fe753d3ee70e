"""The profile's public keys may log in; the git hosts' own keys are known, so ssh asks nothing."""

from __future__ import annotations

import os
from contextlib import suppress

from ..quoted import quoted
from ..run_folder import RunFolder, lines_of
from ..step_report import caution
from .step import BoxStep


class SshStep(BoxStep):
    def inputs(self) -> str:
        keys, hosts = self.values.authorized_keys, self.values.known_hosts
        return quoted("v1", *(keys or [""]), *hosts)

    def check(self) -> bool:
        return not self._can_write or (not any(self._lacking.values()) and self._has_right_modes)

    def apply(self) -> None:
        home = os.path.dirname(self._folder)
        if not self._can_write:
            sentence = f"{home} can't be written: no key was added to those that may log in"
            caution("read-only-home", sentence)
            return
        os.makedirs(self._folder, exist_ok=True)
        for name, lines in self._lacking.items():
            _add_lines(f"{self._folder}/{name}", lines)
        with suppress(OSError):
            os.chmod(home, os.stat(home).st_mode & 0o7755)
        os.chmod(self._folder, 0o700)
        with suppress(FileNotFoundError):
            os.chmod(f"{self._folder}/authorized_keys", 0o600)

    @property
    def _folder(self) -> str:
        return os.path.expanduser("~/.ssh")

    @property
    def _can_write(self) -> bool:
        is_there = os.path.exists(self._folder)
        return os.access(self._folder if is_there else os.path.dirname(self._folder), os.W_OK)

    @property
    def _lacking(self) -> dict[str, list[str]]:
        """The lines that its files don't have."""
        # Of a key itself alone: comments and options differ, and a line may be disabled with `#`.
        may = [line for line in self._lines("authorized_keys") if not line.lstrip().startswith("#")]
        known = {*self._lines("known_hosts")}
        keys, hosts = self.values.authorized_keys, self.values.known_hosts
        return {
            "authorized_keys": [k for k in keys if not any(_itself(k) in line for line in may)],
            "known_hosts": [host for host in hosts if host not in known],
        }

    def _lines(self, name: str) -> list[str]:
        return lines_of(f"{self._folder}/{name}")

    @property
    def _has_right_modes(self) -> bool:
        if not os.path.isdir(self._folder):
            return True
        keys = RunFolder(self._folder).stat("authorized_keys")
        modes = (os.stat(self._folder), 0o700), (keys, 0o600)
        return all(file is None or file.st_mode & 0o7777 == mode for file, mode in modes)


def _itself(key: str) -> str:
    return [*key.split(" "), key][1]


def _add_lines(path: str, lines: list[str]) -> None:
    """Add lines; completes a last one that has no newline: otherwise two keys would become one."""
    if not lines:
        return
    with open(path, "a+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        begin = b"" if file.read() in (b"", b"\n") else b"\n"
        file.write(begin + "".join(f"{line}\n" for line in lines).encode())
