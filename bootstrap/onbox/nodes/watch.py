"""Begin a run on several nodes with those of the other nodes, and end it with them.

`onbox nodes.watch RUN` is started by the run's runner.
RUN/nodes/watch.json has `rank`, `count`, `address` and `port` of node 0, a `token` that only these
runs have, and `least`: how many nodes an elastic training needs, else 0. RUN/nodes/code is written
by the runner when its command ended: exit code, and why: exit, stop, interrupted.

It writes RUN/nodes/begun once all are here; before that RUN/nodes/waits, the ranks that are not;
and at the end RUN/nodes/over: rank, exit code and why of what ended them all: done, exit, stop,
interrupted, lost (it was not heard for LOST_S), missing (it never came). The runner does the rest.

Node 0 decides. The others hold one connection to it, over the private network; both sides prove
that they know the token. Each says twice a second that it is there. If it isn't heard, node 0 ends
the others, and each of these ends on its own: nobody's machine but the nodes is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import selectors
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

BEAT_S = 0.5
LOST_S = 6.0
"""Seconds without a word after which a node is lost; all are asked to end within 10."""
SETTLE_S = 1.5
"""How long after a failure a node may say that it had ended earlier."""
COME_S = 120.0
"""How long all wait for the last one to come."""
GONE_S = 30.0
"""How long node 0 waits at the end for the others to know it."""
TICK_S = 0.1
STOPPED = 143
"""128 + SIGTERM: the exit code of what was ended, or is not known."""
LONGEST = 4096
NODE_0 = 0

TYPE_CHECKING = False
if TYPE_CHECKING:  # without importing it: this program starts with each run
    from typing import Any


class NodeEnd:
    """What ended a node, and when by this machine's monotonic clock."""

    def __init__(self, rank: int, code: int, why: str, at: float) -> None:
        self.rank, self.code, self.why, self.at = rank, code, why, at

    @property
    def failed(self) -> bool:
        """Whether it ends the others."""
        return self.why != "exit" or self.code != 0

    def words(self) -> list[Any]:
        """As it is sent, and written down."""
        return [self.rank, self.code, self.why]


class Peer:
    """A connection, with the proof of who is there, and the lines that it brings."""

    def __init__(self, link: socket.socket, token: str) -> None:
        self.link, self._key = link, token.encode()
        self.rank = -1
        """Who it is; -1 until that is proved."""
        self.nonce = secrets.token_hex(16)
        self._held = b""
        self.closed = False
        link.setblocking(False)
        with suppress(OSError):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> None:
        """Ask who is there."""
        self.say({"nonce": self.nonce})

    def proof(self, nonce: str, rank: int, who: str) -> str:
        """Return what only a holder of the token can say to this nonce."""
        text = f"{who} {rank} {nonce}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def proves(self, word: dict[str, Any], rank: int, who: str) -> bool:
        """Whether the other side answered our nonce as that node does."""
        said = word.get("proof")
        return isinstance(said, str) and hmac.compare_digest(
            said, self.proof(self.nonce, rank, who)
        )

    def say(self, word: dict[str, Any]) -> None:
        """Send a line. What a full buffer refuses is said again with the next beat."""
        try:
            self.link.send(json.dumps(word).encode() + b"\n")
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def lines(self) -> list[dict[str, Any]]:
        """Return what came; [] for nothing. Anything that is no line of ours closes it."""
        try:
            piece = self.link.recv(LONGEST)
        except BlockingIOError:
            return []
        except OSError:
            piece = b""
        if not piece or len(self._held) > LONGEST:
            self.close()
            return []
        *whole, self._held = (self._held + piece).split(b"\n")
        words = []
        for line in whole:
            try:
                word = json.loads(line)
            except ValueError:
                word = None
            if not isinstance(word, dict):
                self.close()
                return []
            words.append(word)
        return words

    def close(self) -> None:
        self.closed = True
        with suppress(OSError):
            self.link.close()


