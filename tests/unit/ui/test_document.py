import json

import pytest
from telling import STEPS, ev, paper, run_events, written

from bootstrap.errors import StepFailedError, exit_code
from bootstrap.ui.screen import TEXT_LENGTH
from bootstrap.ui.screens import MOST_ENTRIES, JsonScreen, make_screen


def told(do, redact=str):
    out, err = paper(), paper()
    try:
        screen = make_screen(json=True, stream=err, out=out)
        screen.redact = redact
        assert isinstance(screen, JsonScreen)
        try:
            do(screen)
            assert written(out) == ""
        except BaseException as error:
            screen.failed(error, exit_code(error))
            raise
        finally:
            screen.close()
            screen.close()  # closing it again prints nothing more
    finally:
        assert written(err) == ""
        text = written(out)
        assert text.count("\n") == 1
        told.document = json.loads(text)  # also if an error is raised
    return told.document


def test_a_command_without_a_result_prints_a_json_document_with_its_exit_code():
    assert told(lambda screen: None) == {"v": 1, "exit": 0}


def test_setup_json_has_its_steps_notes_warnings_logs_and_results():
    def do(screen):
        screen.plan(STEPS)
        for event in run_events():
            screen.event(event)
        screen.say("hello")
        screen.note("commit", "1a2b")
        screen.warn("careful")
        screen.log_tail("python", [b"\x1b[31merror\n"])
        screen.lost(3)
        screen.back()
        screen.result({"run": "abc", "v": 9}, "for people")
        screen.result({"list": [1, 2.5, None, {"a": ("\x1b[1mb",)}]})

    document = told(do)
    steps = {step["step"]: step for step in document.pop("steps")}
    assert list(steps) == STEPS
    assert steps["shell"] == {"step": "shell", "state": "skipped", "why": "already right"}
    assert steps["gpu"]["seconds"] == 1.7
    assert document == {
        "v": 1,
        "exit": 0,
        "run": "abc",
        "list": [1, 2.5, None, {"a": ["b"]}],
        "said": ["hello"],
        "notes": {"commit": "1a2b"},
        "warnings": [
            "gpu: the box has no tmux: training runs detached, with the same log",
            "careful",
        ],
        "logs": {"python": ["error"]},
    }


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (StepFailedError("python failed", hint="look"), 7, "StepFailed"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (ZeroDivisionError("boom"), 1, "Internal"),
    ],
)
def test_a_failed_command_has_its_error_in_the_json_document(error, code, kind):
    def do(screen):
        screen.result({"run": "abc"})
        raise error

    with pytest.raises(type(error)):
        told(do)
    assert told.document["exit"] == told.document["error"]["exit"] == code
    assert told.document["error"]["error"] == kind
    assert told.document["run"] == "abc"


def test_secrets_are_redacted_everywhere_in_the_json_document():
    def do(screen):
        screen.result({"a": ["hunter22"], "hunter22": 1})
        screen.say("hunter22")
        raise StepFailedError("hunter22", where="hunter22")

    with pytest.raises(StepFailedError):
        told(do, redact=lambda text: text.replace("hunter22", "*"))
    assert "hunter22" not in json.dumps(told.document)


def test_a_json_document_names_the_parts_that_were_cut_for_length():
    def do(screen):
        screen.result({"output": "x" * (TEXT_LENGTH + 1), "runs": [{"name": "a"}]})
        screen.result({"deep": [{"text": "é" * (TEXT_LENGTH + 1)}], "fits": "x" * TEXT_LENGTH})
        for at in range(MOST_ENTRIES + 1):
            screen.say(f"{at}")
            screen.warn("careful")

    document = told(do)
    assert document["cut"] == ["output", "deep", "said", "warnings"]
    assert len(document["output"]) == len(document["fits"]) == TEXT_LENGTH


def test_an_interrupted_command_says_in_json_how_to_go_on():
    with pytest.raises(KeyboardInterrupt):
        told(lambda _: (_ for _ in ()).throw(KeyboardInterrupt("To wait on: boxstrap wait")))
    error = told.document["error"]
    assert (error["exit"], error["next"]) == (130, "To wait on: boxstrap wait")


def test_a_command_result_with_a_python_set_raises_a_type_error_in_json_output():
    screen = JsonScreen(paper())
    with pytest.raises(TypeError, match="set"):
        screen.result({"a": {1, 2}})


def test_json_output_drops_messages_warnings_and_notes_above_a_fixed_number():
    screen = JsonScreen(paper())
    for t in range(5000):
        screen.event(ev(t, "repo", "start"))
        screen.event(ev(t, "repo", "warn", code="no-git"))
        screen.say(f"{t}")
        screen.warn(f"{t}")
        screen.note(f"{t}", "x")
    assert len(screen._said) == len(screen._warnings) == len(screen._notes) == MOST_ENTRIES


def test_option_events_prints_each_event_as_a_json_line_before_the_document():
    out = paper()
    screen = JsonScreen(out, events=True)
    screen.redact = lambda text: text.replace("hunter22", "*")
    screen.note("rented", "vast:9001")
    screen.say("waiting for hunter22")
    screen.event(ev(1, "repo", "start"))
    screen.event(ev(2, "repo", "ok"))
    assert [json.loads(line) for line in written(out).splitlines()] == [
        {"v": 1, "event": "note", "label": "rented", "text": "vast:9001"},
        {"v": 1, "event": "said", "text": "waiting for *"},
        {"v": 1, "event": "step", "step": "repo", "state": "running"},
        {"v": 1, "event": "step", "step": "repo", "state": "ok"},
    ]
    for t in range(5000):
        screen.say(f"{t}")
    screen.close()
    lines = written(out).splitlines()
    assert len(lines) == MOST_ENTRIES + 1
    assert json.loads(lines[-1])["exit"] == 0
