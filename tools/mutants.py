"""`make mutants`: faults put in on purpose, and whether the nearest tests go red.

A seed draws them from what destroys, sends, pays or hides, as many from each area. Each is put
into a copy of this checkout, one at a time, and the tests of its area are run: a mutant that they
pass is a survivor, unless it is listed as one that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[1]
COPIED = ("bootstrap", "templates", "profiles", "tests", "docs", "pyproject.toml")
SECONDS = 120
"""What the tests of one mutant may take: those that don't end are counted apart from red ones."""


class Area(NamedTuple):
    """Files of the package, and the tests nearest to them."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


_RENTING = "tests/unit/renting/test"
_TRANSFER = ("landing", "links", "puller", "receipt")
AREAS = {
    "teardown": Area(
        ("renting/teardown.py", "renting/loss_check.py"),
        (f"{_RENTING}_teardown.py", "tests/providers/test_down.py"),
    ),
    "transfer": Area(
        ("transfer/destination.py", "transfer/puller.py", "transfer/manifest.py"),
        tuple(f"tests/unit/transfer/test_{name}.py" for name in _TRANSFER),
    ),
    "redaction": Area(
        ("onbox/redact.py", "sanitize.py"),
        ("tests/unit/test_sanitize.py", "tests/unit/onbox/test_redact.py"),
    ),
    "consent": Area(
        ("profile/consent.py",),
        ("tests/unit/profile/test_consent.py", "tests/unit/setup/test_payload.py"),
    ),
    "run state": Area(
        ("boxes/run.py",),
        (
            *(f"tests/unit/{name}.py" for name in ("setup/test_result", "boxes/test_readers")),
            "tests/unit/boxes/test_run_lines.py",
            *("tests/unit/boxes/test_probe.py", "tests/unit/boxes/test_selection.py"),
            *("tests/unit/boxes/test_run_lines.py", "tests/unit/runs/test_known_runs.py"),
        ),
    ),
    "lease": Area(
        ("onbox/lease/rules.py",),
        ("tests/unit/onbox/test_lease.py", "tests/unit/onbox/test_lease_activity.py"),
    ),
    "quarantine": Area(("repo/quarantine.py",), ("tests/unit/repo/test_quarantine.py",)),
    "money": Area(("renting/money.py",), (f"{_RENTING}_money.py",)),
}
SAME = {
    "bootstrap/onbox/lease/rules.py: max(0.0, tick.at - tick.since)"
    " -> max(tick.at - tick.since, 0.0)": "the greater of two, in any order",
    "bootstrap/boxes/run.py: max(0, now - (self.begun or self.started))"
    " -> max(now - (self.begun or self.started), 0)": "the greater of two, in any order",
    "bootstrap/sanitize.py: max(0, len(text) - _LONGEST)"
    " -> max(len(text) - _LONGEST, 0)": "the greater of two, in any order",
}
"""Mutants that change nothing a test could see, as they are printed without their line, and why."""
_TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip


class Mutant(NamedTuple):
    """A piece of a file, and what stands there instead."""

    file: str
    line: int
    begin: int
    end: int
    """Bytes of the file."""
    instead: str

    def mutated(self) -> bytes:
        """Return the file with the fault."""
        text = (HERE / self.file).read_bytes()
        return text[: self.begin] + self.instead.encode() + text[self.end :]

    def __str__(self) -> str:
        was = (HERE / self.file).read_bytes()[self.begin : self.end].decode()
        return f"{self.file}: {' '.join(was.split())} -> {' '.join(self.instead.split())}"


def faults(node: ast.AST, text: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield what can stand in the place of a node: a turned condition, a number one off, a call
    that is gone, arguments that changed places."""

    def said(part: ast.AST) -> str:
        return ast.get_source_segment(text, part) or ""

    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _TURNED:
            yield node, f"({said(left)} {_TURNED[type(op)]} {said(right)})"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield node, f"({word.join(f'({said(each)})' for each in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"bool({said(operand)})"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({said(test)}))"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.Call(func=func, args=[first, second, *rest], keywords=[]):
            yield node, f"{said(func)}({', '.join(map(said, (second, first, *rest)))})"


