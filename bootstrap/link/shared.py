"""The shared connection to a box, which stays open for a while after a contact (docs/adr/0074).

It is OpenSSH's: a master of our own making, with the box's pin, listens at a control socket in our
own folder. Later commands join it (`link/mux.py`); a person's `ssh NAME` does not. All that decides
whom it reaches and as whom is in the socket's name, so that another one is never joined by mistake:
the record of the box, its pinned host keys, the key file that was named, address, port and user.

A master is started after the command has its answer, detached, and only where its login asks nobody
anything. Nothing here fails a command: without a shared connection each one logs in.
"""

import atexit
import base64
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bootstrap import paths
from bootstrap.link import mux
from bootstrap.link.endpoint import Endpoint
from bootstrap.link.record import KnownBox, load_box, pins_of, read_known_hosts
from bootstrap.link.wire import Wire
from bootstrap.sizes import seconds_of
from bootstrap.value import dataclass

VARIABLE = "BOXSTRAP_KEEP_OPEN"
"""Environment variable: how long connections stay open, instead of what the profiles say."""
DEAD_AFTER_S = 16
"""Within how many seconds a master notices that its box is gone: asked each 4 s, three times."""
_SOCKET_PATH_MAX = 103 if sys.platform == "darwin" else 107
"""Most bytes of a socket's path: 104 on macOS, 108 on Linux, including a final NUL."""
_OF_BOX, _OF_LOGIN, _SUFFIX = 4, 12, 17
"""Lengths of the parts of a socket's name: the box, and whom it reaches, as whom; and of the suffix
that ssh adds while it makes the socket."""
_OPENING, _PUBLIC = ".opening", ".pub"
_RETRY_S = 600.0  # when opening is tried again after it failed, in seconds


@dataclass(frozen=True)
class SilentKey:
    """The key that logged in, where a second login with it asks nobody anything."""

    path: Path | None  # its file, which has no passphrase; None if an agent holds it
    public: str = ""  # its line, if an agent holds it
    agent: str = ""  # the socket of that agent


def keep_open_s(box: KnownBox) -> float:
    """Return how many seconds the box's connection stays open after its last use; 0 for never."""
    said = os.environ.get(VARIABLE, "")
    if said == "0":
        return 0.0
    return float(seconds_of(said) or box.keep_open)


def join(box: KnownBox, endpoint: Endpoint, login: Callable[[], Wire]) -> mux.SharedWire | None:
    """Return the box's shared connection if there is one; whether the box answers is not known yet.
    `login` makes the login for what the connection does not take."""
    path = _socket_of(box, endpoint)
    if path is None or not path.exists() or _is_revoked(box, endpoint):
        return None
    try:
        return mux.SharedWire(str(path), endpoint.label, login)
    except mux.NotSharedError as error:
        if isinstance(error.__cause__, ConnectionRefusedError):  # left by a crash
            _forget(path)
    return None


_offered: dict[Path, tuple[KnownBox, Endpoint, SilentKey]] = {}


def offer(box: KnownBox, endpoint: Endpoint, key: SilentKey) -> None:
    """Note that a connection to this box may be opened when the command has its answer."""
    path = _socket_of(box, endpoint)
    if path is not None:
        if not _offered:
            atexit.register(open_offered)  # for `inv`; `boxstrap` leaves without it
        _offered[path] = (box, endpoint, key)


def open_offered() -> None:
    """Start a master for each box that was logged in to, and leave them to themselves."""
    for path, (box, endpoint, key) in _offered.items():
        known = load_box(box.folder)
        if known is not None and known.created == box.created:
            with contextlib.suppress(OSError):
                _open(path, known, endpoint, key)
    _offered.clear()


def is_open(box: KnownBox) -> bool:
    """Whether a connection to the box is open now. Asks nothing of the box."""
    return any(mux.is_alive(str(path)) for path in _sockets(box))


def close(box: KnownBox) -> None:
    for path, (offered, *_) in list(_offered.items()):
        if (offered.name, offered.created) == (box.name, box.created):
            del _offered[path]
    for path in _sockets(box):
        mux.end(str(path))
        _forget(path)
    if folder := _folder():  # what is left of openings that failed
        for path in folder.glob(f"{_of_box(box)}*"):
            path.unlink(missing_ok=True)


