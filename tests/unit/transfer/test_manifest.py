"""A manifest that a box may have written is taken whole, or not at all."""

import errno
import json
import os
from pathlib import Path

import pytest

from bootstrap.transfer.destination import DEEPEST, HomeFile
from bootstrap.transfer.manifest import (
    ListedFile,
    Manifest,
    PulledFile,
    PulledRecord,
    RunOrigin,
    read_manifest,
)

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
