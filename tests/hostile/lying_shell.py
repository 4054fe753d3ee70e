"""A box that lies: runs in place of the login shell, behind a real sshd.

    python -I -S lying_shell.py FILE

FILE holds the name of one of `LIES`. boxstrap's command is in SSH_ORIGINAL_COMMAND;
the query in it is recognised by its text, and answered as an honest box would, but
without any work, except for the query that the lie is about. It imports little,
since it is started for each command.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

MIB = 1024 * 1024
SETUP = "20260101-000000-abcdef"
# A title, colours, a cursor that goes up, a clipboard, 8-bit controls, direction marks, a bell.
ESCAPES = (
    "\x1b]0;owned\x07\x1b[31m\x1b[2J\x1b[1A\x1b]52;c;b3duZWQ=\x1b\\\x9b31m\x9d0;owned\x9c"
    "\u202eevil\u2066\u200f\x07\x08\r\x1bP+q\x1b\\"
)
BAD_UTF8 = b"\xff\xfe\xc3(\xed\xa0\x80\xf5\x80 end"
# Text that occurs in only one query.
SIGNS = {
    "receive": "module='work.store'",
    "sync": "tool='git'",
    "back": "module='work.back'",
    "probe": "show_more()",
    "launch": "receive()",
    "follow": "follows='yes'",
    "setup_end": "state=gone",
    "tail": 'tail "$@"',
    "first": '"verb": "first"',
    "made": "module='work.made'",
    "record": '"ask": "record"',
    "box_id": "{0,200}",
    "transfer": "/venv/main/bin/python",
    "end": '"verb": "end"',
}


class Query:
    """A query: its name, the mark that frames its answer, and the variables in front of it."""

    def __init__(self, command: str) -> None:
        text = _carried(command)
        while packed := re.search(r"echo ([A-Za-z0-9+/=]+) \| base64 -d( \| gzip -dc)?", text):
            inner = base64.b64decode(packed[1])
            if packed[2]:
                import gzip  # few queries are so long

                inner = text[: packed.start()].encode() + gzip.decompress(inner)
            text = inner.decode()
        self.name = next((name for name, sign in SIGNS.items() if sign in text), "?")
        framed = re.search(r"echo ([0-9a-f]{32})\+\n", text)
        plain = re.search(r"^echo ([0-9a-f]{32})$", text, re.MULTILINE)
        self.framed = framed is not None
        found = framed or plain
        self.mark = found[1] if found else ""
        self.values: dict[str, str] = {}
        for name, value in re.findall(r"^([a-z_]+)='([^'\n]*)'$", text, re.MULTILINE):
            self.values.setdefault(name, value)

    def begin(self) -> bytes:
        return f"\n{self.mark}{'+' if self.framed else ''}\n".encode()

    def end(self) -> bytes:
        if not self.framed:
            return b""
        os.write(2, f"{self.mark}\n".encode())
        return f"{self.mark}- 0\n".encode()


def _carried(command: str) -> str:
    """Return the script: the last word, in which stand-ins replace what a shell would interpret."""
    text = command.rstrip("'").rpartition("'")[2]
    stand_ins = re.findall(r'\br "(.)"', command)[:4]
    for stand_in, meant in zip(stand_ins, ("'", "!", "\\", "\n"), strict=False):
        text = text.replace(stand_in, meant)
    return text if stand_ins else command


Answer = Callable[[Query], Iterator[bytes]]


def event(query: Query, seq: int, step: str, word: str, **fields: object) -> bytes:
    setup = query.values.get("file", "").split("/")[1]
    more = "".join(
        f',"{key}":{value}' if isinstance(value, int) else f',"{key}":"{value}"'
        for key, value in fields.items()
    )
    head = f'"v":1,"setup":"{setup}","seq":{seq},"t":1.5,"step":"{step}","event":"{word}"'
    return f"{{{head}{more}}}\n".encode()


# -- answers of an honest box

RUN: dict[str, object] = {"kind": "run", "state": "finished", "rc": 0, "started": 1700000000}
RUN |= {"commit": "a" * 40, "work": "w", "session": "train", "command": "python train.py"}


def told_run(key: str, **values: object) -> bytes:
    """Tell of a run, as `onbox/runs/status.py` does."""
    import json  # few answers need it

    return json.dumps({**RUN, "run": f"{key}/train-1", **values}).encode() + b"\n"


def box_state(query: Query) -> Iterator[bytes]:
    facts = ["system\tLinux x86_64", "user\troot", "home\t/root", "bash\t5.2.15(1)-release"]
    facts += [f"time\t{int(time.time())}", "boxhome\t/root/.boxstrap"]
    key = query.values.get("repo_key") or "homework-01234567"
    if not os.path.lexists(unused()):
        yield told_run(key)
        facts.append("work\tw")
    yield "".join(f"{fact}\n" for fact in facts).encode()


def unused() -> str:
    """The file that is there until a setup begins: before it, the box has no run."""
    return f"{sys.argv[1]}.unused"


def launch(query: Query) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unused())  # noqa: PTH108 - pathlib takes long to start
    yield b"launched\n"


def receive(query: Query) -> Iterator[bytes]:
    while os.read(0, MIB):
        pass
    yield b"receive-pack\n" + packet("unpack ok\n") + packet("ok refs/boxstrap/x\n") + b"0000"


def sync(query: Query) -> Iterator[bytes]:
    while os.read(0, MIB):
        pass
    yield b"M\ttrain.py\nplaced\tx\nover\t\n"


BASE = "b" * 40
Row = Mapping[str, object]
EDITS: Row = {"kind": "edits", "commit": "c" * 40}
HOME: Row = {"kind": "home"}
TREE: Row = {"kind": "tree", "key": "k-1", "name": "homework", "number": "1"}
HOLDS: Row = {"kind": "holds", "what": "unread", "count": 1}


def rows(*said: Row) -> Answer:
    """Answer with lines of JSON."""

    def say(query: Query) -> Iterator[bytes]:
        import json  # as above

        yield b"".join(json.dumps(row).encode() + b"\n" for row in said)

    return say


def back(query: Query) -> Iterator[bytes]:
    place = {"kind": "tree", "dir": "/root/homework", "base": BASE}
    yield from rows(place, {"kind": "ready"})(query)
    while os.read(0, MIB):
        pass


def brought(header: Sequence[Row], pack: Iterator[bytes]) -> Answer:
    """Answer `sync --back` with a header, and `pack` in place of a real pack."""

    def say(query: Query) -> Iterator[bytes]:
        place = {"kind": "tree", "dir": "/root", "base": BASE}
        yield from rows(place, *header, {"kind": "ready"})(query)
        os.read(0, MIB)
        yield from pack

    return say


def without_end(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


def packet(text: str) -> bytes:
    """A pkt-line of git (gitprotocol-common(5))."""
    data = text.encode()
    return f"{len(data) + 4:04x}".encode() + data


def follow(query: Query) -> Iterator[bytes]:
    yield event(query, 1, "preflight", "start", why="new")
    yield event(query, 2, "preflight", "ok") + event(query, 3, "train", "ok")
    yield from over(query, rc=0)


def over(query: Query, **fields: object) -> Iterator[bytes]:
    yield event(query, 9_000_000, "setup", "done", **fields)
    time.sleep(20)


def log(query: Query) -> Iterator[bytes]:
    yield b"a line of a log\n"


def recorded(text: str = "") -> Answer:
    """Tell of a run, with the log `step 1`."""

    def say(query: Query) -> Iterator[bytes]:
        mark = re.search(r'"mark": "(\w+)"', query.values.get("request", ""))
        part = f"\n{mark[1] if mark else ''} "
        for note in ("started\n1700000000", f"venv\n{text}", f"samples\n{text}", f"times\n{text}"):
            yield f"{part}{note}\n".encode()
        yield f"{part}metric\n0\tloss 1 {text}\n{part}log 0 7\nstep 1\n".encode()

    return say


Frame = tuple[dict[str, object], bytes]
OF_AB = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"


def told(*paths: str) -> list[Frame]:
    """Report results, each complete."""
    rows = [[path, "", "", "own", 1, 2, 2, 3, 4] for path in paths]
    return [({"files": rows}, b""), ({"tree": "/w", "looked": ["out/"]}, b""), ({"end": True}, b"")]


def given() -> list[Frame]:
    """Send the first of the files that were asked for, and no more."""
    return [({"i": 0, "given": [["", OF_AB, 2]]}, b"ab"), ({"end": True}, b"")]


def results(*frames: Frame) -> Answer:
    """Answer a transfer with these frames, repeatedly, whatever is asked."""

    def say(query: Query) -> Iterator[bytes]:
        import json  # few lies are about this one

        said = b""
        for header, body in frames:
            head = json.dumps(header).encode() if header else b""
            said += len(head).to_bytes(4, "big") + len(body).to_bytes(4, "big") + head + body
        while True:
            yield said

    return say


HONEST: dict[str, Answer] = {
    "probe": box_state,
    "launch": launch,
    "receive": receive,
    "follow": follow,
    "setup_end": lambda query: iter([b"running\t0\n"]),
    "end": lambda query: iter([b"finished 0\t0\n"]),
    "tail": log,
    "sync": sync,
    "back": back,
    "transfer": results(*told("out/a"), *given()),
    "first": lambda query: iter([b"finished 0\nstep 1\n"]),
    "made": lambda query: iter([b'{"kind": "home"}\n{"kind": "over", "told": 0}\n']),
    "record": recorded(),
    "box_id": lambda query: iter([b"\n"]),
    "?": lambda query: iter([b"\n"]),
}

# -- lies


def endless(piece: bytes) -> Answer:
    def say(query: Query) -> Iterator[bytes]:
        while True:
            yield piece

    return say


def fixed(text: bytes | str) -> Answer:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return lambda query: iter([data])


def wide(char: bytes, size: int) -> Answer:
    """Send `size` bytes in one line."""

    def say(query: Query) -> Iterator[bytes]:
        for _ in range(size // MIB):
            yield char * MIB

    return say


def dressed_probe(text: str) -> Answer:
    """Put `text` into every fact and every field of a run."""

    def say(query: Query) -> Iterator[bytes]:
        yield from box_state(query)
        key = query.values.get("repo_key") or "homework-01234567"
        facts = f"home\t/root{text}\nboxhome\t/root{text}/.boxstrap\nuser\t{text}\n"
        facts += f"env\tVAST_CONTAINERLABEL{text}\nfile\t/etc/x{text}\n"
        yield facts.encode("utf-8", "surrogateescape")
        words = {name: f"{name[0]}{text}" for name in ("commit", "work", "session", "command")}
        yield told_run(key, run=f"{key}/train-2", state="running", rc=None, **words)
        last = f'last\t{{"setup":"{SETUP}{text}","state":"over","exit":0}}\n'
        yield last.encode("utf-8", "surrogateescape")

    return say


# A shell would run this, quoted or not, if somebody pastes a line with words from the box.
PASTED = "$(touch owned)`touch owned`;touch owned;'\"'$(touch owned)'"


def pasted_probe(query: Query) -> Iterator[bytes]:
    """Report folders whose names would run something here if pasted into a shell."""
    yield from box_state(query)
    yield f"boxhome\t/root/{PASTED}/.boxstrap\ndir\t/root/{PASTED}/-o x\nplaced\tyes\n".encode()


def many_runs(query: Query) -> Iterator[bytes]:
    yield from box_state(query)
    yield told_run("key-1", commit="b" * 40, command="x" * 3000) * 2000


def with_details(query: Query) -> Iterator[bytes]:
    """Report a failed run, with hostile text as the end of its log, its killer and its GPUs."""
    yield from box_state(query)
    yield told_run("key-1", commit="c" * 40, rc=137, killed=f"7 9 9 {ESCAPES}")
    end = f"Traceback (most recent call last):\n  File {ESCAPES}\nValueError: {ESCAPES}\n"
    for _ in range(1000):
        yield told_run("key-1", kind="log", text=end).replace(b"Trace", BAD_UTF8 + b"\\nTrace")
        yield told_run("key-1", kind="log", text=f"\ud800\n{end}")
    yield b'{"kind": "gpus", "gpus": [' + b"[" * 30_000 + b"\n"


def failed(**fields: object) -> Answer:
    def say(query: Query) -> Iterator[bytes]:
        yield event(query, 1, "python", "start", why="new")
        yield event(query, 2, "python", "fail", **fields)
        yield from over(query, rc=7)

    return say


def returned(query: Query) -> Iterator[bytes]:
    yield event(query, 2, "gpu", "fail", code="no-gpu", rc=6)
    yield from over(query, rc=6)


def odd_events(query: Query) -> Iterator[bytes]:
    """Send lines that are no events of this setup, or are out of order."""
    good = event(query, 5, "python", "progress", done=1, total=2, unit="packages")
    yield good
    yield good * 100  # the same again
    yield event(query, 3, "python", "ok")  # an earlier one
    yield good.replace(b'"seq":5', b'"seq":-5') + good.replace(b'"seq":5', b'"seq":1e999')
    yield good.replace(b'"seq":5', b'"seq":' + b"9" * 3000)
    yield good.replace(b'"setup":"', b'"setup":"other')
    yield b"[" * 4000 + b"\n" + b'{"a":' * 700 + b"\n" + BAD_UTF8 + b"\n\0\0\0\n"
    yield event(query, 6, "python", f"ok{ESCAPES}") + event(query, 7, f"gpu{ESCAPES}", "warn")
    yield event(query, 8, "python", "warn", code=f"no-gpu{ESCAPES}", why=ESCAPES)
    yield good.replace(b'"seq":5', b'"seq":8').replace(b'"done":1', b'"done":-1e300')
    yield good.replace(b'"seq":5', b'"seq":9').replace(b'"total":2', b'"total":0.0000001')
    yield b"x" * (8 * MIB) + b"\n"
    yield event(query, 10, "setup", "wait", code="busy", pid=10**15)
    yield event(query, 11, "train", "ok")
    yield from over(query, rc=0)


def endless_events(query: Query) -> Iterator[bytes]:
    seq = 0
    while True:
        yield b"".join(
            event(query, seq + n, "python", "progress", done=n, total=10**9, unit="packages")
            for n in range(1, 5000)
        )
        seq += 5000


def same_for_ever(query: Query) -> Iterator[bytes]:
    yield from over(query, rc=0, code="same")


def working_probe(query: Query) -> Iterator[bytes]:
    yield from box_state(query)
    yield f"working\t{SETUP}\t{'b' * 64}\n".encode()


def verdict(text: str) -> str:
    reason = f'"check":"{text}","code":"no-gpu","outcome":"return","gpus":[],'
    return (
        f'{{"version":1,"verdict":"return","reasons":[{{{reason}"says":"{text}",'
        f'"advice":"{text}"}}],"driver":"{text}","cuda":null,"gpus":[{{"index":0,"name":"{text}",'
        f'"uuid":null,"memory_mib":1,"capability":null}}],"checks":[],"seconds":1.0}}'
    )


def quoted(text: str) -> str:
    """Escape what JSON can't hold raw, so that it arrives."""
    return "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\u{ord(c):04x}" for c in text)


