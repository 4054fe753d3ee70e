"""Where boxstrap keeps its files on this machine, and where its shipped files are.

Who owns a path: files of another user of this machine are not trusted. State and cache are folders
that nobody else can enter, so what lies in them is ours; the config folder is the user's own, and
each file of it is checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.sizes import LATEST

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

PROFILE = "boxstrap.yaml"  # a repository's own profile, at its root

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Return the shipped folder `name`: `templates` or `profiles`. In a wheel it is inside the
    package, in a checkout and an editable install next to it."""
    inside = _PACKAGE / "shipped" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def own_command(*words: str) -> list[str]:
    """Return the command that runs boxstrap's command `words` in a process of its own.

    It imports what this process can import, whatever its folder or `PYTHONPATH` has.
    """
    start = f"import sys; sys.argv[0] = 'boxstrap'; sys.path[:] = {[*filter(None, sys.path)]!r}; "
    return [
        sys.executable,
        "-I",
        "-c",
        f"{start}from bootstrap.tasks.cli import main; main()",
        *words,
    ]


def ask_program(
    command: Sequence[str], timeout_s: float, cwd: Path | None = None, errors: str = "replace"
) -> subprocess.CompletedProcess[str]:
    """Return how a program of this machine ended, without input. Raises OSError, TimeoutExpired."""
    import subprocess  # late: most commands run none

    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors=errors,
        timeout=timeout_s,
        cwd=cwd,
        check=False,
    )


def trust_absolute_path() -> None:
    """Take out of PATH what depends on the current folder: a repository may have a `git`."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(part for part in parts if Path(part).is_absolute())


def expanded(path: str | os.PathLike[str]) -> Path:
    """Expand the `~` of `path` as a shell does: the name of an unknown user stays as written."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises


def real(path: Path) -> Path:
    """Resolve the links in `path`; links in a circle, which nothing can open, stay."""
    return Path(os.path.realpath(path))


def state_dir() -> Path:
    """Return the folder of boxstrap's state: known boxes, host keys, reports."""
    return _private(_folder("state"))


def sweeps_dir() -> Path:
    return state_dir() / "sweeps"


def cache_dir() -> Path:
    """Return the folder of files that can be made again."""
    return _private(_folder("cache"))


def config_dir() -> Path:
    """Return the folder of the user's own profiles."""
    return _folder("config")


def make_private(folder: Path) -> None:
    """Make the folder, and those above it that are missing, for this user alone. Raises OSError."""
    if not folder.parent.exists():
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def refuse_others_word(file: Path) -> None:
    """Raise UsageError if other users can write this file of the config folder, or replace it."""
    own = config_dir()
    for way in (file, *(each for each in file.parents if each.is_relative_to(own))):
        if theirs := way if _is_others(way) else _others_behind(way, own):
            raise UsageError(
                "other users can write this file, or put another one there. It was not used.",
                where=str(file),
                hint=f"Look at what it says; then keep it to yourself: chmod go-w {own} {theirs}",
            )


def _folder(kind: str) -> Path:
    """As the XDG specification says; without its variable on macOS, as Apple does."""
    named, usual = os.environ.get(f"XDG_{kind.upper()}_HOME", ""), f"~/.{kind}"
    if sys.platform == "darwin":
        usual = f"~/Library/{'Caches' if kind == 'cache' else 'Application Support'}"
    elif kind == "state":
        usual = "~/.local/state"
    return expanded(named if named.startswith("/") else usual) / "boxstrap"


def _private(folder: Path) -> Path:
    """Return the folder, if only this user can enter it. One that others could enter, as a umask
    had it made, is closed, once: what they wrote there is refused. Raises UsageError."""
    try:
        mode = folder.stat().st_mode
    except OSError:  # not made yet, or reported where it is used
        return folder
    links = [folder]
    with contextlib.suppress(OSError):  # as of another user: refused below
        links += (each for each in folder.iterdir() if each.is_symlink())
    theirs = next(filter(None, (_others_behind(each, folder) for each in links)), None)
    if not theirs and not mode & 0o077 and not _is_others(folder):
        return folder
    demo = folder / "demo"  # a box, with locks that uv lets everybody write: no record
    inside = (
        each
        for each in folder.rglob("*")
        if _is_others(each, by_mode=not each.is_dir() and demo not in each.parents)
    )
    theirs = theirs or (folder if _is_others(folder, by_mode=False) else next(inside, None))
    if theirs is None:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
        if not _is_others(folder):
            return folder
    raise UsageError(
        "other users could write this, and boxstrap would take it for its own record.",
        where=str(theirs or folder),
        hint="Look at it, and remove it if it isn't yours. If all of it is: "
        f"sudo chown -R $USER {folder} && chmod -R go-w {folder}",
    )


def _others_behind(path: Path, own: Path) -> Path | None:
    """Return where others can write or replace what a link in the folder `own`, or it, leads to."""
    home, led = real(own.parent) / own.name, real(path)
    above = (up for up in led.parents if not home.is_relative_to(up))
    if led.is_relative_to(home):
        return None
    return led if _is_others(led) else next((up for up in above if _is_others(up, held=True)), None)


