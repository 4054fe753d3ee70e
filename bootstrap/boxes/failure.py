"""Why a run failed: found in what its box reports, and in the end of its log."""

import re
from collections.abc import Callable, Mapping, Sequence

from bootstrap.boxes.run import Run, RunOnABox
from bootstrap.link.exchange import answer_number
from bootstrap.onbox.python.lacking import advice
from bootstrap.onbox.run_folder import END_BYTES
from bootstrap.sanitize import sanitize
from bootstrap.sizes import size
from bootstrap.value import dataclass

_LINES = 8
_MORE_OF_EXCEPTION = 2  # lines that an exception's message may have after the first
_AFTER_TRACEBACK = 30
"""Lines that may follow it, such as a launcher's summary; an earlier one did not end the run."""
_WIDTH = 160  # characters of a line that are shown
_SIGKILL = 137

_TRACEBACK = "Traceback (most recent call last):"
_RANK = r"\[rank\d{1,4}\]: ?"
_EXCEPTION = r"[A-Za-z_][\w.]{0,200}(:|$)"
_LAUNCHERS = r"(torch\.distributed\.\S*ChildFailedError|subprocess\.CalledProcessError)\b"
"""Exceptions of a launcher; the exception of the program itself is above them."""
_UNDERLINE = r"[\s~^]*\^[\s~^]*"

_AMOUNT = r"[\d.,]{1,20} ?(?:[KMGT]i?B|bytes)"
_OUT_OF_MEMORY = (
    r"(?:CUDA|HIP) (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor|cupy\S*OutOfMemoryError"
)
_ASKED = rf"(?:Tried to allocate|trying to allocate|memory allocating) ({_AMOUNT})"
_GPU = r"\bGPU (\d{1,3})\b"
_FREE = rf"of which ({_AMOUNT}) is free|({_AMOUNT}) free"
_TOTAL = rf"total capaci?ty of ({_AMOUNT})|({_AMOUNT}) total capacity"

_KILLED = r"(\d{1,6}) (\d{1,18}|-) (\d{1,18}|-) (.{1,60})"
"""Count of processes; bytes that the box may use, bytes that the last process held, its name."""


@dataclass(frozen=True)
class Failure:
    """Why a run failed: `kind` is `node` (another one), `interrupted`, `memory`, `gpu-memory`,
    `killed`, `exception` or `unknown`."""

    kind: str
    what: str
    hint: str = ""
    lines: tuple[str, ...] = ()
    """The end of the log that shows it, or the last lines of the traceback."""


@dataclass(frozen=True)
class RunThatEnded(RunOnABox):
    """A run that was waited for. `metric`: the last line of its log that has one."""

    KEYS = f"{RunOnABox.KEYS}, metric, failure"

    metric: str | None = None
    failure: Failure | None = None


def find_failure(
    run: Run, log_end: bytes, redact: Callable[[str], str] = str, *, is_cut: bool = False
) -> Failure | None:
    """Return why it failed; None if it did not. A log that `is_cut` starts within a line."""
    if not run.failed:
        return None
    # Redact before splitting: a secret may span several lines.
    log = redact(sanitize(log_end)).split("\n")[is_cut:]
    lines = [line for line in (one.rstrip() for one in log) if line]
    traceback = last_traceback(lines)
    shown = tuple(line[:_WIDTH] for line in (traceback or lines)[-_LINES:])
    if run.by_node or run.interruption:
        notice = run.interruption.sentence() if run.interruption else ""
        kind, why = ("node", run.by_node) if run.by_node else ("interrupted", notice)
        return Failure(kind, why, lines=shown)
    of_gpu = traceback or lines[-40:]
    if memory := _killed_for_memory(run, shown) or _out_of_gpu_memory(of_gpu, shown):
        return memory
    if run.rc == _SIGKILL:
        is_counted = run.killed_for_memory.startswith("0 ")
        box = "counted no kill for memory" if is_counted else "does not know what did it"
        return Failure("killed", f"something killed it (SIGKILL); the box {box}", lines=shown)
    what = next((line for line in traceback if _is_exception(line)), "")
    hint = advice("\n".join(traceback or shown))
    return Failure("exception" if what else "unknown", what[:_WIDTH], hint, shown)


