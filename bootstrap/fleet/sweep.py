"""A sweep: cells of a grid, of a list, or one command a line; each known by its content.

    command: python train.py ${args}      # default: that of the profile, with ${args} behind it
    parameters:
      lr: [1e-3, 3e-4]                    # as W&B's: also {values: [...]}, {value: 3}
      seed: [0, 1, 2]

What became of each cell, and which box has it, is in the boxes' own runs: a cell's run has its name
(`lr-3f2a91c4-1`). What this machine notes beside that is which box a cell was given to before that
box was asked, so that a cell of a box that can't be reached is in one queue only.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap.boxes.run import cell_words
from bootstrap.errors import UsageError, write_error
from bootstrap.paths import (
    make_private,
    read_record,
    read_regular,
    refuse_to_leave,
    sweeps_dir,
    write_private,
)
from bootstrap.profile.yaml_source import Items, Keys, Scalar, read_yaml
from bootstrap.value import Document

_MOST_CELLS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_PARAMETER = re.compile(r"[A-Za-z_][\w.-]*")
_FILLED = re.compile(r"\$\{(envvar:)?([A-Za-z_][\w.-]*)\}")
_ARGS = re.compile(r"\$\{(args(?:_\w+)?)\}")
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,300})(\.\d+)?([eE][+-]?\d{1,2})?")
_BOOLEANS = {"true": True, "false": False}
_OF_ITS_SERVER = ("project", "entity", "description")
"""What W&B's server is told of a sweep; it changes no cell."""
_KEYS = ("name", "command", "program", "method", "metric", "parameters", "cells", *_OF_ITS_SERVER)
_OF_WANDB = {"env": "/usr/bin/env", "interpreter": "python"}


@dataclass(frozen=True)
class Cell(Document):
    """One command of a sweep with its parameters."""

    KEYS = "cell=key, command, parameters"

    command: str  # "" for the profile's, with the parameters behind it
    parameters: Mapping[str, str]
    key: str  # digest of both: the same cell has the same key, wherever it is in its file

    @classmethod
    def of(cls, command: str, parameters: Mapping[str, str], copy: int = 0) -> Cell:
        """Return a cell; `copy` counts the same ones before it."""
        said = json.dumps([command, sorted(parameters.items()), *([copy] if copy else [])])
        return cls(command, parameters, hashlib.sha256(said.encode()).hexdigest()[:8])

    def filled(self, default: str) -> str:
        """Return the command with the parameters in it; `default` is the profile's."""
        command = self.command or default
        if self.parameters and not self.command:
            command += " ${args}"
        values = {name: shlex.quote(value) for name, value in self.parameters.items()}
        known = {**_OF_WANDB, **self._args(), **values}
        self._refuse_unused(command, known)

        def fill(found: re.Match[str]) -> str:
            return f'"${{{found[2]}}}"' if found[1] else known.get(found[2], found[0])

        return _FILLED.sub(fill, command)

    def _args(self) -> dict[str, str]:
        names = [*self.parameters]
        plain = [f"{name}={value}" for name, value in self.parameters.items()]
        flags: list[str] = []
        nested: dict[str, Any] = {}
        clash = any(part.startswith(f"{one}.") for one in names for part in names)
        for name, text in self.parameters.items():
            value = (
                json.loads(text) if _NUMBER.fullmatch(text) else _BOOLEANS.get(text.lower(), text)
            )
            if value is not False:
                flags.append(f"--{name}" if value is True else f"--{name}={text}")
            *outer, last = [name] if clash else name.split(".")
            place: dict[str, Any] = nested
            for each in outer:
                place = place.setdefault(each, {})
            place[last] = value
        return {
            "args": shlex.join(f"--{each}" for each in plain),
            "args_no_hyphens": shlex.join(plain),
            "args_no_boolean_flags": shlex.join(flags),
            "args_json": shlex.quote(json.dumps(nested)),
        }

    def _refuse_unused(self, command: str, known: Mapping[str, str]) -> None:
        """Raise UsageError if the command takes not all parameters: cells would be the same."""
        args = set(_ARGS.findall(command))
        if wrong := sorted(args - {*known}):
            raise UsageError(
                f"the sweep's command: ${{{wrong[0]}}} can't be filled in here.",
                hint="There are ${args}, ${args_no_hyphens}, ${args_no_boolean_flags}, "
                "${args_json}, and each parameter by its name.",
            )
        named = {found[2] for found in _FILLED.finditer(command) if not found[1]}
        unused = [name for name in self.parameters if name not in named]
        if unused and not args:
            raise UsageError(
                f"the sweep's command doesn't take {unused[0]}: {command}",
                hint=f"Add ${{args}} for all parameters, or ${{{unused[0]}}} for this one.",
            )

    @property
    def words(self) -> str:
        """How it is called: `lr=3e-1,seed=1`."""
        return cell_words(self.parameters)


