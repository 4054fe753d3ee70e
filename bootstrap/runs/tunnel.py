"""`tunnel`: open ports of a box on this machine; with Jupyter or TensorBoard behind one, if wanted.

These servers outlive the tunnel, and the next tunnel finds them: a closed laptop must not cost a
notebook an hour of work in memory. Jupyter ends on its own after an hour without a kernel and
without requests; TensorBoard, which only reads, ends with the box or with `--stop`.
"""

import json
import os
import posixpath
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BoxLacksError, BoxstrapError, StepFailedError, UsageError
from bootstrap.link.exchange import answer_rows, stream_script
from bootstrap.link.query import ask
from bootstrap.link.target import BoxOptions
from bootstrap.link.tunnel import Forward, Tunnel, forwards, hold, host_of, is_free, parse_forward
from bootstrap.link.wire import PIECE, Wire
from bootstrap.runs.remote_command import RemoteProject, project_of
from bootstrap.steps.shell import sent_module
from bootstrap.ui.screen import Screen
from bootstrap.value import Document, document

IDLE_S = 3600  # seconds without a kernel and without requests, after which Jupyter ends on its own
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,200}")
_MOST = 1_000_000  # bytes of an answer that are read
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
    name: str
    title: str
    package: str
    port: int  # the preferred port on this machine
    says: str  # the file in which it reports its port, as a glob pattern
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
    path: str  # the path and query of its page, with the secret that grants access
    found: bool  # whether it was running already


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
    # Notebooks from elsewhere name their kernel `python3`.
    code = _KERNEL.format(folder=f"{place}/kernel")
    names = (posixpath.basename(path) for path in (project.folder, project.venv))
    kernel = {
        "argv": [project.python, "-c", code, "-f", "{connection_file}"],
        "display_name": "{} ({})".format(*names),
        "language": "python",
    }
    asked = {
        **{"want": "start", "kind": kind.name, "package": kind.package, "says": kind.says},
        **{"place": place, "folder": project.folder, "venv": project.venv, "kernel": kernel},
        "words": ["-c", kind.program, secret, *kind.words, *own],
        "settings": [
            f"{name}={value.format(place=place)}" for name, value in kind.settings.items()
        ],
        "logdir": posixpath.join(project.folder, logdir) if logdir else "",
    }
    said: dict[str, list[str]] = {}
    for word, value in _said(wire, home, asked):
        said.setdefault(word, []).append(value)
        if word == "doing":
            doing(value)
    if "failed" in said or not said:
        # A box without the program gives no answer.
        code = "".join(said.get("failed", ["uv-missing"])[:1])
        raise _failure(kind, code, said.get("log", []), wire.label)
    return _server(kind, "".join(said.get("server", [])[:1]), "found" in said, wire.label)


def stop_server(wire: Wire, kind: ServerKind, *, home: str, project: RemoteProject) -> bool:
    """Stop it; False if none was running. Raises LinkLost."""
    asked = {"want": "stop", "kind": kind.name, "place": _place(home, project, kind)}
    return any(word == "stopped" for word, _ in _said(wire, home, asked))


def _place(home: str, project: RemoteProject, kind: ServerKind) -> str:
    return f"{home}/servers/{posixpath.basename(project.folder)}-{kind.name}"


