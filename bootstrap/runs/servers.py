"""Find, start and stop Jupyter and TensorBoard on a box (templates/queries/server.sh).

They outlive the tunnel, and the next tunnel finds them: a closed laptop must not cost a notebook
an hour of work in memory. Jupyter ends on its own after an hour without a kernel and without
requests; TensorBoard, which only reads, ends with the box or with `--stop`.
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
from bootstrap.link.answers import rows
from bootstrap.link.exchange import BASH, stream_answer
from bootstrap.link.wire import PIECE, Wire
from bootstrap.protocol.query import build_long_query
from bootstrap.runs.project import RemoteProject

IDLE_S = 3600
"""Seconds without a kernel and without requests, after which Jupyter ends on its own."""
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
"""Neither shows its secret in the process list. TensorBoard has no tokens, so the secret is its
path prefix: any other path gets 404."""
_KERNEL = """\
import sys
sys.path.append({folder!r})
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""
"""The folder is appended, so that a notebook gets the project's own packages first."""


@dataclass(frozen=True)
class ServerKind:
    """A kind of server with a web page."""

    name: str
    title: str
    package: str
    port: int
    """The preferred port on this machine."""
    says: str
    """The file in which it reports its port, as a glob pattern."""
    program: str
    words: Sequence[str]
    settings: Mapping[str, str]
    """Its variables; `{place}` is its own folder, so that it reads none of the user's settings."""


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
        # Requests name the tunnel's host; they need the token anyway.
        "--ServerApp.allow_remote_access=True",
        f"--ServerApp.shutdown_no_activity_timeout={IDLE_S}",
        "--KernelSpecManager.ensure_native_kernel=False",
    ),
    {
        # Images bring their own settings: some set a password, some turn it off.
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
    """A server on a box, as it reported itself."""

    kind: ServerKind
    port: int
    path: str
    """The path and query of its page, with the secret that grants access."""
    found: bool
    """Whether it was running already."""


_SENTENCES = {
    "no-environment": (
        BoxLacksError,
        "there is no environment for a kernel yet.",
        "Set the box up first: boxstrap setup",
    ),
    "no-events": (
        BoxLacksError,
        "there is no TensorBoard event file in the repository's tree yet.",
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
    """Find the server of this kind, or install and start it.

    `home` is boxstrap's folder on the box; `doing` is called with what takes time. Raises
    BoxLacksError, StepFailedError, LinkLost; after LinkLost, call it again.
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
    """Stop it; False if none was running. Raises LinkLost."""
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
    """Return the kernel's file. Notebooks from elsewhere name their kernel `python3`."""
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
    """Yield the rows of the box's answer as they arrive. Raises LinkLost, NoAnswer."""
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
    """Read how it reported itself; only a port and a secret are accepted from the box."""
    try:
        told: Any = json.loads(text)
        port = told["port"]
        secret = told["token"] if kind is JUPYTER else told["path_prefix"].removeprefix("/")
        if type(port) is int and 1 <= port <= 65535 and _SECRET.fullmatch(secret):
            path = f"/lab?token={quote(secret)}" if kind is JUPYTER else f"/{secret}/"
            return Server(kind, port, path, found)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass
    raise _failure(kind, "start", ["it did not report its port"], label)
