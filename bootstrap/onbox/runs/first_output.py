"""What a run that just started prints first.

`show` prints it as soon as there is some, a mark in a line of its own, then what became of the run
a moment later, as the verb `first` says it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from ..metrics import CONFIGURATION, LONGEST, SETTINGS
from ..metrics import LINE as METRIC_LINE
from ..run_folder import DIED, QUEUED, RunFolder

_OTHER = re.compile(
    r"^\s*$|^\s+[^\s0-9]|\(most recent call last\):$|^[a-z_.]*(error|exception)(:|$)"
    r"|warn(ing)?[\]):, ]|^\[?(rank[0-9]+\]:)?\[?[WE][0-9]{4} |[0-9]:? [WEI] |^\*+$|OMP_NUM_THREADS"
    rf"|^wandb: |^The following values were not passed|{CONFIGURATION}|optimizer"
    r"|^(load|download|map|filter|tokeniz|generat|convert|running tokenizer)[^:]*:"
    rf"|^[^0-9]*(lr|learning_rate|_({SETTINGS}))[a-z_]*[\"']? *[:=] *[-+0-9.e]+,?\s*(#.*)?$",
    re.IGNORECASE,
)
"""A line that any program prints, as a warning or a part of a traceback."""
_OWN = re.compile(
    rf"(step|epoch|iter(ation)?s?)[^a-z]{{0,4}}[0-9]|[0-9]%|[0-9](it/s|s/it)|{METRIC_LINE}",
    re.IGNORECASE,
)
"""A line of a training, with a step, a metric or a progress bar."""
_TRACEBACK = "Traceback (most recent call last):"
_SHOWN, _READ = 4000, 65536


def is_first(line: str) -> bool:
    """Whether a line is a training's own: no warning, and not of a traceback."""
    return bool(_OWN.search(line) and not _OTHER.search(line))


def await_output(run: RunFolder, seconds: float) -> None:
    """Wait until it has printed a line of a training, or is over. A queued run prints nothing
    yet."""
    began = now = time.monotonic()
    until = began if run.state() == QUEUED else began + seconds
    while now < until and not run.has("exit") and run.state() != DIED:
        lines = [line[:LONGEST] for line in re.split("[\0\r\n]", begin_of(run, _READ))]
        said = [line for line in lines if not _OTHER.search(line)]
        if any(map(_OWN.search, said)):
            break
        if said:
            until = min(until, now + 2)  # what fails at its start is over by then
        # Less often over time: the training that is starting needs the CPU.
        time.sleep(min(0.5, 0.01 + (now - began) / 5))
        now = time.monotonic()


def begin_of(run: RunFolder, most: int) -> str:
    try:
        with open(f"{run.path}/log", "rb") as log:
            return log.read(most).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def became(run: RunFolder) -> Iterator[str]:
    """Yield its state (`nothing` after it: no word and no result came of it), then its first
    output, or its last if it failed."""
    if not (run.has("exit") or run.state() == QUEUED):
        time.sleep(0.3)  # a failure at its start shows by then
        tries = 30
        # What printed a traceback takes its time to end: its threads, its GPU.
        while tries and not run.has("exit") and _TRACEBACK in begin_of(run, _READ):
            time.sleep(0.1)
            tries -= 1
    state, log = run.state(), run.stat("log")
    if state == "finished 0" and not (log and log.st_size):
        from ..results.run_results import MADE, read_record  # late: few print nothing

        tries, is_asked = 20, bool(run.first("results"))
        while is_asked and tries and not run.has(MADE):  # it is noted after the end
            time.sleep(0.1)
            tries -= 1
        record = read_record(f"{run.path}/{MADE}")
        is_made = is_asked and (record is None or bool(record.files))
        state = state if is_made else "finished 0 nothing"
    yield state
    failed = state.startswith("finished") and not state.startswith("finished 0")
    yield run.end("log", _SHOWN) if failed else begin_of(run, _SHOWN)


def show(run: RunFolder, seconds: float, mark: str) -> None:
    await_output(run, seconds)
    for part in (f"{begin_of(run, _SHOWN)}\n{mark}", *became(run)):
        os.write(1, f"{part}\n".encode("utf-8", "surrogateescape"))
