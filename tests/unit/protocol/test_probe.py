"""A box's answers are untrusted: read with limits, cleaned, and never a crash here."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap.errors import BoxLacksError
from bootstrap.events import WHY
from bootstrap.plan import NAMES
from bootstrap.protocol import probe as probe_module
from bootstrap.protocol.probe import BoxState, parse_probe
from bootstrap.protocol.run import STATES, parse_run
from bootstrap.runs.status import status_lines

WORDS = ["env", "file", "have", "run", "plan", "working", "last", "time", "bash", "script", "x"]
WORDS += ["stat", "note"]
ODD = st.text(st.sampled_from("\t \"'[]{}:,0123456789²٣abcdef./-\x1b[31m\x9b\u202e\r\0é"))
ROW = "key-1\ttrain-1\trunning\t1700000000\t" + "a" * 40 + "\tw\ttrain\tpython x.py"
LOG = b"stat\tkey-1/train-1/log\t1700000001\t12\n"
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Lines that start like real ones and continue at random."""
    lines = draw(st.lists(st.tuples(st.sampled_from(WORDS), ODD | st.just(ROW)), max_size=12))
    return "\n".join(f"{word}\t{value}" for word, value in lines).encode()


def check(found: BoxState) -> None:
    """Check what the rest of boxstrap relies on."""
    nothing: frozenset[str] = frozenset()
    as_data = dataclasses.asdict(dataclasses.replace(found, env=nothing, files=nothing))
    text = json.dumps({key: value for key, value in as_data.items() if key not in ("env", "files")})
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    shown = [*found.facts.values(), *found.env, *found.files, found.script]
    shown += [part for run in found.runs for part in (run.name, run.command, run.session)]
    assert not [part for part in shown if UNSEEN.search(part)]
    assert set(found.plan) <= set(NAMES)
    assert set(found.plan.values()) <= set(WHY)
    assert all(run.state in STATES and run.name and run.repo_key for run in found.runs)
    assert all(0 <= run.log_bytes < 10**18 and 0 <= run.started < 10**18 for run in found.runs)
    assert all(re.fullmatch("[0-9a-f]{40}(?:[0-9a-f]{24})?", commit) for commit in found.have)
    assert set(found.last_setup) <= {"setup", "state", "exit"}


@given(st.binary(max_size=4000) | answers())
@example(b"last\t" + b"[" * 4000)
@example(b'last\t{"exit": NaN, "setup": "x"}')
@example(b'last\t{"exit": 1e999, "setup": {"a": []}, "state": 3}')
@example(b"last\t" + b"9" * 4090)
@example(LOG.replace(b"12", b"9" * 300) + b"run\t" + ROW.encode())
@example(b"note\tkey-1/train-1/gpus\t\x1b[31m,;\nrun\t" + ROW.encode())
@example(b"run\t" + ROW.replace("train-1", "").encode())
@example(b"run\t" + ROW.replace("running", "finished \xc2\xb2").encode())
@example(b"run\t" + ROW.replace("running", "finished 1 pipeline " + "9" * 3000).encode())
def test_no_answer_is_an_error(answer: bytes) -> None:
    check(parse_probe(answer))


def test_an_endless_answer_is_bounded() -> None:
    many = b"".join(b"have\t%040x\n" % number for number in range(100_000))
    assert len(parse_probe(many).have) <= 5000
    long = parse_probe(b"home\t" + b"x" * 1_000_000)
    assert len(long.facts["home"]) <= 4096


def test_what_is_true_is_understood() -> None:
    lines = [
        "system\tLinux x86_64",
        "env\tVAST_CONTAINERLABEL",
        "file\t/etc/rp_environment",
        f"have\t{'a' * 40}",
        f"working\t20260101-000000-abcdef\t{'b' * 64}",
        'last\t{"v":1,"setup":"20260101-000000-abcdef","script":"x","state":"over","exit":7,"t":1}',
        f"run\t{ROW}",
        f"run\t{ROW.replace('train-1', 'train-2').replace('running', 'finished 1')}",
        f"script\t{'b' * 64}",
        "plan\tgpu\tdone",
        "plan\ttrain\talive",
    ]
    found = parse_probe("\n".join(lines).encode())
    assert found.facts["system"] == "Linux x86_64"
    assert found.env == {"VAST_CONTAINERLABEL"}
    assert found.files == {"/etc/rp_environment"}
    assert found.have == ("a" * 40,)
    assert found.working == ("20260101-000000-abcdef", "b" * 64)
    assert found.last_setup == {"setup": "20260101-000000-abcdef", "state": "over", "exit": 7}
    assert [(run.name, run.state, run.rc) for run in found.runs] == [
        ("train-2", "finished", 1),
        ("train-1", "running", None),
    ]
    assert found.plan == {"gpu": "done", "train": "alive"}
    assert found.nothing_to_do


