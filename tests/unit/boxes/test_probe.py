"""A box's answers are untrusted: read with limits, cleaned, and never a crash here."""

import dataclasses
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap.boxes import probe as probe_module
from bootstrap.boxes.answers import LONGEST, documents
from bootstrap.boxes.probe import BoxState, parse_probe
from bootstrap.boxes.run import STATES
from bootstrap.errors import BoxLacksError
from bootstrap.runs.status import rows_of, status_lines
from bootstrap.steps.events import WHY, Event
from bootstrap.steps.plan import NAMES
from bootstrap.value import document
from tests.unit.boxes.conftest import told

WORDS = ["env", "file", "have", "plan", "working", "last", "time", "bash", "script", "x"]
ODD = st.text(st.sampled_from("\t \"'[]{}:,0123456789²٣abcdef./-\x1b[31m\x9b\u202e\r\0é"))
ANY = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.lists(ODD)
    | st.dictionaries(ODD, ODD)
)
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Lines that start like real ones and continue at random."""
    lines = draw(st.lists(st.tuples(st.sampled_from(WORDS), ODD), max_size=12))
    values = st.dictionaries(st.sampled_from(sorted(json.loads(told()))), ODD | ANY, max_size=4)
    runs = draw(st.lists(values, max_size=3))
    rows = "".join(f"{word}\t{value}\n" for word, value in lines).encode()
    return rows + b"".join(told(**{"kind": "run", **run}) for run in runs)


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
    assert set(found.last_setup) <= {"setup", "state", "exit", "of"}
    assert not UNSEEN.search("".join(status_lines("box", found, rows_of(found))))


@pytest.mark.slow
@given(st.binary(max_size=4000) | answers())
@example(b"last\t" + b"[" * 4000)
@example(b'last\t{"exit": NaN, "setup": "x"}')
@example(b'last\t{"exit": 1e999, "setup": {"a": []}, "state": 3}')
@example(b"last\t" + b"9" * 4090)
@example(told(log_bytes=10**300))
@example(told(log_bytes=1).replace(b": 1,", b": " + b"9" * 5000 + b","))
@example(told(gpus="\x1b[31m,;", command="\ud800\n"))
@example(told(run="key-1/"))
@example(told(rc="²", ended="pipeline " + "9" * 3000))
@example(told("box", secrets={"A": "[" * 999, "\x1b": 1}, alive=[]))
def test_any_bytes_of_a_box_as_its_state_raise_no_error_and_show_no_control_character(
    answer: bytes,
) -> None:
    check(parse_probe(answer))


def test_of_an_endless_answer_of_a_box_about_its_state_5000_commits_are_read() -> None:
    many = b"".join(b"have\t%040x\n" % number for number in range(100_000))
    assert len(parse_probe(many).have) <= 5000
    long = parse_probe(b"home\t" + b"x" * 1_000_000)
    assert len(long.facts["home"]) <= 4096


def test_every_line_of_a_boxes_answer_about_its_state_is_parsed_into_its_own_field() -> None:
    lines = [
        "system\tLinux x86_64",
        "env\tVAST_CONTAINERLABEL",
        "file\t/etc/rp_environment",
        f"have\t{'a' * 40}",
        f"working\t20260101-000000-abcdef\t{'b' * 64}",
        'last\t{"v":1,"setup":"20260101-000000-abcdef","script":"x","state":"over","exit":7,"t":1}'
        "\thomework 5f634a2f7ef2",
        told().decode(),
        told(run="key-1/train-2", state="finished", rc=1).decode(),
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
    setup, of = "20260101-000000-abcdef", "homework 5f634a2f7ef2"
    assert found.last_setup == {"setup": setup, "state": "over", "exit": 7, "of": of}
    assert [(run.name, run.state, run.rc) for run in found.runs] == [
        ("train-2", "finished", 1),
        ("train-1", "running", None),
    ]
    assert found.plan == {"gpu": "done", "train": "alive"}
    assert found.nothing_to_do


def test_setup_never_says_nothing_to_do_if_a_step_is_new_or_has_an_unknown_state() -> None:
    assert not parse_probe(b"").nothing_to_do
    assert not parse_probe(b"plan\tgpu\tdone\nplan\ttrain\tnew").nothing_to_do
    assert not parse_probe(b"plan\tgpu\tunheard-of").nothing_to_do


@pytest.mark.parametrize("values", [{"run": 1}, {"run": "a"}, {"run": "a/b/c"}, {"state": "?"}])
def test_a_malformed_run_sent_by_a_box_is_not_listed(values: dict[str, object]) -> None:
    assert parse_probe(told(**values)).runs == ()


@pytest.mark.parametrize(
    "line", [b"{" * 9999, told(text="x" * LONGEST), b'{"a": ' * 9 + b"1" + b"}" * 9]
)
def test_a_json_line_from_a_box_that_is_too_long_or_too_deep_is_dropped(line: bytes) -> None:
    assert [said.kind for said in documents(line + b"\n" + told("log"))] == ["log"]


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
def test_setup_on_a_box_without_bash_or_with_an_old_one_raises_an_error(
    bash: str, word: str | None
) -> None:
    found = parse_probe(f"system\tLinux x86_64\nbash\t{bash}\n".encode())
    if word is None:
        probe_module._check_bash(found, "box")
        return
    with pytest.raises(BoxLacksError, match=word):
        probe_module._check_bash(found, "box")


def lines_of(answer: bytes) -> list[str]:
    state = parse_probe(answer)
    return status_lines("box", state, rows_of(state))


def test_status_shows_runs_in_columns_and_cuts_a_long_command() -> None:
    ended = {"state": "finished", "rc": 1, "ended": "exit 1", "log_bytes": 12}
    rows = told(run="key-1/train-10", command="/w/homework/.venv/bin/python x.py", **ended)
    rows += told(command=f"python x.py {'long ' * 30}", log_bytes=12)
    first, second = lines_of(rows)[1:]
    for word in ("started", "log 12 B", "a" * 12, "python x.py"):
        assert first.index(word) == second.index(word)
    assert len(second.rpartition("a" * 12)[2].strip()) == 60
    assert second.endswith("…")


def test_status_begins_with_its_last_setup_failed_only_if_no_run_began_after_that() -> None:
    last = b'last\t{"setup": "20260101-000000-abcdef", "state": "over", "exit": 7}\tvision 5f63\n'
    why = Event("20260101-000000-abcdef", 3, 1000.0, "repo", "fail", {"code": "E_OUTPUT"})
    for begun, word in ((990, "its last setup, of vision 5f63, failed"), (1010, "is set up")):
        state = parse_probe(last + told(begun=begun))
        assert status_lines("box", state, rows_of(state), why)[0].startswith(f"box: {word}")


def test_a_run_of_uncommitted_changes_shows_its_snapshot_beside_its_commit() -> None:
    commit, snapshot = "a" * 40, "b" * 40
    (changed,) = parse_probe(told(snapshot=snapshot)).runs
    (equal,) = parse_probe(told(snapshot=commit)).runs
    found = [document(run).get("snapshot") for run in (changed, equal)]
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
def test_the_count_of_packages_reused_from_an_image_is_ignored_unless_it_is_three_numbers(
    said: str, reused: dict[str, int]
) -> None:
    assert parse_probe(f"reused\t{said}\n".encode()).reused == reused


@pytest.mark.parametrize("at_work", [True, False])
def test_status_names_an_interrupted_update_of_a_tree_unless_setup_runs(at_work: bool) -> None:
    working = "working\t20261121-084500-a1b2c3\tid\n" if at_work else ""
    answer = f"dir\t/workspace/homework\nswitch\t{'b' * 40}\n{working}"
    said = "\n".join(lines_of(answer.encode()))
    assert (f"/workspace/homework to {'b' * 12} was cut short" in said) is not at_work