def noise_first(piece: bytes) -> Answer:
    """Send only noise, without the mark that starts an answer."""

    def say(query: Query) -> Iterator[bytes]:
        query.begin = lambda: b""  # type: ignore[method-assign]
        while True:
            yield piece

    return say


def loud(query: Query) -> Iterator[bytes]:
    """Write many errors to stderr before an honest answer."""
    for _ in range(60):
        os.write(2, ESCAPES.encode() * 5000)
    yield from box_state(query)


OUTSIDE = ("../owned", "/tmp/owned", "out/../../owned", "out/.git/config", "boxstrap-manifest.json")
"""Names of files that would be outside, configure git, or pass for boxstrap's own."""


def ever_more(query: Query) -> Iterator[bytes]:
    """List new results in each frame, without end."""
    import json

    number = 0
    while True:
        rows = [[f"out/{number + n}", "", "", "own", 1, n, 0, 3, 4] for n in range(1000)]
        number += 1000
        head = json.dumps({"files": rows}).encode()
        yield len(head).to_bytes(4, "big") + bytes(4) + head


Lie = dict[str, Answer]
LIES: dict[str, Lie] = {
    "honest": {},
    "probe without an end": {"probe": endless(b"x\n" * 30_000)},
    "probe full of escapes": {"probe": dressed_probe(ESCAPES)},
    "probe with 2,000 runs": {"probe": many_runs},
    "ends of logs full of escapes": {"probe": with_details},
    "folders that a shell would run": {"probe": pasted_probe},
    "probe that is not UTF-8": {"probe": dressed_probe("\udcff\udcc3(")},
    "errors without an end": {"probe": loud},
    "lacks full of escapes": {"launch": fixed(f"lacks\t{ESCAPES}\tno{ESCAPES} room\n")},
    "events without an end": {"follow": endless_events},
    "events that are none": {"follow": odd_events},
    "the same setup for ever": {"follow": same_for_ever, "probe": working_probe},
    "a log full of escapes": {"follow": failed(code="killed"), "tail": fixed(ESCAPES * 2000)},
    "a verdict full of escapes": {"follow": returned, "tail": fixed(verdict(quoted(ESCAPES)))},
    "a verdict nested 500,000 deep": {"follow": returned, "tail": fixed('{"a":' * 500_000)},
    "first output full of escapes": {"first": fixed(f"running\n{ESCAPES}step 1{ESCAPES}\n")},
    "a log of a run of 100 MB without a newline": {"tail": wide(b"x", 100 * MIB)},
    "a log of a run full of escapes": {"tail": fixed((ESCAPES + "step 1\n").encode() * 20_000)},
    "a log of a run that is not UTF-8": {"tail": fixed(BAD_UTF8 * 100_000)},
    "sync without an end": {"sync": endless(b"M\tx\n" * 20_000)},
    "sync full of escapes": {"sync": fixed(f"M\tx{ESCAPES}\nwarn\t{ESCAPES}\nplaced\t\nover\t\n")},
    "edits full of escapes": {
        "sync": fixed(f"log\t{ESCAPES}keep.txt\nfailed\tbox-edits\nover\t\n")
    },
    "branches with evil names": {
        "back": brought(
            [
                {"kind": "ref", "commit": "c" * 40, "name": f"refs/heads/{name}"}
                for name in ("../../x", "a..b", "x.lock", "-x", "a b", ESCAPES, "@{0}", "x/")
            ]
            + [{"kind": "left", "path": ESCAPES}],
            iter([b""]),
        )
    },
    "a pack without an end": {
        "back": brought([EDITS], without_end(b"PACK\0\0\0\2\xff" + b"x" * 60_000))
    },
    "a record full of escapes": {"record": recorded(text=ESCAPES)},
    "results that lie elsewhere": {"transfer": results(*told(*OUTSIDE), *given())},
    "results full of escapes": {
        "transfer": results(
            ({"left": [[ESCAPES, "outside"], [f"{ESCAPES}2", "stray"]]}, b""),
            *told(f"out/{ESCAPES}", f"out/a\nb{ESCAPES}"),
        )
    },
    "results without an end": {"transfer": ever_more},
    "words in the place of frames": {"transfer": fixed(ESCAPES * 2000)},
    "another box's id": {"box_id": fixed("said\tRUNPOD_POD_ID\tvictim\n")},
    "a manifest of its own": {"transfer": results(*told("boxstrap-manifest.json"), *given())},
    "trees without an end": {"made": endless(b'{"kind": "holds", "what": "edits"}\n' * 2000)},
    "trees full of escapes": {
        "made": rows(
            HOME,
            {**HOLDS, "what": "edits", "names": [f"{ESCAPES}x"]},
            {"kind": "ref", "commit": "c" * 40, "name": ESCAPES},
            {**TREE, "root": ESCAPES},
            {"kind": "over", "told": 3},
        )
    },
    "trees of which git can tell nothing": {
        "made": rows(HOME, {**HOLDS, "names": ["refs"]}, TREE, {"kind": "over", "told": 2})
    },
    "noise in the place of a log": {"tail": noise_first(b"\x1b[31mwelcome! " * 5000)},
}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes long to start
        lie = LIES[file.read().strip()]
    query = Query(os.environ.get("SSH_ORIGINAL_COMMAND", ""))
    answer = {**HONEST, **lie}[query.name]
    pieces = answer(query)
    first = next(pieces, b"")  # this may change how the answer is framed
    put(query.begin() + first)
    for piece in pieces:
        put(piece)
    put(query.end())


def put(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
