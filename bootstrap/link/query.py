"""Build queries: the static scripts of `templates/queries`, preceded by their variables."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

from bootstrap.errors import BoxLacksError, BoxstrapError
from bootstrap.link.exchange import run_script_checked
from bootstrap.link.wire import LinkLost, Wire
from bootstrap.sanitize import sanitize
from bootstrap.steps.event_codes import explain
from bootstrap.steps.shell import Value, assignments, bare_shell, called, sent_program, shell_part
from bootstrap.value import dataclass


class SentProgram(Protocol):
    @property
    def digest(self) -> str:
        """Its SHA-256."""

    @property
    def files_digest(self) -> str:
        """SHA-256 of its files, one after another, in the order in which a shell lists them."""

    @property
    def packed(self) -> bytes:
        """Its text as gzip."""


class AskedBox(Protocol):
    """A box as a query needs it: where its folder is, and which secrets it redacts itself."""

    @property
    def name(self) -> str:
        """What it is called here."""

    @property
    def wire(self) -> Wire:
        """The current login."""

    @property
    def workdir(self) -> str:
        """The working folder that has boxstrap's folder."""

    @property
    def redacted_there(self) -> Sequence[str]:
        """Names of the secrets whose values are not here."""


_SHARED = (("lib", "owner"), ("queries", "home"), ("lib", "process"))
"""What every query may use: where boxstrap's folder is, and which processes are alive.
Functions that it doesn't call stay here."""


@dataclass(frozen=True)
class BoxRedaction:
    """The secrets that the box redacts in an answer, since their values are not on this machine.

    The first `skip` bytes of the answer are dropped. With `same_length` a replacement is as long
    as its secret, so that byte offsets in a file stay correct.
    """

    names: Sequence[str] = ()
    skip: int = 0
    same_length: bool = False

    def variables(self) -> dict[str, Value]:
        """Return the variables of the query `redacted`: names, options, and the program."""
        return {
            "redact": " ".join(self.names),
            "skip": self.skip,
            "same_length": self.same_length,
            "redactor": sent_program("onbox/redact.py"),
        }


NO_REDACTION = BoxRedaction()


def build_query(name: str, /, there: BoxRedaction = NO_REDACTION, **values: Value) -> str:
    """Return the script of `templates/queries/<name>.sh` after `workdir` and its own variables.
    `there`: secrets that the box redacts in its output before sending it."""
    shared = _shared(name, bool(there.names))
    own = bare_shell(shell_part("queries", name))
    if there.names:
        values |= there.variables()
        own = f"find_home\n(\n{own}) | redacted\n"
    return assignments({"workdir": "", **values}) + shared + own


def ask(  # noqa: PLR0913 - how it may be answered
    module: str,
    request: Mapping[str, object],
    there: BoxRedaction = NO_REDACTION,
    *,
    workdir: str,
    text: str = "",
    lacking: str = "",
    tool: str = "sh",
    waits: int = 0,
) -> str:
    """Return the question for a module of the program there, see `templates/queries/ask.sh`."""
    file = "__main__.py" if text else f"{module.replace('.', '/')}.py"
    about: dict[str, Value] = {"module": module, "request": json.dumps(request), "text": text}
    about |= {"workdir": workdir, "lacking": lacking, "tool": tool, "waits": waits, "file": file}
    return build_query("ask", there, **about)


@cache
def _shared(name: str, redacts: bool) -> str:
    """Return the library of a query, without the functions that it doesn't call."""
    library = "".join(shell_part(kind, part) for kind, part in _SHARED)
    by = f"find_home\n{'redacted' * redacts}\n{shell_part('queries', name)}"
    return bare_shell(called(library, by))


_STORE = 'read_program && store_program "$1"'
_MOST_LACKS = 20  # sentences to show at most; `lacks` in templates/lib/preflight.sh has fewer
_LONGEST = 300


@dataclass(frozen=True)
class LaunchOptions:
    script: str
    program: SentProgram
    setup: str
    workdir: str
    has_program: bool = False  # whether the box said that it has the program
    wait_s: int = 60  # how long it waits for another setup to end, in seconds
    words: Sequence[str] = ()  # `restart`, `only=gpu`: see `WantedSetup`
    secrets: bytes = b""  # NAME=VALUE, each ended by a NUL


def new_setup_id(now: float | None = None) -> str:
    """Return a new id; ids sort by time."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{os.urandom(3).hex()}"


def launch(wire: Wire, start: LaunchOptions) -> None:
    """Start the setup. An incomplete upload starts nothing. A box that lost the program is sent it.
    Raises BoxLacksError when preflight finds that the box can't be set up (nothing was changed),
    LinkLost, NoAnswer, BoxstrapError when the box did not start it."""
    sent = start.has_program and _launched(wire, start, b"")
    if not (sent or _launched(wire, start, start.program.packed)):
        raise LinkLost(wire.label, "the program did not arrive whole, so nothing was started")


def _launched(wire: Wire, start: LaunchOptions, program: bytes) -> bool:
    """Start it; False if the box has no program, nor `program` was it."""
    import gzip  # late, as above

    script = gzip.compress(start.script.encode(), mtime=0)
    query = build_query(
        "launch",
        workdir=start.workdir,
        setup_id=start.setup,
        script_bytes=len(script),
        program_bytes=len(program),
        files_sum=start.program.files_digest,
        program_sum=start.program.digest,
        storing=f"{shell_part('lib', 'program')}{_STORE}" if program else "",
        secret_bytes=len(start.secrets),
        wait_seconds=start.wait_s,
        client_time=int(time.time()),
        words=" ".join(start.words),
    )
    answer = run_script_checked(wire, query, script + program + start.secrets, timeout=120)
    lines = sanitize(answer.output).splitlines()
    if lacks := [line.split("\t", 2)[1:] for line in lines if line.startswith("lacks\t")]:
        raise _lacks(lacks, wire.label)
    if "short" in lines:
        raise LinkLost(wire.label, "the script did not arrive whole, so nothing was started")
    if "program" in lines:
        return False
    if "launched" not in lines:
        said = sanitize(answer.errors).strip()[-600:]
        raise BoxstrapError(
            f"the box did not start the setup{': ' + said if said else '.'}", where=wire.label
        )
    return True


def _lacks(lacks: list[list[str]], label: str) -> BoxLacksError:
    sentences = [(row[1] if len(row) > 1 else row[0])[:_LONGEST] for row in lacks[:_MOST_LACKS]]
    advice = explain(lacks[0][0], {}).hint
    what = "; ".join(sentences)
    return BoxLacksError(
        f"{what}.", where=label, hint=f"Nothing was changed. {advice[:1].upper()}{advice[1:]}."
    )
