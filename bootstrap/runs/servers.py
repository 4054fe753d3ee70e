"""Jupyter and TensorBoard on a box: found, started, ended (templates/queries/server.sh).

They outlive the tunnel, and whoever asks again finds them: a notebook with an hour of work in its
memory is not lost with a laptop's lid. Jupyter ends by itself after an hour in which it has no
kernel and nobody asks it anything; TensorBoard, which only reads, with the box or `--stop`.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bootstrap.errors import BoxLacksError, BoxstrapError, StepFailedError
from bootstrap.link.exchange import BASH, stream_answer
from bootstrap.link.parsing import rows
from bootstrap.link.wire import PIECE, Wire
from bootstrap.protocol.query import build_long_query
from bootstrap.runs.project import RemoteProject

IDLE_S = 3600
"""Seconds without a kernel and without a question, after which Jupyter ends by itself."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,200}")
_MOST = 1_000_000
"""Bytes of an answer that are read."""
_JUPYTER = """\
import os, sys
os.environ["JUPYTER_TOKEN"] = open(sys.argv.pop(1)).read()
from jupyterlab.labapp import main
main()
"""
_TENSORBOARD = """\
import sys
sys.argv[:2] = ["tensorboard", "--path_prefix", "/" + open(sys.argv[1]).read()]
from tensorboard.main import run_main
run_main()
"""
"""Neither shows its secret in the list of processes. The path does for TensorBoard, which knows no
token: who doesn't know it gets 404."""
_KERNEL = """\
import sys
sys.path.append({folder!r})
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""
"""Behind the project's own packages, so that theirs are the ones that a notebook gets."""


@dataclass(frozen=True)
class ServerKind:
    """A server that people look at."""

    name: str
    title: str
    package: str
    port: int
    """The port wished for on this machine."""
    says: str
    """The file in which it says its port."""
    program: str
    words: Sequence[str]
    settings: Mapping[str, str]
    """Its variables; `{place}` is its own folder, so that nothing of the person's is read."""


JUPYTER = ServerKind(
    "jupyter",
    "Jupyter",
    "jupyterlab>=4.2,<5",
    8888,
    "runtime/jpserver-*.json",
    _JUPYTER,
    (
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        "--ServerApp.open_browser=False",
        "--ServerApp.allow_root=True",
        # It is asked for by the tunnel's name; whoever asks needs the token anyway.
        "--ServerApp.allow_remote_access=True",
        f"--ServerApp.shutdown_no_activity_timeout={IDLE_S}",
        "--KernelSpecManager.ensure_native_kernel=False",
    ),
    {
        # Images have settings of their own, some of them a password or none.
        "JUPYTER_NO_CONFIG": "1",
        "JUPYTER_CONFIG_DIR": "{place}/config",
        "JUPYTER_DATA_DIR": "{place}/data",
        "JUPYTER_RUNTIME_DIR": "{place}/runtime",
        "JUPYTER_PATH": "{place}/share",
    },
)
TENSORBOARD = ServerKind(
    "tensorboard",
    "TensorBoard",
    "tensorboard>=2.14,<3",
    6006,
    "runtime/.tensorboard-info/pid-*.info",
    _TENSORBOARD,
    ("--host=127.0.0.1", "--port=0"),
    {"TMPDIR": "{place}/runtime"},
)
KINDS = (JUPYTER, TENSORBOARD)


@dataclass(frozen=True)
class Server:
    """A server on a box, as it said itself."""

    kind: ServerKind
    port: int
    path: str
    """The path and query of its page, with what lets in."""
    found: bool
    """Whether it was at work before."""


_SENTENCES = {
    "no-environment": (
        BoxLacksError,
        "there is no environment for a kernel yet.",
        "Set the box up first: boxstrap setup",
    ),
    "no-events": (
        BoxLacksError,
        "no event file of TensorBoard lies in the repository's tree yet.",
        "Name the folder that the training will write: boxstrap tunnel --tensorboard --logdir DIR",
    ),
    "uv-missing": (
        BoxLacksError,
        "there is nothing to install {title} with.",
        "It comes with a setup of this version: boxstrap setup",
    ),
    "install": (
        StepFailedError,
        "{title} could not be installed:\n{log}",
        "Check the box's network and its package index, and run the same command again.",
    ),
    "start": (StepFailedError, "{title} does not start:\n{log}", "Run the same command again."),
}


