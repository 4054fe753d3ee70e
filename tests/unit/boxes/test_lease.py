"""What is shown of a box's lease, and how far the box's answer about it is believed."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes.probe import BoxLease, LeaseLimit, parse_lease
from bootstrap.link import BoxOptions, KnownBox
from bootstrap.runs import upkeep
from bootstrap.value import document

SAID = {
    "v": 1,
    "held": "yes",
    "error": "",
    "over": "",
    "soon": "",
    "limits": {"hours": [3600.0, 43200.0], "dollars": [2.5, 20.0], "idle": [600, 1800]},
    "counted": {"extended": 7200.0},
}


def lease(word: str = "kept", **changes: object) -> BoxLease:
    found = parse_lease(f"{word}\t{json.dumps({**SAID, **changes})}")
    assert found
    return found


def lines(word: str = "kept", **changes: object) -> str:
    return "\n".join(lease(word, **changes).lines())


def note(**changes: object) -> str:
    """What every other command says of it."""
    return lease(**changes).note()


def test_status_says_how_much_of_a_lease_is_left_and_what_enforces_it() -> None:
    assert lines() == (
        "lease: 11 h 00 min left, $2.50 of $20.00, idle for 10 min 00 s of 30 min 00 s; "
        "held by the box"
    )
    assert lines(held="no-boot").endswith("; held by the box until it is restarted")
    assert "its monitor is gone" in lines("lost")
    assert lines(error="x").endswith("did not answer the last time, and is asked again")
    ends = {"then": "destroy", "unsafe": ["train-1: never\x1b[31m pulled", "x", 7]}
    assert lines(**ends).endswith(
        "; held by the box, then stopped, not destroyed (train-1: never pulled, and 1 more)"
    )
    assert lines(then="destroy", unsafe=[]).endswith("; held by the box, then destroyed")
    silent = lines(held="no-answer", then="destroy", unsafe=[], unpriced=True)
    assert silent.endswith("the account has not answered the box, which asks again")
    assert lines(then="destroy", over="idle").endswith("; the box is asked to be destroyed")
    assert (
        "keeps running and costing money: nothing on this box holds it: a stop would wipe"
        in lines(held="wipes", over="hours")
    )
    over = lines(over="idle", error="x")
    assert over.startswith(
        "lease: over (idle); the box is asked to be stopped; its account did not"
    )


@pytest.mark.parametrize("held", ["no-key", "refused", "no-answer", "trying", "else", 7, None])
def test_a_lease_that_nothing_enforces_warns_that_the_box_keeps_costing_money(
    held: object,
) -> None:
    why = "nothing on this box holds it"
    assert why in lines(held=held)
    assert "it keeps running and costing money" in note(held=held, over="hours")
    over = lines(held=held, over="hours")
    assert over.startswith(
        "lease: over (hours); it keeps running and costing money: nothing on this box"
    )


@pytest.mark.parametrize("held", ["yes", "no-answer", "no-key", "trying"])
def test_a_command_about_something_else_tells_a_lease_only_if_it_is_soon_over_or_unwatched(
    held: str,
) -> None:
    assert not note(held=held)
    assert note(held=held, soon="hours").startswith("11 h 00 min left")
    assert note(held=held, over="hours").startswith("over (hours)")
    assert "its monitor is gone" in lease("lost", held=held).note()
    is_worse = held in {"no-key", "no-answer"}
    assert bool(lease(held=held).note("yes")) is is_worse
    assert not lease(held=held).note("no-key")
    assert bool(note(held=held, price=None)) is (held != "no-answer")


@pytest.mark.parametrize(
    "said",
    [
        *("", "[]", "{", '{"limits": 3}', '{"limits": {"x": []}}'),
        '{"limits": {"hours": ["x", 1e999]}}',
        json.dumps({**SAID, "over": "\x1b[31m", "soon": ["x"], "counted": 5, "held": {}}),
    ],
)
def test_a_nonsense_lease_answer_of_a_box_is_shown_as_an_empty_printable_lease(said: str) -> None:
    found = parse_lease(f"kept\t{said}")
    assert found
    assert all(line.isprintable() for line in found.lines())
    assert (found.over, found.soon, found.extended) == ("", "", 0.0)
    json.dumps(document(found), allow_nan=False)


def test_status_shows_no_lease_if_the_box_answers_none_or_nothing() -> None:
    assert parse_lease("") is None
    assert parse_lease("none\t{}") is None


def test_the_lease_command_prints_the_time_left_without_a_second_question_to_the_box(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease, shown = BoxLease("yes", {"hours": LeaseLimit(12.0, 160.0)}), list[Any]()
    box = SimpleNamespace(name="dd", state=SimpleNamespace(lease=lease), known=KnownBox("dd", "a"))
    opened = SimpleNamespace(open=lambda *_: contextlib.nullcontext(box))
    monkeypatch.setattr(upkeep, "BoxLogin", opened)
    screen: Any = SimpleNamespace(result=lambda *told: shown.extend(told))
    upkeep.show_lease(BoxOptions(), screen, extend=None, release=False)
    assert shown == [{"box": "dd", "lease": lease}, f"dd: {lease.lines()[0]}"]
