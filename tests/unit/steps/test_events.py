import errno
import json
import math
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap.onbox.setup.events import SetupEvents
from bootstrap.steps.event_codes import explain, field_names
from bootstrap.steps.events import (
    CODES,
    EVENTS,
    MAX_LINE,
    NUMBERS,
    UNITS,
    WHY,
    WORDS,
    Event,
    EventLines,
    parse_event,
)
from bootstrap.steps.plan import NAMES

HEAD = {"v": 1, "setup": "20261103-abc", "seq": 3, "t": 12.5, "step": "python", "event": "progress"}


def line(**changes) -> bytes:
    return json.dumps({**HEAD, **changes}).encode()


def test_a_setup_event_line_is_parsed_into_its_fields():
    fields = {"done": 12, "total": 90, "unit": "packages"}
    event = parse_event(line(**fields))
    assert event == Event("20261103-abc", 3, 12.5, "python", "progress", fields)
    assert event is not None
    assert (event.number("done"), event.word("unit")) == (12, "packages")
    assert (event.number("secs"), event.word("why")) == (None, "")
    with pytest.raises(FrozenInstanceError):
        event.seq = 4  # type: ignore[misc]


def test_a_setup_event_written_as_json_is_read_back_equal():
    event = parse_event(line(done=1))
    assert event is not None
    assert event.as_dict() == {**HEAD, "done": 1}
    assert parse_event(json.dumps(event.as_dict()).encode()) == event


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2}, {"v": None}, {"setup": "a b"}, {"setup": "../x"}, {"setup": "x" * 81},
        {"setup": "x\n"}, {"setup": 7}, {"seq": -1}, {"seq": 1.5}, {"seq": True}, {"seq": "1"},
        {"seq": 10**400}, {"t": "now"}, {"t": 10**400}, {"t": None}, {"t": float("nan")},
        {"t": float("inf")}, {"step": "rm -rf"}, {"step": ["python"]}, {"event": "explode"},
        {"event": {}},
    ],
)  # fmt: skip
def test_a_setup_event_line_with_a_wrong_value_in_a_required_field_is_ignored(changes):
    assert parse_event(line(**changes)) is None


def test_unknown_fields_of_a_setup_event_are_dropped():
    wrong = {"done": True, "total": float(10**300), "secs": "3", "unit": "\x1b[31mbytes"}
    wrong |= {"why": ["done"], "code": "made-up", "message": "prose", "have": "3.11; rm"}
    event = parse_event(line(**wrong, need="3.11", rc=1))
    assert event is not None
    assert event.fields == {"need": "3.11", "rc": 1}


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"null", b"1", b"{", b"\xff\xfe{}", b"[" * MAX_LINE, b'{"a":' * 600,
        b"1" * MAX_LINE, b"NaN", b" " * (MAX_LINE + 1), line() + b" " * MAX_LINE,
    ],
)  # fmt: skip
def test_a_line_of_garbage_is_not_read_as_a_setup_event(raw):
    assert parse_event(raw) is None


TEXT = st.text("az019.-\x1b\n", max_size=6)
ANY_JSON = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.lists(TEXT)


@given(st.binary())
def test_any_bytes_read_as_a_setup_event_raise_no_error(raw):
    parse_event(raw)


@given(
    st.dictionaries(
        st.sampled_from([*HEAD, *NUMBERS, *WORDS, "other"]),
        ANY_JSON | st.sampled_from([*NAMES, *EVENTS, *UNITS, *WHY, *CODES, 1]),
    )
)
@example({**HEAD, "have": "1.2.3.4"})
def test_unknown_words_and_infinite_numbers_in_a_setup_event_of_a_box_are_dropped(data):
    event = parse_event(json.dumps({**HEAD, **data}).encode())
    if event is None:
        return
    assert math.isfinite(event.t)
    assert event.step in (*NAMES, "setup")
    assert event.event in EVENTS
    for name, value in event.fields.items():
        if name in WORDS:
            assert value in WORDS[name]
        else:
            assert name in NUMBERS
            assert isinstance(value, str) or math.isfinite(value)


@given(st.lists(st.integers(0, 400), max_size=6))
def test_the_same_setup_events_are_read_however_their_stream_is_cut_into_pieces(cuts):
    text = line(seq=1) + b"\n" + b"rubbish\n\n" + line(seq=2) + b"\n" + line(seq=3)
    reader, seen, places = EventLines(), [], sorted({min(cut, len(text)) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        seen += reader.feed(text[start:end])
    assert [event.seq for event in seen] == [1, 2]
    assert reader.consumed == text.rindex(b"\n") + 1
    assert reader.refused == 2


def test_an_endless_setup_event_line_is_skipped_and_the_next_event_is_read():
    reader = EventLines()
    for _ in range(50):
        assert reader.feed(b"x" * 100_000) == []
        assert len(reader._rest) <= MAX_LINE
    assert [event.seq for event in reader.feed(b"\n" + line() + b"\n")] == [3]
    assert reader.consumed == 5_000_001 + len(line()) + 1


def test_a_setup_event_cut_by_a_lost_link_is_read_again_after_reconnecting():
    text = line(seq=1) + b"\n" + line(seq=2) + b"\n"
    reader = EventLines()
    assert len(reader.feed(text[:-20])) == 1
    reader.link_lost()
    assert [event.seq for event in reader.feed(text[reader.consumed :])] == [2]
    assert reader.consumed == len(text)


def test_every_error_code_has_a_message_and_a_hint_that_insert_only_numbers():
    assert len(CODES) >= 40
    for name, code in CODES.items():
        assert name == name.strip().lower()
        assert code.what
        assert code.hint
        assert field_names(code.what) | field_names(code.hint) <= NUMBERS, name
        assert not code.what.endswith(".")
        assert "{" not in explain(name, {}).what + explain(name, {}).hint


def test_an_error_message_contains_the_process_id_or_exit_code_of_its_event():
    assert explain("dpkg-locked", {"pid": 812}).what == (
        "another run of the package manager (process 812) holds dpkg's lock"
    )
    assert "(process ?)" in explain("dpkg-locked", {}).what
    assert "exit code 1.5" in explain("command-failed", {"rc": 1.5}).what
    assert explain("torch-arch", {"need": "128", "have": "12.0"}).hint.endswith("cu128")
    assert "rm FILE where git knows none" in explain("box-edits", {}).hint


def test_the_hint_on_torch_lacking_the_gpu_points_to_the_log_if_it_has_no_cuda_version():
    code = explain("torch-arch", {"have": "12.0"})
    assert code.what.endswith("compute capability is 12.0")
    assert code.hint == "the step's log says what fits"


def test_a_version_12_0_in_a_setup_event_of_a_box_is_not_shortened_to_12(tmp_path):
    """`12.0` as a number would be shown as 12."""
    written = [("have=12.0", "12.0"), ("need=128", 128), ("secs=0.5", 0.5), ("rc=0", 0)]
    words = [word for word, _ in written]
    SetupEvents(str(tmp_path), "s").write("python", "fail", *words, "code=torch-arch")
    event = parse_event((tmp_path / "events.jsonl").read_bytes())
    assert event
    expected = {word.partition("=")[0]: value for word, value in written}
    assert event.fields == {**expected, "code": "torch-arch"}


def test_a_setup_goes_on_where_a_full_disk_takes_neither_event_nor_state(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    events = SetupEvents(str(tmp_path), "20261103-abc")
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr("bootstrap.onbox.setup.events.write_whole", _full)
    events.write("prepare", "fail", "code=disk-full")
    events.note_state("x", "over", 7)


def _full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
