"""A receipt shows that nothing would be lost; a manifest is taken whole or not at all."""

import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.boxes.receipt import (
    check_receipt,
    fuller_place,
    note_name,
    receipt_file,
    write_receipt,
)
from bootstrap.link import LocalWire
from bootstrap.transfer.destination import DEEPEST, HomeFile
from bootstrap.transfer.manifest import (
    ListedFile,
    Manifest,
    PulledFile,
    PulledRecord,
    RunOrigin,
    read_manifest,
    recorded_digests,
)
from tests.unit.transfer.boxes import KEY, RUN, ResultsHere, SaidResults

ORIGIN = RunOrigin("my-box", KEY, RUN, "c" * 40)
NAMES = ("my-box", KEY, RUN)
Made = tuple[ResultsHere, Manifest, Path]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Two results that were pulled, their manifest and their receipt."""
    monkeypatch.setattr("bootstrap.boxes.secrets.state_dir", lambda: tmp_path / "state")
    box = ResultsHere(tmp_path / "box", tmp_path / "home", LocalWire())
    (box.home / "out").mkdir(parents=True)
    (box.home / "out/b").write_text("mine")
    with box.pulling() as puller:
        look = puller.round(SaidResults(("out/a", ""), ("out/b", "")), live=False).look
    manifest = Manifest(ORIGIN, ["out/"], dict(box.record().files), frozenset(look.files))
    file = receipt_file(tmp_path / "known", KEY, RUN)
    write_receipt(file, manifest, box.home)
    return box, manifest, file


def test_a_pull_receipts_check_names_each_file_that_differs_here_or_there(made: Made) -> None:
    box, manifest, file = made
    present = manifest.present()
    assert {path: size for path, (size, _) in present.items()} == {"out/a": 5, "out/b": 5}
    assert check_receipt(file, NAMES, present, {}) == []
    other = {**present, "out/a": (1, "0" * 64), "out/c": (3, "0" * 64)}
    assert check_receipt(file, NAMES, other, {}) == [
        "out/a: the box has a different file than was pulled",
        "out/c: was never pulled",
    ]
    # What the box has no more is here: a clean removed it there.
    assert check_receipt(file, NAMES, {"out/a": present["out/a"]}, {}) == []
    lost = ["out/b: the file here is not what was pulled"]
    (box.home / "out/b.from-train-1").write_text("33")
    assert check_receipt(file, NAMES, present, {}) == lost
    (box.home / "out/b.from-train-1").unlink()
    assert check_receipt(file, NAMES, present, {}) == lost
    box.home.rename(box.home.with_name("moved"))
    assert check_receipt(file, NAMES, present, {}) == [f"{box.home} is not there any more"]


NONE = ["this machine has no receipt for the run"]


def test_a_forged_or_changed_pull_receipt_counts_as_no_receipt(made: Made, tmp_path: Path) -> None:
    _, manifest, file = made
    present = manifest.present()
    body = json.loads(file.read_text())
    assert check_receipt(file, ("other-box", KEY, RUN), present, {}) == [
        "the receipt is for another run"
    ]
    for changed in (
        {**body, "files": {}},
        {**body, "place": "/"},
        {**body, "mac": "0" * 64},
        {**body, "mac": None},
        {**body, "mac": "\udcff"},
        {key: value for key, value in body.items() if key != "mac"},
        [body],
        7,
    ):
        file.write_text(json.dumps(changed))
        assert check_receipt(file, NAMES, present, {}) == NONE
    file.write_text(json.dumps(body))
    assert check_receipt(file, NAMES, present, {}) == []
    (tmp_path / "state/secrets.key").unlink()  # as if on another machine
    assert check_receipt(file, NAMES, present, {}) == NONE
    file.unlink()
    assert check_receipt(file, NAMES, present, {}) == NONE


def test_the_check_of_a_pull_receipt_accepts_an_earlier_name_of_its_box(made: Made) -> None:
    _, manifest, file = made
    folder, present = file.parents[2], manifest.present()
    note_name(folder, "other-box", "nina")
    assert check_receipt(file, NAMES, present, {}) == []
    note_name(folder, "my-box", "nina")
    assert check_receipt(file, ("nina", KEY, RUN), present, {}) == []
    file.write_text(file.read_text().replace('"live":false', '"live":true'))
    note_name(folder, "nina", "my-box")
    assert check_receipt(file, NAMES, present, {}) == NONE


def test_the_check_of_a_pull_receipt_names_a_file_that_was_never_pulled(made: Made) -> None:
    box, manifest, file = made
    present = manifest.present()
    more = {**present, "out/c": (1, "0" * 64)}
    missing = Manifest(**{**vars(manifest), "missing": {"out/c": "held"}})
    write_receipt(file, missing, box.home)
    assert check_receipt(file, NAMES, more, {}) == ["out/c: was never pulled"]
    write_receipt(file, Manifest(**{**vars(manifest), "live": True}), box.home)
    assert check_receipt(file, NAMES, more, {}) == ["out/c: was never pulled"]


def test_the_pull_manifest_says_which_files_came_from_which_box_and_run(made: Made) -> None:
    _, manifest, _ = made
    document = json.loads(manifest.text())
    assert (document["v"], document["run"], document["box"]) == (1, RUN, "my-box")
    assert document["complete"]
    assert [row["path"] for row in document["files"]] == ["out/a", "out/b"]
    assert document["files"][1]["here"] == "out/b.from-train-1"
    gone = Manifest(**{**vars(manifest), "on_box": frozenset({"out/a"})})
    assert json.loads(gone.text())["files"][1]["on_box"] is False


@pytest.mark.slow
def test_a_pull_manifest_of_many_files_is_written_fast(made: Made) -> None:
    """A set made anew for each file took a minute for 20,000, at each pull."""
    box, manifest, file = made
    ((_, one), *_) = manifest.files.items()
    files = {f"out/{number}": one for number in range(20_000)}
    many = Manifest(ORIGIN, ["out/"], files, frozenset(files), made=files.keys())
    began = time.process_time()
    many.text()
    write_receipt(file, many, box.home)
    assert time.process_time() - began < 5  # it is a tenth of that, and was a hundred seconds


def test_the_folder_of_pull_records_is_private_to_the_user(tmp_path: Path) -> None:
    with PulledRecord(tmp_path / "pulls" / "run"):
        assert (tmp_path / "pulls").stat().st_mode & 0o777 == 0o700


def test_a_damaged_row_of_a_pull_record_is_skipped_and_others_are_read(tmp_path: Path) -> None:
    """They decide which file of a run may go on elsewhere: a row that is half written is none."""
    file = tmp_path / "record"
    assert recorded_digests(file) == {}
    rows = [["a", [1], "x", "a", [1]], ["a", [2], "y", "a", [2]], ["b", [1], "z", "b.from-1", [1]]]
    damaged = ["{", "[]", "7", "[" * 100_000, '["c",[1],"x"']
    file.write_text("\n".join([*map(json.dumps, (rows[:1], rows[1:])), *damaged]))
    assert recorded_digests(file) == {"a": {"x", "y"}}


def test_a_pull_of_fewer_files_into_another_folder_does_not_replace_the_fuller_receipt(
    made: Made, tmp_path: Path
) -> None:
    box, manifest, file = made
    less = replace(manifest, files={"out/a": manifest.files["out/a"]})
    assert fuller_place(file, less, tmp_path / "elsewhere") == box.home
    assert fuller_place(file, less, box.home) is None
    assert fuller_place(file, manifest, tmp_path / "elsewhere") is None
    box.home.rename(tmp_path / "moved")
    assert fuller_place(file, less, tmp_path / "elsewhere") is None


SHA = "0123456789abcdef" * 4


def listing(*paths: str, **row: object) -> dict[str, object]:
    return {"files": [{"path": path, "sha256": SHA, **row} for path in paths]}


def test_a_results_manifest_is_read_with_its_files_and_missing_entries() -> None:
    document = {**listing("out/a", "out/b/c", size=5), "missing": {"d": "no room"}, "live": True}
    found = read_manifest(json.dumps({**document, "ended": "interrupted ec2 1 2"}).encode())
    assert found.files["out/b/c"] == ListedFile("out/b/c", SHA, 5, here=True)
    assert (found.missing, found.live) == ({"d": "no room"}, True)
    assert found.ended == "interrupted ec2 1 2"
    assert not read_manifest(json.dumps(listing("a", here="b")).encode()).files["a"].here


@pytest.mark.parametrize(
    "document",
    [
        *("", "[]", "{}", "{", "[" * 100_000, "\xff", '{"files": {}}', '{"files": [1]}'),
        *('{"files": [{}]}', '{"files": [[]]}', '{"files": [{"path": "a"}]}'),
        '{"files": [{"path": "a", "sha256": ' + f'"{SHA}", "size": 1e999}}]}}',
        '{"files": [{"path": "a", "sha256": ' + f'"{SHA}", "size": NaN}}]}}',
        json.dumps(listing("a", size="5")),
        json.dumps(listing("a", size=-1)),
        json.dumps(listing("a", size=True)),
        json.dumps(listing("a", size=10**30)),
        json.dumps(listing("a", sha256="")),
        json.dumps(listing("a", sha256=SHA.upper())),
        json.dumps(listing("a", sha256=None)),
        json.dumps(listing("a" * 3000)),
        json.dumps(listing("a/" * DEEPEST + "b")),
        json.dumps(listing("out/a", "out/a")),
        json.dumps(listing("out/a", "out/a/b")),
        json.dumps(listing("out/a/b/c", "out")),
        json.dumps({**listing("a"), "missing": ["b"]}),
        json.dumps({**listing("a"), "missing": {"b": 1}}),
    ],
)
def test_a_malformed_results_manifest_raises_an_error_with_the_reason(document: str) -> None:
    with pytest.raises(ValueError, match=r"it |what is missing|Expecting|codec|key"):
        read_manifest(document.encode("latin-1"))


def test_a_manifest_marks_a_file_that_no_run_made_also_once_a_later_run_has_it() -> None:
    one = PulledFile((1, 2, 3, 4, 5), SHA, "out/a", HomeFile(3, 4, 6))
    text = Manifest(RunOrigin("b", "k", "train-1"), [], {"out/a": one}, frozenset()).text()
    about = {"path": "out/a", "size": 3, "sha256": SHA}
    assert json.loads(text)["files"] == [{**about, "on_box": False, "after_run": True}]


def test_the_error_of_a_full_disk_names_the_pull_record_that_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the results was named, which lay on another disk and had room."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with PulledRecord(tmp_path / "pulls/run") as record, monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="no space") as caught:
            record.will_replace("a", "0" * 64, "a")
        record._new.clear()
    assert caught.value.filename == str(tmp_path / "pulls/run")