def _said(wire: Wire, home: str, asked: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the rows of the box's answer as they arrive. Raises LinkLost, NoAnswer."""
    text, workdir = sent_module("onbox/server.py"), posixpath.dirname(home)
    query = ask("server", asked, workdir=workdir, text=text)
    stream = stream_script(wire, query)
    rest, size = b"", 0
    try:
        stream.close_write()
        while size < _MOST and (piece := stream.read(PIECE)):
            size += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield from answer_rows(b"\n".join(lines))
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


_FORBIDDEN_HINT = "Its sshd needs `AllowTcpForwarding yes` (/etc/ssh/sshd_config), and a restart."


@dataclass(frozen=True)
class TunnelOptions:
    ports: Sequence[str] = ()
    jupyter: bool = False
    tensorboard: bool = False
    logdir: str = ""
    opens: bool = True  # whether to open a browser, if there is a terminal

    @property
    def kinds(self) -> list[ServerKind]:
        tensorboard = self.tensorboard or bool(self.logdir)
        wanted = ((JUPYTER, self.jupyter), (TENSORBOARD, tensorboard))
        return [kind for kind, is_wanted in wanted if is_wanted]


@dataclass
class OpenTunnel(Document):
    """A tunnel, and the server behind it if boxstrap started that."""

    KEYS = (
        "name, here=tunnel.port, url, address=tunnel.forward.host, "
        "port=tunnel.forward.port, found?=server.found"
    )

    name: str
    tunnel: Tunnel
    host: str
    server: Server | None = None

    @property
    def url(self) -> str:
        path = self.server.path if self.server else "/"
        return f"http://{self.host}:{self.tunnel.port}{path}"

    def line(self) -> str:
        there = self.tunnel.forward
        where = "" if there.host == "localhost" else f" of {there.host}"
        what = f"port {there.port}{where} on the box"
        if self.server:
            what = f"{self.server.kind.title}, {'found' if self.server.found else 'started'}"
        return f"  {self.url}  ({what})"


def open_tunnels(
    options: BoxOptions, screen: Screen, wish: TunnelOptions, *, as_json: bool
) -> None:
    """Hold tunnels open until Ctrl-C. Raises UsageError, BoxLacksError, StepFailedError."""
    wished = [parse_forward(text) for text in wish.ports]
    with BoxLogin.open(options, screen, opens_forwards=True) as box:
        wished += _pasted(box, wish)
        if not wished and not wish.kinds:
            raise UsageError(
                "which port of the box?",
                hint="As in: boxstrap tunnel 8080, or --jupyter, or --tensorboard",
            )
        if box.is_local:  # one that leads to its own number would go round in circles
            wished = [
                replace(one, here=one.here % 65535 + 1) if one.here == one.port else one
                for one in wished
            ]
        if not box.link.ask(forwards):
            raise BoxLacksError(
                "its sshd does not allow port forwarding.", where=box.label, hint=_FORBIDDEN_HINT
            )
        _Window(box, screen, wish, as_json=as_json).hold(wished)


def stop_servers(options: BoxOptions, screen: Screen, wish: TunnelOptions) -> None:
    """Stop the wanted servers, or both if none is named. It is no error if none is running."""
    if wish.ports or wish.logdir:
        raise UsageError("--stop ends Jupyter and TensorBoard: not with ports or --logdir.")
    with BoxLogin.open(options, screen) as box:
        project, home = project_of(box), box.state.home
        stopped = [
            kind
            for kind in wish.kinds or KINDS
            if box.link.ask(partial(stop_server, kind=kind, home=home, project=project))
        ]
        titles = ", ".join(kind.title for kind in stopped)
        screen.result(
            {"box": box.name, "stopped": [kind.name for kind in stopped]},
            f"stopped: {titles}" if stopped else f"nothing was running on {box.name}",
        )


def _pasted(box: BoxLogin, wish: TunnelOptions) -> list[Forward]:
    """Return the `-L` of the pasted ssh command; of an earlier one if nothing else is named."""
    target = box.target
    if box.options.host != target.text and (wish.ports or wish.kinds):
        return []
    return [parse_forward(text) for text in target.forwards]


class _Window:
    def __init__(
        self, box: BoxLogin, screen: Screen, wish: TunnelOptions, *, as_json: bool
    ) -> None:
        self._box, self._link = box, box.link
        self._screen, self._wish, self._as_json = screen, wish, as_json
        self._project = project_of(box) if wish.kinds else RemoteProject("/", "/")
        self._open: list[OpenTunnel] = []
        self._speaking = threading.Lock()

    def hold(self, wished: Sequence[Forward]) -> None:
        """Open them, show them, and log in again whenever the link is lost."""
        try:
            for kind in self._wish.kinds:
                server = self._link.ask(partial(self._serve, kind=kind))
                forward = Forward(kind.port, "127.0.0.1", server.port)
                self._add(kind.name, forward, server)
            # Those whose port is free come first: a port that is in use moves no other one.
            for forward in sorted(wished, key=lambda forward: not is_free(forward.here)):
                self._add(str(forward.port), forward)
            self._show()
            self._browse()
            hold(self._link, self._back)
        finally:
            for one in self._open:
                one.tunnel.close()
            self._say_what_stays()

    def _add(self, name: str, forward: Forward, server: Server | None = None) -> None:
        title = server.kind.title if server else ""
        tunnel = Tunnel(self._link, forward, self._warn, title)
        host = host_of(self._box.name, server.kind.name if server else "")
        self._open.append(OpenTunnel(name, tunnel, host, server))
        if not server and tunnel.port != forward.here:
            self._warn(f"port {forward.here} is in use on this machine: using {tunnel.port} here")

    def _serve(self, wire: Wire, kind: ServerKind) -> Server:
        return start_server(
            wire,
            kind,
            home=self._box.state.home,
            project=self._project,
            logdir=self._wish.logdir if kind is TENSORBOARD else "",
            doing=partial(self._screen.note, kind.name),
        )

    def _back(self) -> None:
        """Find the servers again; start them again if the box restarted and lost them."""
        before = [(one.url, one.tunnel.forward) for one in self._open]
        for one in self._open:
            if one.server:
                one.server = self._serve(self._link.wire, one.server.kind)
                one.tunnel.forward = replace(one.tunnel.forward, port=one.server.port)
                if not one.server.found:
                    self._warn(f"{one.server.kind.title} had ended on the box: it is started again")
        if before != [(one.url, one.tunnel.forward) for one in self._open]:
            self._show()

    def _show(self) -> None:
        if self._as_json:
            line = {"v": 1, "box": self._box.name, "tunnels": document(self._open)}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            return
        lines = [one.line() for one in self._open]
        self._screen.result({}, "\n".join(["open until Ctrl-C:", *lines]))

    def _browse(self) -> None:
        if not self._wish.opens or self._as_json or not sys.stdout.isatty() or not _has_browser():
            return
        import webbrowser

        for one in self._open:
            if one.server:
                webbrowser.open(one.url)

    def _warn(self, text: str) -> None:
        with self._speaking:
            self._screen.warn(text)

    def _say_what_stays(self) -> None:
        live = [one for one in self._open if not one.tunnel.refused]
        if titles := [one.server.kind.title for one in live if one.server]:
            names = " and ".join(titles)
            host = shlex.quote(self._box.name)
            goes = "goes" if len(titles) == 1 else "go"
            self._screen.say(
                f"{names} {goes} on, on the box. To end: boxstrap tunnel --host {host} --stop"
            )


def _has_browser() -> bool:
    """Whether there is a display for a browser: Python would also open a text-mode one."""
    return sys.platform == "darwin" or any(
        os.environ.get(name)
        for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
    )