def candidates(name: str) -> list[Mutant]:
    """Return all the faults of the functions of a file of the package."""
    file = f"bootstrap/{name}"
    text = (HERE / file).read_text()
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for node in (node for part in function.body for node in ast.walk(part)):
                for at, instead in faults(node, text):
                    begin = starts[at.lineno - 1] + at.col_offset
                    end = starts[(at.end_lineno or 0) - 1] + (at.end_col_offset or 0)
                    found.add(Mutant(file, at.lineno, begin, end, instead))
    return sorted(found)


def draw(seed: int, count: int) -> list[tuple[str, Mutant]]:
    """Draw as many from each area; of one area the same ones, whichever others are asked for."""
    drawn = []
    for number, (name, area) in enumerate(AREAS.items()):
        every = [one for file in area.files for one in candidates(file)]
        part = count // len(AREAS) + (number < count % len(AREAS))
        drawn += [(name, one) for one in random.Random(f"{seed} {name}").sample(every, part)]
    return drawn


def outcome(tree: Path, tests: tuple[str, ...]) -> str:
    """Run tests in a copy."""
    run = [sys.executable, "-m", "pytest", "-qx", "-p", "no:xdist", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*run, "-m", "not boxes", "-o", f"faulthandler_timeout={2 * SECONDS}", *tests],
            cwd=tree,
            env=env,
            timeout=SECONDS,
            capture_output=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no end"
    return "red" if done.returncode else "survived"


def make_tree(folder: Path) -> Path:
    """Copy what the tests need: a repository, as the checkout is."""
    folder.mkdir()
    me = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init", "-q"), (*me, "commit", "-q", "--allow-empty", "-m", "Copied")):
        subprocess.run(["git", "-C", folder, *words], check=True)
    (folder / ".venv").symlink_to(HERE / ".venv")
    for name in COPIED:
        copy = shutil.copytree if (HERE / name).is_dir() else shutil.copy
        copy(HERE / name, folder / name)
    return folder


def main() -> int:
    """Draw, try, and print what survived; 1 where something did that isn't explained."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--area", choices=AREAS, action="append")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    areas = chosen.area or list(AREAS)
    drawn = [each for each in draw(chosen.seed, chosen.count) if each[0] in areas]
    free: Queue[Path] = Queue()

    def attempt(area: str, mutant: Mutant | None) -> str:
        if mutant and str(mutant) in SAME:
            return "explained"
        tree = free.get()
        try:
            if mutant:
                (tree / mutant.file).write_bytes(mutant.mutated())
            return outcome(tree, AREAS[area].tests)
        finally:
            if mutant:
                shutil.copy(HERE / mutant.file, tree / mutant.file)
            free.put(tree)

    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ThreadPoolExecutor(chosen.workers) as pool,
    ):
        for number in range(chosen.workers):
            free.put(make_tree(Path(folder, str(number))))
        for area, what in zip(
            areas, pool.map(lambda area: attempt(area, None), areas), strict=True
        ):
            if what != "survived":
                parser.error(f"the tests of {area} without a mutant: {what}")
        outcomes = []
        for (area, mutant), what in zip(
            drawn, pool.map(lambda each: attempt(*each), drawn), strict=True
        ):
            outcomes.append(what)
            print(f"{what:9} {area:10} {mutant.line:4} {mutant}", flush=True)
    counts = ", ".join(
        f"{outcomes.count(what)} {what}" for what in ("red", "no end", "explained", "survived")
    )
    print(f"seed {chosen.seed}: {len(outcomes)} drawn, {counts}")
    return int("survived" in outcomes)


if __name__ == "__main__":
    sys.exit(main())
