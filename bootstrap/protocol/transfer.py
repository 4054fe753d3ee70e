"""This machine's side of a transfer: a stream of requests out, a stream of frames back.

The box's side is a boxstrap program (`bootstrap/box/transfer`) that is sent with the query. Its
answers are not trusted: frames have a maximum length, and callers read each value by type
(`text_of`, `number_of`).
"""

from __future__ import annotations

import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bootstrap import box
from bootstrap.box.transfer.frames import BadFrame, pack_frame, read_frame
from bootstrap.errors import BoxLacksError, BoxstrapError
from bootstrap.link.exchange import stream_script
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Wire
from bootstrap.protocol.query import build_query
from bootstrap.text.sanitize import sanitize

Frame = tuple[Mapping[str, Any], bytes]
"""Header and body."""
MODULES = (
    *("frames", "complete_files", "take"),
    *("run_results", "serve"),
)
"""Modules of the program, each after those that it imports."""
SILENT_S = 60.0
"""How long the box may send nothing while we wait, in seconds; while it works, it sends frames."""
_TICK_S = 1.0
_LONGEST = 300
_MOST_NUMBER = 2**63
_LOAD = """\
import sys,types
def load(name,text):
 module=types.ModuleType('transfer.'+name)
 module.__package__='transfer'
 sys.modules[module.__name__]=module
 exec(compile(text,name,'exec'),module.__dict__)
sys.modules['transfer']=types.ModuleType('transfer')
sys.modules['transfer'].__path__=[]
"""


@cache
def box_program() -> str:
    """Return the box's program as one argument for `python -c`."""
    from bootstrap.shell import bare_python

    folder = Path(box.__file__).parent / "transfer"
    texts = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    loads = "".join(f"load({name!r},{bare_python(text)!r})\n" for name, text in texts.items())
    whole = f"{_LOAD}{loads}sys.modules['transfer.serve'].main()\n"
    packed = b64encode(zlib.compress(whole.encode(), 9)).decode()
    return f"import zlib,base64;exec(zlib.decompress(base64.b64decode('{packed}')))"


class Transfer:
    """One exchange with that program. A context manager: leaving it closes the stream."""

    def __init__(self, wire: Wire, workdir: str) -> None:
        """Start the program without waiting for it. Raises LinkLost."""
        self._wire = wire
        query = build_query("transfer", workdir=workdir, program=box_program())
        self._stream = stream_script(wire, query)
        self._held = bytearray()
        self._failure: BaseException | None = None
        self._waits_since: float | None = None
        self._fed = time.monotonic()
        self._is_silent = False
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="transfer", daemon=True).start()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._stream.close()

    def _watch(self) -> None:
        """Close the link if the program sends nothing: the box's sshd may still be answering."""
        tick = time.monotonic()
        while not self._over.wait(_TICK_S):
            now, last = time.monotonic(), tick
            tick, since = now, self._waits_since
            if now - last > 4 * _TICK_S:  # this process was suspended: don't blame the box
                self._fed = now
            if since is not None and now - max(since, self._fed) > SILENT_S:
                self._is_silent = True
                self._wire.close()
                return

    def run(self, requests: Iterable[Frame]) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Send the requests, and in parallel yield the answers, until the last one.

        A separate thread iterates over `requests`; its exceptions are raised here. May be called
        several times in a row. Raises LinkLost, NoAnswer, BoxLacksError (no Python on the box),
        BoxstrapError (the box's program ended).
        """
        feeder = threading.Thread(target=self._feed, args=(requests,), name="feeder", daemon=True)
        feeder.start()
        whole = False
        try:
            while True:
                header, body = self._frame()
                if "end" in header:
                    break
                if "v" not in header:
                    yield header, body
            whole = True
        except LinkLost:
            if not self._is_silent:
                raise
            why = f"it said nothing of the transfer for {SILENT_S:g} s"
            raise LinkLost(self._wire.label, why) from None
        finally:
            if not whole:
                self._stream.close()
            feeder.join(5)

    def _feed(self, requests: Iterable[Frame]) -> None:
        """Write small frames together, since each write is a packet."""
        waiting, size = [], 0
        try:
            for header, body in requests:
                frame = pack_frame(header, body)
                waiting.append(frame)
                size += len(frame)
                if size >= PIECE:
                    self._stream.write(b"".join(waiting))
                    self._fed = time.monotonic()
                    waiting, size = [], 0
            waiting.append(pack_frame({"op": "end"}))
            self._stream.write(b"".join(waiting))
        except (LinkLost, BrokenPipeError, ValueError):
            pass  # reading the answers raises it
        except BaseException as error:  # raised again while reading the answers
            self._failure = error
            self._stream.close_write()

    def _frame(self) -> tuple[dict[str, Any], bytes]:
        try:
            frame = read_frame(self._read)
        except BadFrame as error:
            raise NoAnswer(
                f"it sends something that is not part of a transfer: {error}.",
                where=self._wire.label,
                hint="Log in with ssh and look at its rc files.",
            ) from None
        if frame is None:
            raise self._why_it_ended()
        if frame[0].get("problem") == "python":
            raise BoxLacksError(
                "there is no Python 3.8 or later to take and give files with.",
                where=self._wire.label,
                hint="Set the box up first: boxstrap setup",
            )
        return frame

    def _read(self, count: int) -> bytes:
        while len(self._held) < count:
            self._waits_since = time.monotonic()
            piece = self._stream.read(PIECE)
            self._waits_since = None
            if not piece:
                break
            self._held += piece
        taken = bytes(memoryview(self._held)[:count])
        del self._held[:count]
        return taken

    def _why_it_ended(self) -> BaseException:
        if self._failure is not None:
            return self._failure
        if not self._wire.alive():
            return LinkLost(self._wire.label)
        said = sanitize(self._stream.read_err()).strip().rpartition("\n")[2][-_LONGEST:]
        return BoxstrapError(
            f"the box ended the transfer{said and ': ' + said}.",
            where=self._wire.label,
            hint="What has arrived stays. Run the same command again to go on.",
        )


def transfer_program(header: Mapping[str, Any], name: str) -> str:
    """Return a string from a frame's header; "" if it isn't one."""
    value = header.get(name)
    return value if isinstance(value, str) else ""


def number_of(header: Mapping[str, Any], name: str) -> int:
    """Return a non-negative integer from a frame's header; -1 if it isn't one."""
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value >= _MOST_NUMBER:
        return -1
    return max(value, -1)
