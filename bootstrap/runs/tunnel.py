"""`tunnel`: open ports of a box on this machine, keep them open, and show them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from bootstrap.errors import BoxLacksError, UsageError
from bootstrap.link.forward import Forward, host_of, parse_forward
from bootstrap.link.handle import BoxOptions
from bootstrap.link.tunnel import Tunnel, forwards, hold
from bootstrap.link.wire import Wire
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.project import RemoteProject, project_of
from bootstrap.runs.servers import (
    JUPYTER,
    KINDS,
    TENSORBOARD,
    Server,
    ServerKind,
    start_server,
    stop_server,
)
from bootstrap.ui.screen import Screen

_FORBIDDEN_HINT = "Its sshd needs `AllowTcpForwarding yes` (/etc/ssh/sshd_config), and a restart."


@dataclass(frozen=True)
class TunnelWish:
    """What to open."""

    ports: Sequence[str] = ()
    jupyter: bool = False
    tensorboard: bool = False
    logdir: str = ""
    opens: bool = True
    """Whether to open a browser, if there is a terminal."""

    @property
    def kinds(self) -> list[ServerKind]:
        """The kinds of server that are wanted."""
        tensorboard = self.tensorboard or bool(self.logdir)
        wanted = ((JUPYTER, self.jupyter), (TENSORBOARD, tensorboard))
        return [kind for kind, is_wanted in wanted if is_wanted]


@dataclass
class _OpenTunnel:
    """A tunnel, and the server behind it if boxstrap started that."""

    name: str
    tunnel: Tunnel
    host: str
    server: Server | None = None

    @property
    def url(self) -> str:
        path = self.server.path if self.server else "/"
        return f"http://{self.host}:{self.tunnel.port}{path}"

    def as_dict(self) -> dict[str, object]:
        there = self.tunnel.forward
        found = {"found": self.server.found} if self.server else {}
        own = {"name": self.name, "here": self.tunnel.port, "url": self.url}
        return {**own, "address": there.host, "port": there.port, **found}

    def line(self) -> str:
        there = self.tunnel.forward
        where = "" if there.host == "localhost" else f" of {there.host}"
        what = f"port {there.port}{where} on the box"
        if self.server:
            what = f"{self.server.kind.title}, {'found' if self.server.found else 'started'}"
        return f"  {self.url}  ({what})"


def open_tunnels(options: BoxOptions, screen: Screen, wish: TunnelWish, *, as_json: bool) -> None:
    """Open the tunnels, and hold them open until KeyboardInterrupt.

    Raises UsageError, BoxLacksError, StepFailedError, and as `connect`.
    """
    wished = [parse_forward(text) for text in wish.ports]
    with connect(options, screen, opens_forwards=True) as connection:
        wished += _pasted(connection, options, wish)
        if not wished and not wish.kinds:
            raise UsageError(
                "which port of the box?",
                hint="As in: boxstrap tunnel 8080, or --jupyter, or --tensorboard",
            )
        if not connection.link.ask(forwards):
            raise BoxLacksError(
                "its sshd does not allow port forwarding.",
                where=connection.link.label,
                hint=_FORBIDDEN_HINT,
            )
        _Window(connection, screen, wish, as_json=as_json).hold(wished)


def stop_servers(options: BoxOptions, screen: Screen, wish: TunnelWish) -> None:
    """Stop the wanted servers, or both if none is named. It is no error if none is running."""
    if wish.ports or wish.logdir:
        raise UsageError("--stop ends Jupyter and TensorBoard: not with ports or --logdir.")
    with connect(options, screen) as connection:
        project, home = project_of(connection), _home(connection)
        stopped = [
            kind
            for kind in wish.kinds or KINDS
            if connection.link.ask(partial(stop_server, kind=kind, home=home, project=project))
        ]
        titles = ", ".join(kind.title for kind in stopped)
        screen.result(
            {"box": connection.box.known.name, "stopped": [kind.name for kind in stopped]},
            f"stopped: {titles}" if stopped else "nothing was running",
        )


def _pasted(connection: BoxConnection, options: BoxOptions, wish: TunnelWish) -> list[Forward]:
    """Return the `-L` of the pasted ssh command; of an earlier one if nothing else is named."""
    target = connection.box.target
    if options.host != target.text and (wish.ports or wish.kinds):
        return []
    return [parse_forward(text) for text in target.forwards]


def _home(connection: BoxConnection) -> str:
    return connection.box_state.facts.get("boxhome", "")


class _Window:
    """The tunnels of one call."""

    def __init__(
        self, connection: BoxConnection, screen: Screen, wish: TunnelWish, *, as_json: bool
    ) -> None:
        self._connection, self._link = connection, connection.link
        self._screen, self._wish, self._as_json = screen, wish, as_json
        self._host = host_of(connection.box.known.name)
        self._project = project_of(connection) if wish.kinds else RemoteProject("/", "/")
        self._open: list[_OpenTunnel] = []
        self._speaking = threading.Lock()

    def hold(self, wished: Sequence[Forward]) -> None:
        """Open them, show them, and log in again whenever the link is lost."""
        try:
            for kind in self._wish.kinds:
                server = self._link.ask(partial(self._serve, kind=kind))
                forward = Forward(kind.port, "127.0.0.1", server.port)
                self._add(kind.name, forward, server)
            for forward in wished:
                self._add(str(forward.port), forward)
            self._show()
            self._browse()
            hold(self._link, self._back)
        finally:
            for one in self._open:
                one.tunnel.close()
            self._say_what_stays()

    def _add(self, name: str, forward: Forward, server: Server | None = None) -> None:
        tunnel = Tunnel(self._link, forward, self._warn)
        self._open.append(_OpenTunnel(name, tunnel, self._host, server))
        if not server and tunnel.port != forward.here:
            self._warn(f"port {forward.here} is in use on this machine: using {tunnel.port} here")

    def _serve(self, wire: Wire, kind: ServerKind) -> Server:
        return start_server(
            wire,
            kind,
            home=_home(self._connection),
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
            tunnels = [one.as_dict() for one in self._open]
            line = {"v": 1, "box": self._connection.box.known.name, "tunnels": tunnels}
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
        titles = [one.server.kind for one in self._open if one.server]
        if titles:
            names = " and ".join(kind.title for kind in titles)
            host = shlex.quote(self._connection.box.known.name)
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