def _is_others(path: Path, *, by_mode: bool = True, held: bool = False) -> bool:
    """Whether another user than root and this one made it or, `by_mode`, can write it.

    `held`: or can replace what it holds, which the sticky bit forbids.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:  # another command removed it meanwhile
        return False
    can_write = by_mode and not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & 0o022)
    can_write &= not (held and found.st_mode & stat.S_ISVTX)
    return can_write or found.st_uid not in {0, *_own_ids()}


def write_private(path: Path, content: str | bytes, *, make_folder: bool = True) -> None:
    """Write a file that only this user can read, whole or not at all. Raises OSError."""
    if make_folder:
        make_private(path.parent)
    # Not by `tempfile`: it takes longer to load than a box to answer.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_MOST_NUMBER = 1 << 64  # what no size, inode, price or clock of a record reaches


def read_record(file: Path) -> Any:  # noqa: ANN401 - as JSON has it
    """Read a record of boxstrap's own. Raises OSError, and ValueError if it is damaged: no JSON,
    too deep, or with a number that is none of ours."""
    import json  # not at the top: the shortest commands read none

    try:
        return json.loads(
            file.read_bytes(), parse_int=_int, parse_float=_float, parse_constant=_float
        )
    except RecursionError:
        raise ValueError("it is too deep") from None


def kept_record(file: Path) -> dict[str, Any]:
    """As `read_record`; {} for one that is missing, damaged, or no object."""
    try:
        record = read_record(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def is_sound(value: object, like: object) -> bool:
    """Whether the value of a record may be in a field with this one."""
    if isinstance(like, float):  # a time, or a price
        return isinstance(value, int | float) and type(value) is not bool and abs(value) < LATEST
    return type(value) is type(like)


def _float(text: str) -> float:
    if not abs(found := float(text)) < _MOST_NUMBER:
        raise ValueError(f"{text[:20]} is no number of a record")
    return found


def _int(text: str) -> int:
    _float(text)
    return int(text)


def temporary_dir() -> str:
    """Return the folder for temporary files. Raises BoxstrapError if there is none.

    Python's last resort, the current folder, is refused: in a repository its files would travel.
    """
    import tempfile  # not at the top: most commands need not wait for it

    named = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    usual = [folder for folder in (*named, "/tmp", "/var/tmp", "/usr/tmp") if folder]  # noqa: S108
    try:
        found = tempfile.gettempdir()
    except FileNotFoundError:
        found = ""
    if found in map(os.path.abspath, usual):
        return found
    raise BoxstrapError(
        f"there is no folder for temporary files: {', '.join(usual)} can't be written.",
        hint="Make room there, or name another one: TMPDIR=FOLDER",
    )


def leads_out(path: Path, root: Path | None = None) -> Path | None:
    """Return where links lead from `path`, if it lies in the folder `root` and they lead out of it.

    Without `root`: in a repository; a home that is one is the person's own.
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - a link stays
    roots = [root] if root else [up for up in whole.parents if (up / ".git").exists()]
    led, home = real(whole), real(Path.home())
    outside = [up for up in map(real, roots) if root or up != home]
    return None if all(led.is_relative_to(up) for up in outside) else led


def refuse_to_leave(path: Path, root: Path | None = None) -> None:
    """Raise OSError if `leads_out`: a stranger's repository may have links to files of the user."""
    if led := leads_out(path, root):
        raise OSError(errno.ELOOP, f"a link leads out of the repository, to {led}", str(path))


def write_users_file(file: Path, text: str, mode: str = "w", root: Path | None = None) -> None:
    """Write a file for the user, in the folder `root` or its repository if it is in one.

    One that is only half written is removed. Raises OSError.
    """
    refuse_to_leave(file, root)
    opened = file.open(mode, encoding="utf-8", newline="\n")
    try:
        with opened:
            opened.write(text)
    except OSError:
        if file.is_file():
            file.resolve().unlink()
        raise


MOST_READ = 16 << 20  # bytes of a person's file, unless its reader names fewer


def open_regular(file: Path, flags: int = 0, folder: int | None = None) -> BinaryIO:
    """Open a file to read it. Raises OSError, also for a pipe or a device, which may never end."""
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "this is not a file", str(file))
    return os.fdopen(opened, "rb")


def read_regular(file: Path, most: int = MOST_READ) -> bytes:
    """Read a person's file as a whole. Raises OSError, also if it has more than `most` bytes."""
    with open_regular(file) as opened:
        content = opened.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(file))
    return content


def is_foreign_owned(path: Path) -> bool:
    """Whether `path` belongs to another user than the one who runs this.

    As git decides it: a link counts as itself, and under sudo the calling user (`SUDO_UID`)
    is the same as root. A path that can't be inspected counts as another user's.
    """
    try:
        owner = path.lstat().st_uid
    except OSError:
        return True
    return owner not in _own_ids()


def _own_ids() -> set[int]:
    ids = {os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if 0 in ids and caller.isascii() and caller.isdigit():
        ids.add(int(caller))
    return ids