@dataclass(frozen=True)
class DealtCell(Document):
    """A cell of a sweep, and the box and GPUs whose queue has it."""

    KEYS = "**cell, box, gpus? or None"

    cell: Cell
    box: str
    gpus: str | None = None


@dataclass(frozen=True)
class Sweep:
    """The cells of a file, each once, in its order."""

    name: str
    cells: tuple[Cell, ...]
    metric: str = ""  # the metric by which the best cell is chosen; "" if the file names none
    least: bool = True  # whether less of it is better

    def session(self, cell: Cell) -> str:
        return f"{self.name}-{cell.key}"

    def commands(self, default: str) -> dict[str, str]:
        """Return the command of each cell by its key. Raises UsageError if one has none."""
        if not default and not all(cell.command for cell in self.cells):
            raise UsageError(
                "which command? Neither the sweep nor the profile has one.",
                hint="As in:\n  command: python train.py ${args}",
            )
        return {cell.key: cell.filled(default) for cell in self.cells}

    def key_of(self, run: str) -> str:
        """Return the key of the cell that a run is of, by the run's name; "" if it is of none."""
        found = re.fullmatch(rf"{re.escape(self.name)}-([0-9a-f]{{8}})-[0-9]+", run)
        return found[1] if found else ""


def read_sweep(file: Path) -> Sweep:
    """Read the cells of a file: YAML if its name says so, else one command a line. Raises
    UsageError with file and line for what is no sweep."""
    try:
        refuse_to_leave(file)
        if file.suffix.lower() in (".yaml", ".yml"):
            return _of_yaml(file)
        lines = read_regular(file).decode("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(f"it can't be read: {error.strerror}.", where=str(file)) from None
    given = (line.strip() for line in lines)
    commands = [line for line in given if line and not line.startswith("#")]
    return _sweep(_named(file.stem, file), [(command, {}) for command in commands], file)


def _of_yaml(file: Path) -> Sweep:
    yaml = read_yaml(file, str(file))
    wrong = [problem.message for problem in yaml.problems]
    keys = {name.text: value for name, value in yaml.keys.entries}
    wrong += [f"line {name.line}: there is no key {name.text}; there are: {', '.join(_KEYS)}"
              for name, _ in yaml.keys.entries if name.text not in _KEYS]  # fmt: skip
    if wrong:
        raise UsageError(wrong[0], where=str(file))
    method = _text(keys.get("method"), "grid", file)
    if method != "grid":
        raise UsageError(
            f"method: {method} makes each cell from earlier ones; here all are known before.",
            where=str(file),
            hint="Let W&B deal it out: boxstrap run --hosts GROUP --each-gpu -- wandb agent SWEEP",
        )
    name = _named(_text(keys.get("name"), file.stem, file), file)
    command = _command(keys, file)
    cells: list[tuple[str, Mapping[str, str]]] = []
    if isinstance(listed := keys.get("cells"), Items):
        for item in listed.items:
            if not isinstance(item, Keys):
                raise UsageError("each of cells is a mapping, as in {lr: 1e-3}.", where=str(file))
            cells.append((command, {_parameter(key, file): _one(value, key, file)
                                    for key, value in item.entries}))  # fmt: skip
    elif isinstance(grid := keys.get("parameters"), Keys) and grid.entries:
        given = dict(_grid(grid, file))
        for point in itertools.product(*given.values()):
            cells.append((command, dict(zip(given, point, strict=True))))
            if len(cells) > _MOST_CELLS:
                break
    metric, least = _metric(keys.get("metric"), file)
    return _sweep(name, cells, file, metric, least=least)


def _sweep(
    name: str,
    cells: Sequence[tuple[str, Mapping[str, str]]],
    file: Path,
    metric: str = "",
    *,
    least: bool = True,
) -> Sweep:
    if not 0 < len(cells) <= _MOST_CELLS:
        what = f"more than {_MOST_CELLS} cells are too many" if cells else "it has no cells"
        hint = "As in:\n  parameters:\n    lr: [1e-3, 3e-4]\n    seed: [0, 1, 2]"
        raise UsageError(f"{what}.", where=str(file), hint="" if cells else hint)
    seen: Counter[str] = Counter()
    found = []
    for command, parameters in cells:
        first = Cell.of(command, parameters).key
        found.append(Cell.of(command, parameters, seen[first]))
        seen[first] += 1
    return Sweep(name, tuple(found), metric, least)


def _named(name: str, file: Path) -> str:
    if _NAME.fullmatch(name):
        return name
    raise UsageError(
        f"{name!r} can't be a sweep's name.",
        where=str(file),
        hint="Give it one with name: letters, digits, _ and -, 40 at most.",
    )


def _command(keys: Mapping[str, object], file: Path) -> str:
    given = keys.get("command")
    program = _text(keys.get("program"), "", file)
    if isinstance(given, Items):
        words = [_word(each, file) for each in given.items]
        return " ".join(words).replace("${program}", shlex.quote(program))
    if given is not None:
        return _text(given, "", file).replace("${program}", shlex.quote(program))
    return f"python {shlex.quote(program)} ${{args}}" if program else ""


def _word(item: object, file: Path) -> str:
    """Return an item of a command's list for the shell: as W&B's, one argument."""
    text = _text(item, "", file)
    if not _ARGS.fullmatch(text) and (inside := _ARGS.search(text)):
        raise UsageError(
            f"{text!r} is one argument, and ${{{inside[1]}}} is several.",
            where=str(file),
            hint="Write the command as a text instead of a list, or each word as an item.",
        )
    ends = [0, *(end for found in _FILLED.finditer(text) for end in found.span()), len(text)]
    parts = [text[begin:end] for begin, end in itertools.pairwise(ends)]
    quoted = (part if _FILLED.fullmatch(part) else part and shlex.quote(part) for part in parts)
    return "".join(quoted) or "''"


def _grid(grid: Keys, file: Path, outer: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each parameter with its values; one of a nested mapping is named `outer.inner`."""
    for key, value in grid.entries:
        name = outer + _parameter(key, file)
        inner = value.entries if isinstance(value, Keys) else ()
        nested = next((each for word, each in inner if word.text == "parameters"), None)
        if isinstance(nested, Keys) and len(inner) == 1:
            yield from _grid(nested, file, f"{name}.")
        else:
            yield name, _values(value, key, file)


def _parameter(key: Scalar, file: Path) -> str:
    if _PARAMETER.fullmatch(key.text):
        return key.text
    raise UsageError(f"line {key.line}: {key.text!r} can't be a parameter's name.", where=str(file))


def _values(value: object, key: Scalar, file: Path) -> list[str]:
    if isinstance(value, Keys):
        entries = {name.text: each for name, each in value.entries}
        kind = _text(entries.pop("distribution", None), "", file)
        if "values" in entries and kind in ("", "categorical"):
            value = entries["values"]
        elif set(entries) == {"value"} and kind in ("", "constant"):
            return [_one(entries["value"], key, file)]
    if isinstance(value, Items) and value.items:
        return [_one(each, key, file) for each in value.items]
    raise UsageError(
        f"line {key.line}: {key.text} needs a list of values, as in [1e-3, 3e-4].", where=str(file)
    )


def _one(value: object, key: Scalar, file: Path) -> str:
    """Return a value as it is written: `1e-3` stays that."""
    if isinstance(value, Scalar) and "\n" not in value.text and "\0" not in value.text:
        return value.text
    raise UsageError(f"line {key.line}: a value of {key.text} is no single value.", where=str(file))


def _text(value: object, default: str, file: Path) -> str:
    if value is None:
        return default
    if isinstance(value, Scalar) and "\0" not in value.text:
        return value.text
    raise UsageError("command, program, name and method are texts.", where=str(file))


def _metric(value: object, file: Path) -> tuple[str, bool]:
    if value is None:
        return "", True
    if isinstance(value, Scalar):
        return value.text, True
    entries = dict(_pairs(value))
    goal = entries.get("goal", "minimize")
    if set(entries) - {"name", "goal", "target"} or "name" not in entries or goal not in _GOALS:
        raise UsageError(
            "metric is a name, or {name: …, goal: minimize or maximize}.", where=str(file)
        )
    return entries["name"], goal == "minimize"


_GOALS = ("minimize", "maximize")


def _pairs(value: object) -> Iterator[tuple[str, str]]:
    for key, each in value.entries if isinstance(value, Keys) else ():
        if isinstance(each, Scalar):
            yield key.text, each.text


@dataclass(frozen=True)
class CellRun:
    """A run of a cell, as its box told last."""

    key: str
    box: str
    run: str
    state: str
    """done (it ended with 0), failed, live (it runs, or waits for its turn), stalled (it waits, and
    its box was restarted since), unknown (it was live, and its box can't be reached)."""


@dataclass
class Ledger:
    """Which box each cell of a sweep was given to, and which boxes were given up."""

    boxes: dict[str, str] = field(default_factory=dict)
    """Box by cell, noted before the box is asked."""
    given_up: list[str] = field(default_factory=list)
    cells: dict[str, dict[str, object]] = field(default_factory=dict)
    """Command and parameters by key, of all cells that the sweep ever had."""

    def give_up(self, names: Sequence[str]) -> None:
        """Let others have the cells of these boxes. Raises UsageError for a box that has none."""
        for name in names:
            if name not in self.boxes.values():
                there = ", ".join(sorted({*self.boxes.values()})) or "none yet"
                raise UsageError(f"{name} was given no cell of this sweep; these were: {there}.")
        self.given_up = sorted({*self.given_up, *names})

    def known_cells(self) -> tuple[Cell, ...]:
        found = []
        for key, cell in self.cells.items():
            given = cell.get("parameters")
            pairs = given.items() if isinstance(given, dict) else ()
            parameters = {name: str(value) for name, value in pairs}
            found.append(Cell(str(cell.get("command", "")), parameters, key))
        return tuple(found)

    def note(self, sweep: Sweep) -> None:
        for cell in sweep.cells:
            self.cells[cell.key] = {"command": cell.command, "parameters": {**cell.parameters}}


def ledger_file(repository: str, sweep: str) -> Path:
    return sweeps_dir() / f"{repository or 'none'}-{sweep}.json"


def load_ledger(file: Path) -> Ledger:
    """Read it; an empty one if there is none. Raises UsageError if it can't be read."""
    from pydantic import TypeAdapter  # not at the top: it is heavy

    try:
        return TypeAdapter(Ledger).validate_python(read_record(file))
    except FileNotFoundError:
        return Ledger()
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"what is known of this sweep can't be read: {error}",
            where=str(file),
            hint="Without it nothing says which box has which cell. If none is queued anywhere, "
            "remove the file.",
        ) from None


@contextmanager
def held_ledger(file: Path) -> Iterator[Ledger]:
    """Yield it while no other call deals out cells of this sweep; save it at the end of each step
    with `save_ledger`. Raises UsageError if another call does."""
    try:
        make_private(file.parent)
        with file.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError("another call is dealing out this sweep; wait for that.") from None
            yield load_ledger(file)
    except OSError as error:
        raise write_error(file, error) from error


def save_ledger(file: Path, ledger: Ledger) -> None:
    """Write it. Raises BoxstrapError."""
    try:
        write_private(file, json.dumps(vars(ledger), indent=1))
    except OSError as error:
        raise write_error(file, error) from error


Lane = tuple[str, str]
"""A box, and the GPUs of it that one cell at a time gets, as in `0`; "" for all."""


@dataclass(frozen=True)
class Dealt(Document):
    """The cells of a sweep by what is done with them; `held` are those of a box not reached."""

    KEYS = "name=sweep.name, cells=count, finished=done, live, queued, held=kept"

    sweep: Sweep
    given: tuple[tuple[Cell, Lane], ...]
    done: tuple[Cell, ...]
    live: tuple[Cell, ...]
    held: tuple[tuple[Cell, str], ...]  # cells of boxes that can't be reached, which keep them
    taken_out: tuple[CellRun, ...] = ()
    """Queued runs whose cells are queued anew, which wakes the rest of their box's queue."""
    failed: int = 0  # of those in `given`, the cells that have failed before

    @property
    def count(self) -> int:
        return len(self.sweep.cells)

    @property
    def queued(self) -> list[DealtCell]:
        return [DealtCell(cell, box, gpus) for cell, (box, gpus) in self.given]

    @property
    def kept(self) -> list[DealtCell]:
        return [DealtCell(cell, box) for cell, box in self.held]


def deal(
    sweep: Sweep,
    runs: Sequence[CellRun],
    ledger: Ledger,
    lanes: Sequence[Lane],
    unreached: Collection[str],
) -> Dealt:
    """Decide which cells are queued where: those without a finished or a live run, and of no box in
    `unreached`; each to the lane with the fewest, first to the box that it was given to before.

    Only that box's runs of a cell count: any other could name a run like one of the sweep's.
    """
    of_cell: dict[str, list[CellRun]] = {}
    for run in runs:
        if ledger.boxes.get(run.key) == run.box:
            of_cell.setdefault(run.key, []).append(run)
    load = dict.fromkeys(lanes, 0)
    done, live, held, free = [], [], [], []
    for cell in sweep.cells:
        states = {run.state: run.box for run in of_cell.get(cell.key, ())}
        before = ledger.boxes.get(cell.key, "")
        if "done" in states:
            done.append(cell)
        elif box := states.get("live") or states.get("stalled"):
            live.append(cell)
            for lane in [each for each in lanes if each[0] == box][:1]:
                load[lane] += 1
        elif "unknown" in states or before in unreached:
            held.append((cell, states.get("unknown", before)))
        else:
            free.append(cell)
    given = []
    for cell in free:
        before = ledger.boxes.get(cell.key, "")
        if lanes:
            lane = min(lanes, key=lambda each: (load[each], each[0] != before))
            load[lane] += 1
            given.append((cell, lane))
    taken_out = []
    for run in [one for cell in live for one in of_cell[cell.key] if one.state == "stalled"]:
        there = [lane for lane in lanes if lane[0] == run.box]
        if there and not any(lane[0] == run.box for _, lane in given):
            cell = next(one for one in live if one.key == run.key)
            live.remove(cell)
            given.append((cell, there[0]))
            taken_out.append(run)
    failed = sum(any(run.state == "failed" for run in of_cell.get(c.key, ())) for c, _ in given)
    return Dealt(
        sweep, tuple(given), tuple(done), tuple(live), tuple(held), tuple(taken_out), failed
    )