def start_server(  # noqa: PLR0913 - each has its own name where it is called
    wire: Wire,
    kind: ServerKind,
    *,
    home: str,
    project: RemoteProject,
    logdir: str = "",
    doing: Callable[[str], None],
) -> Server:
    """Find the server of this kind, or make and start it.

    `home` is boxstrap's folder on the box; `doing` hears what takes time. Raises BoxLacksError,
    StepFailedError, LinkLost; after the last one ask again.
    """
    place = _place(home, project, kind)
    secret = f"{place}/secret"
    own = [f"--ServerApp.root_dir={project.folder}"] if kind is JUPYTER else []
    query = build_long_query(
        "server",
        want="start",
        workdir=posixpath.dirname(home),
        kind=kind.name,
        package=kind.package,
        place=place,
        folder=project.folder,
        venv=project.venv,
        says=kind.says,
        words=["-c", kind.program, secret, *kind.words, *own],
        settings=[f"{name}={value.format(place=place)}" for name, value in kind.settings.items()],
        kernel=_kernel(place, project),
        logdir=posixpath.join(project.folder, logdir) if logdir else "",
    )
    said: dict[str, list[str]] = {}
    for word, value in _said(wire, query):
        said.setdefault(word, []).append(value)
        if word == "doing":
            doing(value)
    if "failed" in said:
        raise _failure(kind, said["failed"][0], said.get("log", []), wire.label)
    return _server(kind, "".join(said.get("server", [])[:1]), "found" in said, wire.label)


def stop_server(wire: Wire, kind: ServerKind, *, home: str, project: RemoteProject) -> bool:
    """End it; False where none was at work. Raises LinkLost."""
    query = build_long_query(
        "server",
        want="stop",
        workdir=posixpath.dirname(home),
        kind=kind.name,
        place=_place(home, project, kind),
    )
    return any(word == "stopped" for word, _ in _said(wire, query))


def _place(home: str, project: RemoteProject, kind: ServerKind) -> str:
    return f"{home}/servers/{posixpath.basename(project.folder)}-{kind.name}"


def _kernel(place: str, project: RemoteProject) -> str:
    """The kernel's file. Notebooks from anywhere name their kernel `python3`."""
    code = _KERNEL.format(folder=f"{place}/kernel")
    names = (posixpath.basename(path) for path in (project.folder, project.venv))
    return json.dumps(
        {
            "argv": [project.python, "-c", code, "-f", "{connection_file}"],
            "display_name": "{} ({})".format(*names),
            "language": "python",
        }
    )


def _said(wire: Wire, query: str) -> Iterator[tuple[str, str]]:
    """What the box says, as it comes. Raises LinkLost, NoAnswer."""
    stream = stream_answer(wire, query, BASH)
    rest, size = b"", 0
    try:
        stream.close_write()
        while size < _MOST and (piece := stream.read(PIECE)):
            size += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield from rows(b"\n".join(lines))
    finally:
        stream.close()


def _failure(kind: ServerKind, code: str, log: list[str], label: str) -> BoxstrapError:
    error, what, hint = _SENTENCES.get(code, _SENTENCES["start"])
    return error(what.format(title=kind.title, log="\n".join(log)), where=label, hint=hint)


def _server(kind: ServerKind, text: str, found: bool, label: str) -> Server:
    """Read what it says of itself: of the box's word only a port and a secret are taken."""
    try:
        told: Any = json.loads(text)
        port = told["port"]
        secret = told["token"] if kind is JUPYTER else told["path_prefix"].removeprefix("/")
        if type(port) is int and 1 <= port <= 65535 and _SECRET.fullmatch(secret):
            path = f"/lab?token={quote(secret)}" if kind is JUPYTER else f"/{secret}/"
            return Server(kind, port, path, found)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass
    raise _failure(kind, "start", ["it never said where it listens"], label)
