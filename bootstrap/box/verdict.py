"""Keep this box, or return it? `python box/verdict.py --order ORDER.json --out RESULT.json`.

The order has the keys of `checks.Order`; `judge.py` documents the result. Exit
code: 0 keep or warn, 6 return, 1 own error. Standard output gets the same in
lines for people and for sed: `verdict return`, `driver 550.54.15`, `cuda 12.4`,
`gpus 8`, then `reason OUTCOME CODE SENTENCE` and `advice SENTENCE`; with
`--out -` it gets the result alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True  # a look at the box leaves nothing behind
if not __package__:  # run as a file: PEP 366
    sys.path[0], __package__ = str(HERE.parent), HERE.name

from .checks import Order  # noqa: E402
from .judge import judge  # noqa: E402
from .problems import CRASH, HANG  # noqa: E402

LIMIT = 9.5  # seconds for all readings, so that a hang costs less than 10 in all


class OwnError(Exception):
    """The check itself could not be made."""


def read(limit: float) -> dict[str, Any]:
    """The facts, read by `nvml.py` in a process of its own; see there.

    A reader that hangs is killed and abandoned, never waited for: in the
    kernel's D state even SIGKILL has no effect.
    """
    reader = subprocess.Popen(
        [sys.executable, "-B", str(HERE / "nvml.py")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = reader.communicate(timeout=limit)
    except subprocess.TimeoutExpired as late:
        reader.kill()
        facts, asked, _ = assemble(late.output or b"")
        hang = HANG._replace(says=HANG.says.format(limit=limit, asked=asked))
        return {**facts, "stopped": hang}
    facts, asked, whole = assemble(out)
    if whole:
        return facts
    if reader.returncode < 0:
        return {**facts, "stopped": CRASH._replace(says=CRASH.says.format(asked=asked))}
    last = err.decode(errors="replace").strip().splitlines()[-1:]
    raise OwnError("the GPU reader failed: " + "".join(last))


def assemble(lines: bytes) -> tuple[dict[str, Any], str, bool]:
    """Facts from the reader's lines, what was last asked, and whether they are complete."""
    facts: dict[str, Any] = {"gpus": {}}
    asked, whole = "its start", False
    for line in lines.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        gpu, key, *value = json.loads(line)
        asked = key if gpu is None else f"{key} of GPU {gpu}"
        whole = key == "end"
        where = facts if gpu is None else facts["gpus"].setdefault(gpu, {"handle": None})
        if value:
            where[key] = value[0]
    return facts, asked, whole


def read_order(path: str) -> Order:
    """The order: a mapping with the keys of `Order`."""
    try:
        return Order(**json.loads(Path(path).read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise OwnError(f"the order {path} can't be read: {error}") from error


def summary(result: dict[str, Any]) -> str:
    """The result in lines, a word first in each."""
    lines = [f"verdict {result['verdict']}", f"gpus {len(result['gpus'])}"]
    lines += [f"{key} {result[key]}" for key in ("driver", "cuda") if result[key]]
    for reason in result["reasons"]:
        which = ", ".join(map(str, reason["gpus"]))
        says = f"GPU {which}: {reason['says']}" if which else reason["says"]
        lines.append(f"reason {reason['outcome']} {reason['code']} {says}")
        lines.append(f"advice {reason['advice']}")
    return "\n".join(lines) + "\n"


def write(result: dict[str, Any], out: str) -> None:
    """The document into its file, whole or not at all, and the lines to standard output."""
    text = json.dumps(result) + "\n"
    if out == "-":
        sys.stdout.write(text)
        return
    new = Path(f"{out}.new")
    new.write_text(text, "utf-8")
    new.replace(out)
    sys.stdout.write(summary(result))


def main() -> int:
    """Read, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", required=True, help="what was ordered, as JSON")
    parser.add_argument("--out", required=True, help="where the result goes; - is standard output")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for reading the GPUs")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        order = read_order(options.order)
        result = judge(read(options.limit), order, time.monotonic() - started)
        write(result, options.out)
    except OwnError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 6 if result["verdict"] == "return" else 0


if __name__ == "__main__":
    sys.exit(main())