def test_nothing_to_do_only_where_the_box_said_so_of_every_step() -> None:
    assert not parse_probe(b"").nothing_to_do
    assert not parse_probe(b"plan\tgpu\tdone\nplan\ttrain\tnew").nothing_to_do
    assert not parse_probe(b"plan\tgpu\tunheard-of").nothing_to_do


@pytest.mark.parametrize(
    "value", ["", "\t" * 8, ROW + "\textra", "a\tb", ROW.replace("running", "?")]
)
def test_what_is_no_run_is_none(value: str) -> None:
    found = parse_run(value)
    assert found is None or found.command.endswith("extra")


@pytest.mark.parametrize(
    ("bash", "word"),
    [
        ("", "no bash"),
        ("4.3.1", "4.4"),
        ("9" * 4000, None),
        ("5.2.15(1)-release", None),
        ("²", "no"),
    ],
)
def test_an_old_bash_is_said(bash: str, word: str | None) -> None:
    found = parse_probe(f"system\tLinux x86_64\nbash\t{bash}\n".encode())
    if word is None:
        probe_module._check_bash(found, "box")
        return
    with pytest.raises(BoxLacksError, match=word):
        probe_module._check_bash(found, "box")


@given(answers())
def test_status_can_be_told_of_any_answer(answer: bytes) -> None:
    told = status_lines("box", parse_probe(answer))
    assert not UNSEEN.search("".join(told))


def test_the_runs_stand_in_columns_and_a_long_command_is_cut() -> None:
    ended = ROW.replace("train-1", "train-10").replace("running", "finished 1 exit 1")
    ended = ended.replace("python x.py", "/w/homework/.venv/bin/python x.py")
    logs = LOG + LOG.replace(b"train-1", b"train-10")
    rows = f"run\t{ended}\nrun\t{ROW} {'long ' * 30}\n".encode()
    told = status_lines("box", parse_probe(logs + rows))
    first, second = told[1:]
    for word in ("started", "log 12 B", "a" * 12, "python x.py"):
        assert first.index(word) == second.index(word)
    assert len(second.rpartition("a" * 12)[2].strip()) == 60
    assert second.endswith("…")


def test_a_run_with_changes_of_its_own_shows_them() -> None:
    commit, snapshot = "a" * 40, "b" * 40
    changed = parse_run(ROW.replace(commit, f"{commit} {snapshot}"))
    equal = parse_run(ROW.replace(commit, f"{commit} {commit}"))
    assert changed
    assert equal
    found = [run.as_dict().get("snapshot") for run in (changed, equal)]
    assert (found, changed.commit) == ([snapshot, None], commit)
    assert [run.with_changes for run in (changed, equal)] == [True, False]


@pytest.mark.parametrize(
    ("said", "reused"),
    [("4 795 19", {"count": 4, "have": 795, "secs": 19})]
    + [
        (said, {})
        for said in ("", "4 795", "4 795 19 1", "4 795 -1", "4 795 x", "4 795 1234567890")
    ],
)
def test_what_an_environment_has_of_the_image_is_three_numbers(
    said: str, reused: dict[str, int]
) -> None:
    assert parse_probe(f"reused\t{said}\n".encode()).reused == reused


@pytest.mark.parametrize("at_work", [True, False])
def test_a_switch_that_was_cut_short_is_named(at_work: bool) -> None:
    working = "working\t20261121-084500-a1b2c3\tid\n" if at_work else ""
    answer = f"dir\t/workspace/homework\nswitch\t{'b' * 40}\n{working}"
    said = "\n".join(status_lines("box", parse_probe(answer.encode())))
    assert (f"/workspace/homework to {'b' * 12} was cut short" in said) is not at_work