def find_failures(
    runs: Sequence[Run], log_ends: Mapping[str, bytes], redact: Callable[[str], str]
) -> dict[Run, Failure]:
    """Map failed runs to why; `log_ends` has the last `END_BYTES` of a log, by `KEY/NAME`."""
    found = {}
    for run in runs:
        end = log_ends.get(run.path, b"")
        if failure := find_failure(run, end, redact, is_cut=run.log_bytes > END_BYTES):
            found[run] = failure
    return found


def _killed_for_memory(run: Run, shown: tuple[str, ...]) -> Failure | None:
    """The box counts all kills while the run lives: some may be of processes of other runs."""
    found = re.fullmatch(_KILLED, run.killed_for_memory)
    count = answer_number(found[1]) if found else 0
    if not found or not count:
        return None
    limit, held, name = answer_number(found[2]), answer_number(found[3]), found[4].strip()
    who = f"{count} processes" if count > 1 else "a process"
    last = f": {name} held {size(held)}" if held else ""
    most = f"; the limit for all processes is {size(limit)}" if limit else ""
    return Failure(
        "memory",
        f"the kernel killed {who} for memory while it ran{last}{most}",
        "Fewer or smaller copies of the data in memory (workers of a DataLoader have one each), "
        "or a box with more memory.",
        shown,
    )


def _out_of_gpu_memory(lines: Sequence[str], shown: tuple[str, ...]) -> Failure | None:
    """Read the last out-of-memory line of any framework."""
    told = next((line for line in reversed(lines) if re.search(_OUT_OF_MEMORY, line)), None)
    if told is None:
        return None
    asked, gpu, free, total = (
        next(filter(None, found.groups()), "") if (found := re.search(pattern, told)) else ""
        for pattern in (_ASKED, _GPU, _FREE, _TOTAL)
    )
    where = f" on GPU {gpu}" if gpu else ""
    what = [f"{asked} were asked for" if asked else "", f"{free} were free" if free else ""]
    parts = ", ".join(filter(None, what)) + (f" of {total}" if free and total else "")
    return Failure(
        "gpu-memory",
        f"out of GPU memory{where}{parts and f': {parts}'}"[:_WIDTH],
        "A smaller batch or model; `boxstrap top` shows what else holds its memory.",
        shown,
    )


def last_traceback(lines: Sequence[str]) -> list[str]:
    """Return the program's last traceback without its first line; empty if there is none."""
    bare = [re.sub(_RANK, "", line, count=1) if line.startswith("[") else line for line in lines]
    starts = [at for at, line in enumerate(bare) if line.strip() == _TRACEBACK]
    found: list[str] = []
    for start, stop in zip(starts, [*starts[1:], len(bare)], strict=False):
        size = _size_of_traceback(bare[start:stop])
        one = [
            line for line in bare[start + 1 : start + size] if not re.fullmatch(_UNDERLINE, line)
        ]
        is_near = len(bare) - start - size <= _AFTER_TRACEBACK
        if one and is_near and not (found and re.match(_LAUNCHERS, one[-1])):
            found = one
    return found


def _size_of_traceback(lines: Sequence[str]) -> int:
    """Count the lines up to the end of the exception; all lines if the traceback is cut off."""
    end = next((at for at, line in enumerate(lines[1:], 1) if _is_exception(line)), len(lines))
    most = min(len(lines), end + 1 + _MORE_OF_EXCEPTION)
    return next((at for at in range(end + 1, most) if not lines[at][0].isspace()), most)


def _is_exception(line: str) -> bool:
    return not line.startswith(" ") and re.match(_EXCEPTION, line) is not None