def _open(path: Path, box: KnownBox, endpoint: Endpoint, key: SilentKey) -> None:
    """Start a master, unless one is there or is starting. Raises OSError."""
    seconds = keep_open_s(box)
    import shutil  # late: the command has its answer

    ssh, shell = shutil.which("ssh"), shutil.which("sh")
    if not seconds or not ssh or not shell or mux.is_alive(str(path)):
        return
    paths.make_private(path.parent)
    path.unlink(missing_ok=True)
    opening = path.with_suffix(_OPENING)
    with contextlib.suppress(FileNotFoundError):
        if time.time() - opening.stat().st_mtime < _RETRY_S:
            return
        opening.unlink()
    opening.touch(mode=0o600, exist_ok=False)
    # The file stays if the login fails: it isn't tried again with each command.
    script = '{ "$@" && rm -f "$0"; } &'
    subprocess.run(
        [shell, "-c", script, str(opening), ssh, *_options(path, box, endpoint, key)],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
        cwd="/",
        start_new_session=True,
    )


def _options(path: Path, box: KnownBox, endpoint: Endpoint, key: SilentKey) -> Iterator[str]:
    """Yield ssh's arguments. It reads no configuration, and so does what the login before did."""
    if key.path is None:
        identity = path.with_suffix(_PUBLIC)
        identity.write_text(f"{key.public}\n")
    else:
        identity = key.path
    options = {
        "ControlMaster": "yes",
        "ControlPersist": f"{keep_open_s(box):.0f}",
        "BatchMode": "yes",
        "PreferredAuthentications": "publickey",
        "IdentitiesOnly": "yes",
        "IdentityFile": _quoted(identity),
        "IdentityAgent": _quoted(key.agent) if key.agent else "none",
        "AddKeysToAgent": "no",
        "UserKnownHostsFile": _quoted(box.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": box.host_key_alias,
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "AddressFamily": endpoint.address_family,
        "ConnectTimeout": f"{endpoint.connect_timeout:.0f}",
        "ServerAliveInterval": f"{DEAD_AFTER_S // 4}",
        "ServerAliveCountMax": "3",
        "Ciphers": "^aes128-gcm@openssh.com",
        "LogLevel": "QUIET",
    }
    yield from ("-F", "none", "-S", str(path), "-T", "-a", "-x")
    for name, value in options.items():
        yield from ("-o", f"{name}={value}")
    # A command that ends at once: what then stays is the master alone. If another one was first,
    # nothing stays.
    yield from ("-l", endpoint.user, "-p", str(endpoint.port), "--", endpoint.hostname, "exit 0")


def _quoted(path: object) -> str:
    return '"' + str(path).replace("%", "%%") + '"'


def _socket_of(box: KnownBox, endpoint: Endpoint) -> Path | None:
    """Return where the box's control socket is or would be; None if none is to be shared. Through a
    proxy none is: its login might ask, and nobody can tell."""
    if endpoint.proxy_command or not keep_open_s(box) or not box.known_hosts.is_file():
        return None
    folder = _folder()
    if folder is None:
        return None
    trusted = sorted(f"{names} {key.line}" for names, key in pins_of(box))
    reached = (endpoint.hostname.lower(), str(endpoint.port), endpoint.user, socket.gethostname())
    chosen = str(endpoint.chosen_identity or "")
    login = _digest(_OF_LOGIN, box.host_key_alias, chosen, *reached, *trusted)
    return folder / f"{_of_box(box)}{login}"


def _of_box(box: KnownBox) -> str:
    """A box that was forgotten and is set up again counts as another one."""
    return _digest(_OF_BOX, str(paths.state_dir()), box.host_key_alias, str(box.created))


def _digest(length: int, *parts: str) -> str:
    whole = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).digest()
    return base64.b32encode(whole).decode().lower()[:length]


def _sockets(box: KnownBox) -> Iterable[Path]:
    folder = _folder()
    if folder is None:
        return []
    return [each for each in folder.glob(f"{_of_box(box)}*") if not each.suffix]


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError):
        for suffix in (_OPENING, _PUBLIC):
            path.with_suffix(suffix).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _is_revoked(box: KnownBox, endpoint: Endpoint) -> bool:
    """Whether the user's known_hosts revokes a pinned key: the login then says so."""
    name = endpoint.host_key_alias or endpoint.pin_name
    revoked = read_known_hosts(endpoint.known_hosts_files, name).revoked
    return any(key in revoked for _, key in pins_of(box))


def _folder() -> Path | None:
    """Return the folder of the sockets, which only this user can enter: in our own state, and
    nowhere else. None where that path is too long for a socket: then each command logs in."""
    folder = paths.state_dir() / "ssh"
    length = len(str(folder).encode()) + 1 + _OF_BOX + _OF_LOGIN + _SUFFIX
    if length > _SOCKET_PATH_MAX or set(str(folder)) & set('"\\%${}\n'):
        return None
    return folder
