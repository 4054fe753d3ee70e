"""A box's notes about its results in a bucket and its place among nodes, which may be false."""

import pytest

from bootstrap.boxes.run import NodeOf, parse_node, parse_uploaded

TO = "s3://results/mine/train-1-20261122-084500-a1b2c3"


@pytest.mark.parametrize(
    ("note", "says"),
    [
        (f"whole 2 3000005 0 - {TO}", f"results: 2 files (3.0 MB) are in {TO}"),
        (f"going 0 0 3 - {TO}", f"results: 0 files (0 B) are in {TO}; 3 more are to come"),
        (
            f"failing 1 5 2 AccessDenied {TO}",
            f"results: 1 files (5 B) are in {TO}; 2 are not: AccessDenied",
        ),
        (
            f"left 1 5 2 - {TO}",
            f"results: 1 files (5 B) are in {TO}; 2 are not: still written to; "
            "the next setup or run tries again",
        ),
    ],
)
def test_each_state_of_an_upload_to_a_bucket_has_its_own_sentence(note: str, says: str) -> None:
    uploaded = parse_uploaded(note)
    assert uploaded
    assert uploaded.sentence() == says


@pytest.mark.parametrize(
    "note",
    [
        *("", "whole", f"done 2 5 0 - {TO}", f"whole -2 5 0 - {TO}"),
        *(f"whole {'9' * 40} 5 0 - {TO}", f"whole 2 5 0 why\x1b[2J {TO}"),
        *("whole 2 5 0 - https://elsewhere/", f"whole 2 5 0 - {TO}\x1b]0;title\x07"),
        f"whole 2 5 0 - s3://{'x' * 500}",
    ],
)
def test_a_malformed_upload_state_sent_by_a_box_is_not_shown(note: str) -> None:
    assert parse_uploaded(note) is None


@pytest.mark.parametrize(
    ("note", "node"),
    [
        ("1 2 0123456789abcdef gpu-a gpu-b", NodeOf(1, ("gpu-a", "gpu-b"))),
        ("2 2 0123456789abcdef gpu-a gpu-b", None),  # there is no such rank
        ("0 3 0123456789abcdef gpu-a gpu-b", None),  # a name is missing
        ("0 2 gpu-a gpu-b", None),
        ("", None),
    ],
)
def test_an_impossible_node_rank_sent_by_a_box_is_ignored(note: str, node: NodeOf | None) -> None:
    assert parse_node(note) == node
