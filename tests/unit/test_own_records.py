"""A damaged record of boxstrap's own is left out, or named: never an internal error."""

import contextlib
import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bootstrap.boxes import Run, Uploaded
from bootstrap.boxes.at_home import RunAtHome, all_kept, note_seen
from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.fleet.sweep import Ledger, load_ledger, save_ledger
from bootstrap.link import BoxRepository, KnownBox, all_boxes, save_with_pin
from bootstrap.paths import state_dir
from bootstrap.renting.guard import read_count, write_count
from bootstrap.renting.rental import Rental, RentedHere, all_rentals, save_rental
from bootstrap.runs.known_runs import list_runs, run_rows
from bootstrap.value import document as printed
from tests.cli import User
from tests.faults.plugin import Drawn

BAD = [None, -1, 1 << 62, 10**400, "x", [1], {"a": 1}, [[0, 10**400]], [[], "x", 1, 1, 2, 3]]
BOX = KnownBox(
    "gpu", "root@192.0.2.1", created=5.0, seen=9e3, repositories=(BoxRepository("k-1"),), ends=4.0
)
RUN = Run("k-1", "train-1", "finished", 0, 9, "c", "w", "s", 9, 9, "python", begun=9, over=10)
RUN = Run(**{**vars(RUN), "uploaded": Uploaded("whole", 1, 2, 3, "x", "s3://b/c")})


def _runs(place: Path) -> None:
    listed = list_runs(place, None, every=True)
    run_rows(listed, 9.5e3, None, every=True)
    json.dumps(printed(listed))
    for kept in all_kept():
        kept.lines(), kept.log_tail(100), kept.text()
        assert not kept.run.uploaded or kept.run.uploaded.sentence()


def _boxes(_: Path) -> None:
    for box in all_boxes():
        box.end_words(9e3), time.localtime(box.created), time.localtime(box.seen)
        read_count(box)


def _rentals(_: Path) -> None:
    assert RentedHere({}, all_rentals(), 9e3).lines()


def _sweeps(_: Path) -> None:
    ledger = load_ledger(state_dir() / "sweeps" / "s.json")
    ledger.give_up(sorted({*ledger.boxes.values()}))
    assert all(cell.words is not None for cell in ledger.known_cells())


READERS: dict[str, Callable[[Path], None]] = {
    "runs": _runs,
    "boxes": lambda place: (_boxes(place), _runs(place))[0],
    "rentals": _rentals,
    "sweeps": _sweeps,
}


def _damaged(document: Any) -> Iterator[Any]:
    yield from BAD
    for key in document if isinstance(document, dict) else range(len(document)):
        parts = _damaged(document[key]) if isinstance(document[key], dict | list) else BAD
        for part in parts:
            made = copy.copy(document)
            made[key] = part
            yield made


@pytest.mark.slow  # thousands of records
@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_record_on_this_machine_never_causes_an_internal_error(
    kind: str, tmp_path: Path, drawn: Drawn[Any]
) -> None:
    assert save_with_pin(BOX, "", is_new=True)
    write_count(BOX, read_count(BOX))
    place = tmp_path / "log"
    place.mkdir()
    (place / "log").write_bytes(b"x" * 9)
    at_home = {"place": str(place), "log": ((0, 9),), "log_end": 9, "results": "home"}
    RunAtHome("gpu", 5.0, "h", RUN, seen=9e3, box_time=9, **at_home).save()  # type: ignore[arg-type]
    note_seen(BOX, [RUN], str, box_time=9000, keys={"k-1": "k-1"})
    save_rental(Rental("boxstrap-0123456789ab", "vast", asked=5.0))
    ledger = state_dir() / "sweeps" / "s.json"
    ledger.parent.mkdir()
    save_ledger(
        ledger, Ledger({"a": "gpu"}, ["x"], {"a": {"command": "c", "parameters": {"x": "1"}}})
    )
    read = READERS[kind]
    read(tmp_path)
    for file in (state_dir() / kind).rglob("*.json"):
        text = file.read_text()
        for damaged in drawn(_damaged(json.loads(text))):
            file.write_text(json.dumps(damaged))
            with contextlib.suppress(BoxstrapError):
                read(tmp_path)
        file.write_text(text)


def test_a_damaged_sweep_file_is_a_usage_error_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"boxes": {"a": 1}}')
    with pytest.raises(UsageError, match="can't be read") as caught:
        load_ledger(file)
    assert caught.value.where == str(file)


def test_wait_for_a_sweep_that_was_never_queued_exits_with_2(user: User) -> None:
    repository = user.repository()
    repository.write({"lr.yaml": "parameters: {lr: [0.1, 0.2]}\n"})
    said = user.run("wait", "--sweep", "lr.yaml").must(2)
    assert "no cell of lr is in a queue" in said.err
    assert "boxstrap run --sweep lr.yaml" in said.err


def test_runs_names_an_unreadable_run_record_and_lists_the_rest(user: User) -> None:
    repository = user.repository()
    file = user.home / ".local/state/boxstrap/runs" / "x.json"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_text('{"v": 1, "log_end": 1' + "0" * 400 + "}")
    said = user.run("runs", "--repo", str(repository.root)).must(0)
    assert f"{file} can't be read, so a run is left out" in said.err