class NodeRun:
    """The run's folder, as far as it is about the other nodes."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "nodes"
        self._run = run
        settings = json.loads((self.folder / "watch.json").read_text())
        self.rank, self.count = int(settings["rank"]), int(settings["count"])
        self.least = int(settings.get("least", 0))
        self.address = (str(settings["address"]), int(settings["port"]))
        self.token = str(settings["token"])
        self.come_s = float(settings.get("come_s", COME_S))
        self._first: NodeEnd | None = None
        # Room for the end, while there is some.
        (self.folder / "over.new").write_text("\n")

    def ended(self, now: float) -> NodeEnd | None:
        """Return how the command ended here; None while it has not. It may be stopped after it."""
        if (words := self._code()) and (self._first is None or words[1] == "stop"):
            at = self._first.at if self._first else now
            self._first = NodeEnd(self.rank, words[0], words[1], at)
        return self._first

    def _code(self) -> tuple[int, str] | None:
        with suppress(OSError, ValueError, IndexError):
            code, why = (self.folder / "code").read_text().splitlines()[0].split()
            return int(code), why
        # Its runner was killed, and the command's own shell wrote this.
        with suppress(OSError, ValueError):
            return int((self._run / "exit").read_text()), "exit"
        return None

    def begin(self) -> None:
        (self.folder / "begun").touch()
        with suppress(OSError):
            (self.folder / "waits").unlink()

    def waits_for(self, ranks: list[int]) -> None:
        """Note who is not here yet."""
        with suppress(OSError):
            (self.folder / "waits").write_text(" ".join(map(str, ranks)) + "\n")

    def over(self, what: NodeEnd) -> None:
        """Note what ended them all; into room that was reserved."""
        new = self.folder / "over.new"
        with suppress(OSError), new.open("r+") as file:
            file.write(" ".join(map(str, what.words())) + "\n")
        new.replace(self.folder / "over")


class Node:
    """One of the others, as node 0 knows it."""

    def __init__(self, rank: int, now: float) -> None:
        self.rank, self.heard = rank, now
        self.peer: Peer | None = None
        self.outcome: NodeEnd | None = None
        self.knows = False
        """Whether it knows that all is over."""


class Hub:
    """Node 0: it knows all nodes, says when they begin, and what ended them."""

    def __init__(self, run: NodeRun) -> None:
        self._run, now = run, time.monotonic()
        self._nodes = [Node(rank, now) for rank in range(run.count)]
        self._me = self._nodes[NODE_0]
        self._strangers: list[Peer] = []
        self._deadline = now + run.come_s
        self._begun = False
        self._over: NodeEnd | None = None
        self._select = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._door.bind(run.address)
        self._door.listen(run.count + 8)
        self._door.setblocking(False)
        self._select.register(self._door, selectors.EVENT_READ)

    def watch(self) -> None:
        """Hold them together until all is over, and all know it."""
        beat = before = time.monotonic()
        gone = float("inf")
        while not self._all_know() and before < gone:
            for key, _ in self._select.select(TICK_S):
                self._take(key.data)
            now = time.monotonic()
            if now - before > LOST_S / 2:  # this box stood still: nobody could be heard
                for node in self._nodes:
                    node.heard += now - before
            before = now
            if now - beat >= BEAT_S:
                beat = now
                self._say_all()
            if self._over is None and (what := self._decided(now)):
                self._over, gone = what, now + GONE_S
                self._run.over(what)
                self._say_all()

    def _decided(self, now: float) -> NodeEnd | None:
        """Return what ended them all, once that is sure."""
        self._me.heard = now
        self._me.outcome = self._run.ended(now)
        if not self._begun:
            return self._awaited(now)
        for node in self._nodes:
            if node.outcome is None and now - node.heard > LOST_S:
                node.outcome = NodeEnd(node.rank, STOPPED, "lost", node.heard)
        left = [node for node in self._nodes if node.outcome is None]
        failed = [node.outcome for node in self._nodes if node.outcome and node.outcome.failed]
        stopped = any(each.why == "stop" for each in failed)
        # An elastic training goes on with those that are left.
        enough = self._run.least and len(self._nodes) - len(failed) >= self._run.least
        if not failed or (enough and not stopped):
            return None if left else NodeEnd(NODE_0, 0, "done", now)
        first = min(failed, key=lambda each: each.at)
        # One that has said nothing since may have ended, or have been lost, before.
        unsure = first.why != "stop" and any(node.heard < first.at + SETTLE_S for node in left)
        return None if unsure else first

    def _awaited(self, now: float) -> NodeEnd | None:
        missing = self._missing()
        ended = next((n.outcome for n in self._nodes if n.outcome), None)
        if ended:
            return ended
        if not missing:
            self._begun = True
            for node in self._nodes:
                node.heard = now
            self._run.begin()
            self._say_all()
            return None
        if now > self._deadline:
            return NodeEnd(missing[0], STOPPED, "missing", now)
        self._run.waits_for(missing)
        return None

    def _missing(self) -> list[int]:
        """Return who is not here."""
        here = (node.peer is not None and not node.peer.closed for node in self._nodes)
        return [rank for rank, is_here in enumerate(here) if rank != NODE_0 and not is_here]

    def _say_all(self) -> None:
        word: dict[str, Any] = {"begun": self._begun}
        if self._over:
            word["over"] = self._over.words()
        elif not self._begun:
            word["waits"] = self._missing()
        for node in self._nodes:
            if node.peer and not node.peer.closed:
                node.peer.say(word)

    def _all_know(self) -> bool:
        if self._over is None:
            return False
        return all(
            node.knows
            or node is self._me
            or node.peer is None
            or (node.outcome is not None and node.outcome.why == "lost")
            for node in self._nodes
        )

    def _take(self, peer: Peer | None) -> None:
        if peer is None:
            with suppress(OSError):
                link, _ = self._door.accept()
                new = Peer(link, self._run.token)
                new.ask()
                self._select.register(link, selectors.EVENT_READ, new)
                self._strangers = [each for each in self._strangers[-64:] if not each.closed]
                self._strangers.append(new)
            return
        for word in peer.lines():
            if peer.closed:
                break
            if peer.rank < 0:
                self._admit(peer, word)
            else:
                self._hear(self._nodes[peer.rank], word)
        if peer.closed:
            with suppress(KeyError, ValueError):
                self._select.unregister(peer.link)

    def _admit(self, peer: Peer, word: dict[str, Any]) -> None:
        """Accept a node that proves who it is, and prove who this is."""
        rank, nonce = word.get("rank"), word.get("nonce")
        if (
            not isinstance(rank, int)
            or not isinstance(nonce, str)
            or not self._proves(peer, word, rank)
        ):
            peer.close()
            return
        node = self._nodes[rank]
        if node.peer:
            node.peer.close()
        peer.rank, node.peer, node.heard = rank, peer, time.monotonic()
        peer.say({"proof": peer.proof(nonce, rank, "hub")})

    def _proves(self, peer: Peer, word: dict[str, Any], rank: int) -> bool:
        return NODE_0 < rank < len(self._nodes) and peer.proves(word, rank, "node")

    def _hear(self, node: Node, word: dict[str, Any]) -> None:
        node.heard = time.monotonic()
        node.knows = node.knows or word.get("knows") is True
        code, ago, why = word.get("code"), word.get("ago"), word.get("why")
        if not isinstance(code, int) or not isinstance(ago, (int, float)):
            return
        if node.outcome is None or why == "stop":
            node.outcome = NodeEnd(node.rank, code & 255, str(why)[:20], node.heard - float(ago))


class Spoke:
    """Another node: it holds a connection to node 0, and does what that says."""

    def __init__(self, run: NodeRun) -> None:
        self._run = run
        self._begun = False
        self._ended: NodeEnd | None = None

    def watch(self) -> None:
        """Follow node 0 until all is over."""
        start = heard = before = time.monotonic()
        peer: Peer | None = None
        proved, beat = False, 0.0
        while True:
            now = time.monotonic()
            if now - before > LOST_S / 2:  # this box stood still
                heard += now - before
            before = now
            if peer is None or peer.closed:
                peer, proved = self._connected(), False
            if peer is None:
                time.sleep(TICK_S)
            else:
                _wait_readable(peer.link)
                for word in peer.lines():
                    if not proved:
                        proved = self._meet(peer, word)
                        continue
                    heard = time.monotonic()
                    if over := _outcome(word.get("over"), heard):
                        peer.say({"knows": True})
                        self._run.over(over)
                        return
                    self._note(word)
            now = time.monotonic()
            self._ended = self._run.ended(now)
            if proved and peer and not peer.closed and now - beat >= BEAT_S:
                beat = now
                peer.say(self._state(now))
            since, patience = (heard, LOST_S) if self._begun else (start, self._run.come_s + LOST_S)
            if now - since > patience:
                why = "lost" if self._begun else "missing"
                self._run.over(NodeEnd(NODE_0, STOPPED, why, now))
                return

    def _connected(self) -> Peer | None:
        try:
            link = socket.create_connection(self._run.address, timeout=2)
        except OSError:
            return None
        return Peer(link, self._run.token)

    def _meet(self, peer: Peer, word: dict[str, Any]) -> bool:
        """Answer node 0's nonce; return whether it answered ours."""
        nonce = word.get("nonce")
        if isinstance(nonce, str):
            proof = peer.proof(nonce, self._run.rank, "node")
            peer.say({"rank": self._run.rank, "nonce": peer.nonce, "proof": proof})
            return False
        if not peer.proves(word, self._run.rank, "hub"):
            peer.close()
            return False
        return True

    def _note(self, word: dict[str, Any]) -> None:
        if word.get("begun") is True and not self._begun:
            self._begun = True
            self._run.begin()
        waits = word.get("waits")
        if isinstance(waits, list) and not self._begun:
            self._run.waits_for([rank for rank in waits if isinstance(rank, int)])

    def _state(self, now: float) -> dict[str, Any]:
        if self._ended is None:
            return {"beat": 1}
        return {"code": self._ended.code, "why": self._ended.why, "ago": now - self._ended.at}


def _wait_readable(link: socket.socket) -> None:
    with suppress(OSError, ValueError), selectors.DefaultSelector() as select:
        select.register(link, selectors.EVENT_READ)
        select.select(TICK_S)


def _outcome(words: object, now: float) -> NodeEnd | None:
    if not isinstance(words, list) or len(words) != 3:
        return None
    rank, code, why = words
    if not isinstance(rank, int) or not isinstance(code, int):
        return None
    return NodeEnd(rank, code & 255, str(why)[:20], now)


def main() -> int:
    os.umask(0o077)
    run = NodeRun(Path(sys.argv[1]))
    if run.rank == NODE_0:
        Hub(run).watch()
    else:
        Spoke(run).watch()
    return 0
