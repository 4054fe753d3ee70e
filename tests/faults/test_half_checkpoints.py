"""A spot box goes at some moment of a training whose checkpoints are written slowly, while
`pull --watch` brings them home: what goes on elsewhere is whole, or it is said what is not.

The box is this machine, and the seconds are shorter: a file counts after a twentieth of one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run
from bootstrap.boxes.at_home import RunAtHome
from bootstrap.errors import NotSafeError
from bootstrap.link import LinkLost, LocalWire, NoAnswer
from bootstrap.onbox.redact import Redactor
from bootstrap.renting.last_results import find_last_results
from bootstrap.runs.pull import _Pull
from bootstrap.transfer.puller import Puller
from tests.faults.plugin import Faults
from tests.unit.transfer.boxes import KEY, PLENTY, RUN, STOOD_S, ResultsHere

STEPS = 4
LAYOUTS = {
    "Hugging Face": (
        *(f"out/checkpoint-{{}}/{name}" for name in ("model.safetensors", "optimizer.pt")),
        *(f"out/checkpoint-{{}}/{name}" for name in ("rng_state_0.pth", "rng_state_1.pth")),
        "out/checkpoint-{}/trainer_state.json",
    ),
    "DeepSpeed": (
        "out/global_step{}/mp_rank_00_model_states.pt",
        *(f"out/global_step{{}}/zero_pp_rank_{rank}_optim_states.pt" for rank in (0, 1)),
        "out/latest",
    ),
    "Lightning": (
        "out/epoch={}.ckpt/checkpoint/mp_rank_00_model_states.pt",
        "out/epoch={}.ckpt/checkpoint/zero_pp_rank_0_optim_states.pt",
        "out/epoch={}.ckpt/latest",
        "out/last.ckpt",
    ),
}


class SlowTraining(threading.Thread):
    """Writes checkpoints, each file in two pieces, with pauses that are longer than one stands."""

    def __init__(self, tree: Path, layout: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.tree, self.layout, self.chance = tree, layout, chance
        self.over = threading.Event()
        self.written: dict[str, set[str]] = {}

    def run(self) -> None:
        for step in range(1, STEPS + 1):
            for part in LAYOUTS[self.layout]:
                if not self.over.is_set():
                    self.write(part.format(step), step)

    def write(self, name: str, step: int) -> None:
        path, content = self.tree / name, self.chance.randbytes(self.chance.choice([1, 400_000]))
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "out/latest":
            content = f"global_step{step}".encode()
        elif name == "out/last.ckpt":
            content = f"epoch={step}.ckpt".encode()
        with path.open("wb") as file:
            for piece in (content[: len(content) // 2], content[len(content) // 2 :]):
                file.write(piece)
                file.flush()
                self.over.wait(self.chance.uniform(0, 2 * STOOD_S))
        self.written.setdefault(name, set()).add(hashlib.sha256(content).hexdigest())
        self.over.wait(self.chance.uniform(0, 12 * STOOD_S))


def watch(box: ResultsHere) -> None:
    """Bring home what is complete, as `pull --watch` does, until the box is gone."""
    with box.landing() as landing, box.record() as record, box.source() as source:
        pull = object.__new__(_Pull)
        vars(pull).update(_landing=landing, _record=record, _source=source, _live=True)
        vars(pull).update(
            _run=SimpleNamespace(repo_key=KEY, name=RUN, commit="", snapshot="", typed=""),
            _box=SimpleNamespace(name="gpu", redactor=Redactor({})),
        )
        puller = pull._puller = Puller(landing, record, most=PLENTY)
        while True:
            done = puller.round(source, live=True, at_once=PLENTY)
            pull._land_manifest(pull._manifest(done))
            time.sleep(STOOD_S)


def try_once(
    folder: Path, layout: str, chance: random.Random
) -> tuple[set[str], dict[str, set[str]], list[str]]:
    """Return what arrived on the next box, what the first one wrote, and what was said."""
    wire = LocalWire()
    box = ResultsHere(folder / "box", folder / "home", wire)
    training = SlowTraining(box.tree, layout, chance)
    training.start()
    gone = threading.Timer(chance.uniform(0.4, STEPS * 1.2), wire.close)
    gone.start()
    with pytest.raises((LinkLost, NoAnswer, BrokenPipeError)):
        watch(box)
    training.over.set()
    training.join()
    run = Run(KEY, RUN, "running", None, 1, "c" * 40, "w", "train", 0, 12, "python x")
    before = RunAtHome("gpu", 1.0, "vast:1", run)
    before = dataclasses.replace(before, results="partly", result_place=str(box.home))
    said: list[str] = []
    screen: Any = SimpleNamespace(warn=said.append)
    train: Any = SimpleNamespace(results=("out/",), results_to=None)
    other, next_wire = folder / "next", LocalWire()
    there: Any = SimpleNamespace(
        link=next_wire,
        workdir=str(other),
        label="box",
        state=SimpleNamespace(repo_dir=str(other / "tree")),
    )
    try:
        find_last_results(before, None, train, folder, screen).send(there)
    except NotSafeError as error:
        said.append(error.what)
    finally:
        next_wire.close()
    tree = other / "tree"
    return (
        {str(one.relative_to(tree)) for one in tree.rglob("*") if one.is_file()},
        training.written,
        said,
    )


def halves(arrived: set[str], layout: str) -> Iterator[str]:
    """Yield each checkpoint of which only a part arrived, and each pointer to one."""
    parts = LAYOUTS[layout]
    for step in range(1, STEPS + 1):
        all_parts = {part.format(step) for part in parts if "{}" in part}
        if arrived & all_parts and not all_parts <= arrived:
            yield os.path.commonpath(all_parts)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_resumed_elsewhere_gets_whole_checkpoints_or_a_word_on_each_incomplete_one(
    layout: str,
    tmp_path: Path,
    seeded: random.Random,
    faults: Faults,
    request: pytest.FixtureRequest,
) -> None:
    for number in range(request.config.getoption("tries")):
        with faults.attempt("box gone, checkpoints come slowly", at=layout) as attempt:
            folder = tmp_path / str(number)
            arrived, written, said = try_once(folder, layout, seeded)
            tree = folder / "next/tree"
            for name in arrived:
                digest = hashlib.sha256((tree / name).read_bytes()).hexdigest()
                assert digest in written[name], name
                if name in ("out/latest", "out/last.ckpt"):
                    assert (tree / "out" / (tree / name).read_text()).is_dir(), said
            half = [*halves(arrived, layout)]
            for one in half:
                assert any(f"{one}/ is sent, but nothing shows" in words for words in said), said
            assert arrived or any("no whole results" in words for words in said), said
            attempt.outcome(
                "the first half: said" if half else "whole" if arrived else "nothing: said"
            )
