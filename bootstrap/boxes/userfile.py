"""A file that belongs to the user, such as the ssh config: read it, and replace it atomically. One
that can't be changed safely is left alone, with a reason."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bootstrap import paths
from bootstrap.value import dataclass

LARGEST = 16 * 1024 * 1024  # bytes; ssh itself would be slow to read a larger config


class LeftAloneError(Exception):
    """The file was not changed; the message says why."""


@dataclass(frozen=True)
class UserFile:
    """A file that belongs to the user; it may be a symbolic link."""

    path: Path

    def read(self) -> bytes | None:
        """Read its bytes; None if it doesn't exist. Raises LeftAloneError."""
        with _left_alone(self.path):
            try:
                found = self.path.stat()
            except FileNotFoundError:
                if self.path.is_symlink():
                    raise LeftAloneError(f"{self.path} is a broken symbolic link") from None
                return None
            if not stat.S_ISREG(found.st_mode):
                raise LeftAloneError(f"{self.path} is no file")
            if found.st_size > LARGEST:
                raise LeftAloneError(f"{self.path} is larger than {LARGEST // 1024 // 1024} MiB")
            return self.path.read_bytes()

    def remove(self) -> None:
        """Remove the file. Raises LeftAloneError."""
        with _left_alone(self.path):
            self.path.unlink()

    def prepare(self, data: bytes) -> Draft:
        """Write `data` next to the file, with its mode and owner. Raises LeftAloneError."""
        with _left_alone(self.path):
            return self._prepare(data)

    def _prepare(self, data: bytes) -> Draft:
        real = self.path.resolve()
        before = real.stat() if real.exists() else None
        if before is not None:
            if not before.st_mode & stat.S_IWUSR or not os.access(real, os.W_OK):
                raise LeftAloneError(f"{self.path} is read-only")
            if before.st_nlink > 1:
                raise LeftAloneError(f"{self.path} has {before.st_nlink} hard links")
        paths.make_private(real.parent)
        handle, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
        draft = Draft(Path(name), real, before)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if before is not None:
                    if (before.st_uid, before.st_gid) != (os.getuid(), os.getgid()):
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            draft.drop()
            raise
        return draft


@dataclass(frozen=True)
class Draft:
    """A new version of the file, not yet in place."""

    path: Path
    target: Path
    before: os.stat_result | None

    def put(self) -> None:
        """Replace the file. Raises LeftAloneError if it was changed in the meantime."""
        try:
            with _left_alone(self.target):
                now = self.target.stat() if self.target.exists() else None
                if _version(now) != _version(self.before):
                    raise LeftAloneError(f"{self.target} was changed by somebody else just now")
                self.path.replace(self.target)
        finally:
            self.drop()

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)


def _version(found: os.stat_result | None) -> tuple[int, ...]:
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found else ()


@contextlib.contextmanager
def _left_alone(path: Path) -> Iterator[None]:
    """Raise LeftAloneError for what can't be done to the file."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise LeftAloneError(f"{path} can't be changed: {why}") from None


VARIABLE = "BOXSTRAP_SSH_CONFIG"  # environment variable: `off`, or another file than ~/.ssh/config


@dataclass(frozen=True)
class ConfigPlace:
    """The user's ssh config, and our folder."""

    config: Path
    is_usual: bool = True  # whether ssh reads it by default

    @property
    def folder(self) -> Path:
        """The folder of our entries file and of the sockets of shared connections."""
        return paths.state_dir() / "ssh"

    @property
    def entries(self) -> Path:
        return self.folder / "config"

    @property
    def off(self) -> Path:
        """A marker file that exists from `ssh-config --remove` until the next `ssh-config`."""
        return self.folder / "off"

    @property
    def include(self) -> str:
        """Our file as an `Include` names it; relative to `~` if it is in the home folder. OpenSSH
        10 expands `%` and `${…}` there, earlier ones don't: a wildcard is the same to both."""
        home, name = account_home(), str(self.entries)
        if self.entries.is_relative_to(home):
            name = f"~/{self.entries.relative_to(home).as_posix()}"
        return '"' + name.replace("%", "?").replace("${", "?{") + '"'

    @property
    def ssh(self) -> list[str]:
        return ["ssh"] if self.is_usual else ["ssh", "-F", str(self.config)]


def account_home() -> Path:
    """Return the home folder that ssh uses: the account's, not $HOME."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def find_place() -> ConfigPlace | None:
    """Return where the ssh config is; None if $HOME is not the account's (a test, a build, `sudo
    -E`): ssh reads none there, and the account's must not be changed."""
    said = os.environ.get(VARIABLE, "")
    if said.lower() == "off":
        return None
    if said:
        return ConfigPlace(paths.expanded(said).absolute(), is_usual=False)
    home = account_home()
    if Path.home().resolve() != home.resolve():
        return None
    return ConfigPlace(home / ".ssh" / "config")
