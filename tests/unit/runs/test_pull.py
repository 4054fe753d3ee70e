"""When a pull ends, and that it never reports a file as pulled that is not here."""

import contextlib
import dataclasses
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run
from bootstrap.errors import NotSafeError, UsageError
from bootstrap.link import LocalWire
from bootstrap.onbox.redact import Redactor
from bootstrap.runs import pull, pull_result
from bootstrap.transfer.destination import HomeFile
from bootstrap.transfer.frames import BoxFile, BoxLook
from bootstrap.transfer.manifest import PulledFile
from bootstrap.transfer.puller import PullRound
from tests.logins import login_on

FILE = BoxFile("out/a", "", "", (1, 2, 3, 4, 5))
HOME = HomeFile(3, 4, 6)


def a_pull(**parts: Any) -> Any:
    """Make a pull with only the parts that these tests need."""
    one = object.__new__(pull._Pull)
    one._wish, one._live, one._idle = SimpleNamespace(watch=False, without=None), False, 0
    one._landed, one._meant = {}, frozenset()
    one._beside = lambda: None
    vars(one).update(parts)
    return one


def test_pull_stops_after_some_rounds_if_a_box_sends_other_content_than_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A box that sends other content than it announces would otherwise be asked forever."""
    puller = SimpleNamespace(received=0, stopped="")
    rounds: list[PullRound] = []

    def endless() -> Iterator[PullRound]:
        for puller.received in count(1):
            rounds.append(PullRound(BoxLook(), missing={"out/a": "damaged"}))
            assert len(rounds) < 50
            yield rounds[-1]

    monkeypatch.setattr(pull.time, "sleep", lambda _: None)
    one = a_pull(_puller=puller, _rounds=endless, _manifest=lambda done: done)
    one._land_manifest = lambda _: None
    assert one._take_all().missing == {"out/a": "damaged"}
    assert len(rounds) == pull._IDLE_LOOKS


def test_pull_ends_though_a_live_run_writes_new_results_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what the first look found incomplete, one file comes later, and one never."""
    looks = list[PullRound]()

    def endless() -> Iterator[PullRound]:
        while True:
            at = len(looks)
            landed = {f"out/{at - 1}", *(["out/slow"] if at == 2 else [])}
            left = {"out/slow", "out/log", f"out/{at}"} - landed
            looks.append(PullRound(BoxLook(), landed, dict.fromkeys(left, "young")))
            assert at < 20
            yield looks[-1]

    monkeypatch.setattr(pull.time, "sleep", lambda _: None)
    puller = SimpleNamespace(received=0, stopped="")
    one = a_pull(_puller=puller, _rounds=endless, _manifest=lambda done: done, _live=True)
    one._land_manifest = lambda _: None
    assert one._take_all() is looks[-1]
    assert len(looks) == 3 + pull._IDLE_LOOKS


@pytest.mark.parametrize("is_here", [True, False])
def test_a_pulled_file_that_was_changed_at_home_is_reported_as_not_pulled(*, is_here: bool) -> None:
    record = SimpleNamespace(files={"out/a": PulledFile(FILE.state, "0" * 64, "out/a", HOME)})
    one = a_pull(
        _record=record,
        _landing=SimpleNamespace(look=lambda *_: HOME if is_here else None),
        _run=SimpleNamespace(repo_key="r", name="n", commit="", snapshot="", typed=""),
        _source=SimpleNamespace(profile="", paths=["out"]),
        _box=SimpleNamespace(name="b", redactor=Redactor({})),
    )
    round_ = PullRound(BoxLook({"out/a": FILE}), landed={"out/a"})
    assert [*one._manifest(round_).files] == ["out/a"]  # it came just now: nobody looks again
    round_.begun -= 10
    manifest = one._manifest(round_)
    assert [*manifest.files] == (["out/a"] if is_here else [])
    assert [*manifest.missing] == ([] if is_here else ["out/a"])
    if is_here:
        resumed = pull_result.Pulled(manifest, Path("/r"), {"out/a": "out/a"})
        assert resumed.lines()[0] == "n: 1 file, 0 B in 0 s, 3 B came before"
        resumed.received = 3
        assert resumed.lines()[0] == "n: 1 file, 3 B in 0 s"
        resumed.manifest = dataclasses.replace(manifest, live=True)
        assert resumed.lines()[0] == "n: 1 file, 3 B in 0 s; it is still running"
        cleaned = dataclasses.replace(manifest, made=manifest.on_box, on_box=frozenset())
        assert pull_result.Pulled(cleaned, Path("/r")).lines()[0] == "n: 1 file here already"
    else:
        with pytest.raises(NotSafeError, match="1 file of n was not pulled"):
            pull_result.Pulled(manifest, Path("/r")).check()
        assert pull_result.Pulled(manifest, Path("/r")).lines()[0] == "n: nothing came"


@pytest.mark.parametrize(
    ("states", "named", "watch", "meant"),
    [
        (["queued", "waiting", "running", "finished"], None, False, "c"),
        (["queued", "died"], None, True, "b"),
        (["queued", "running"], "a", True, "a"),
        (["queued"], None, True, "a"),
        (["queued"], None, False, ""),
        (["queued", "running"], "a", False, ""),
        (["waiting"], None, True, ""),
    ],
)
def test_pull_without_a_run_name_takes_the_newest_begun_run_and_no_queued_one(
    states: list[Any], named: str | None, watch: bool, meant: str
) -> None:
    runs = [
        Run("k", name, state, None, 0, "", "", "", 0, 0, "")
        for name, state in zip("abcd", states, strict=False)
    ]
    box = login_on(LocalWire())
    box.own, box.state = "k", dataclasses.replace(box.state, runs=runs)
    with (
        contextlib.nullcontext() if meant else pytest.raises(UsageError, match=r"^this machine: a ")
    ):
        assert pull._meant(box, named, may_begin=watch).name == meant


@pytest.mark.parametrize(
    ("results", "is_here", "is_only_there"),
    [("home", True, False), ("none", False, False), ("partly", True, True), ("", False, True),
     ("", True, False)],
)  # fmt: skip
def test_pull_lists_a_run_as_not_pulled_unless_its_results_or_record_are_home(
    *, monkeypatch: pytest.MonkeyPatch, results: str, is_here: bool, is_only_there: bool
) -> None:
    kept = SimpleNamespace(results=results, is_here=lambda: is_here)
    monkeypatch.setattr(pull, "find_kept", lambda *_: kept)
    run, box = SimpleNamespace(has_begun=True), SimpleNamespace(known=None)
    assert pull._is_only_there(box, run) is is_only_there  # type: ignore[arg-type]
