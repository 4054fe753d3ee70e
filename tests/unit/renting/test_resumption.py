"""What of a run that is to go on elsewhere is believed, and what is left of its money."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes.at_home import RunAtHome
from bootstrap.errors import NotSafeError
from bootstrap.protocol.run import Run, Uploaded
from bootstrap.renting import resumption
from bootstrap.transfer import buckets

RUN = Run("k-1", "train-1", "died", None, 1_700_000_000, "c" * 40, "w", "train", 0, 12, "python x")
BEFORE = RunAtHome("gpu", 1.0, "vast:1", RUN)


class ListedBucket:
    """A bucket that has these names."""

    names: tuple[str, ...] = ()

    def __init__(self, url: str) -> None:
        assert url == "s3://mine/results/"

    def objects(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.names]


@pytest.mark.parametrize(
    ("said", "there", "found"),
    [
        ("s3://mine/results/train-1-x", (), "s3://mine/results/train-1-x"),
        ("s3://mine/private", (), ""),
        ("s3://mine/results/../private", (), ""),
        ("", ("train-1-20231114-221320-ab/out/a", "train-1-20231114-221321-ab/out/a"), "…320-ab"),
        ("s3://other/results/train-1-x", ("train-1-20231114-221320-ab/out/a",), "…320-ab"),
        ("", ("train-2-20231114-221320-ab/out/a",), ""),
    ],
)
def test_a_box_names_no_other_place_than_the_profiles_bucket(
    monkeypatch: pytest.MonkeyPatch, said: str, there: tuple[str, ...], found: str
) -> None:
    monkeypatch.setattr(buckets, "Bucket", ListedBucket)
    monkeypatch.setattr(ListedBucket, "names", there)
    train: Any = SimpleNamespace(results_to="s3://mine/results/")
    uploaded = Uploaded("going", 1, 1, 0, "", said) if said else None
    before = dataclasses.replace(BEFORE, run=dataclasses.replace(RUN, uploaded=uploaded))
    expected = found.replace("…", "s3://mine/results/train-1-20231114-221")
    assert resumption._in_bucket(before, train) == expected
    assert resumption._in_bucket(before, SimpleNamespace(results_to=None)) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("out/a", True),
        ("model.pt", True),
        ("outside/a", False),
        ("sitecustomize.py", False),
        ("out/../sitecustomize.py", False),
        ("/etc/passwd", False),
    ],
)
def test_only_results_of_the_profile_reach_the_next_box(path: str, is_one: bool) -> None:
    assert resumption._is_result({"path": path}, ["out/", "model.pt"]) is is_one


def test_what_was_spent_is_taken_off_the_leases_dollars() -> None:
    loaded: Any = SimpleNamespace(profile=SimpleNamespace(lease=SimpleNamespace(dollars=20.0)))
    assert resumption._money_left(loaded, 7.5) == ("lease.dollars=12.50",)
    with pytest.raises(NotSafeError, match=r"of the \$20.00 of its lease nothing is left"):
        resumption._money_left(loaded, 20.0)
    loaded.profile.lease.dollars = None
    assert resumption._money_left(loaded, 7.5) == ()
