"""What is shown of several boxes: rows on a terminal, names in front of lines, one document."""

import io
import json
import sys

import pytest

from bootstrap.errors import UnreachableError
from bootstrap.fleet.screens import PrefixedStream, _LiveBoxes, make_box_screens
from bootstrap.steps.events import Event
from bootstrap.ui.screens import PlainScreen, make_screen

HOSTS = ["gpu-1", "b"]


class WideTerminal(io.StringIO):
    """A terminal of 80 columns, as far as rich asks."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _open() -> None:
    PrefixedStream.is_shut = False


def ended(screens: object, **kinds: object) -> None:
    screens.ended("gpu-1", None, 0, 1.0)  # type: ignore[attr-defined]
    screens.ended("b", UnreachableError("no answer.", where="b", hint="Look."), 3, 2.0)  # type: ignore[attr-defined]


def test_output_of_several_boxes_names_the_box_in_each_line_and_ends_with_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hosts = ["gpu-1", "b", typed := "ssh -i k -p 9 me@c"]
    screens = make_box_screens(hosts, make_screen(), as_json=False, brief=False)
    screens.of(typed).say("heard")
    screens.ended(typed, None, 0, 1.0)
    one = screens.of("gpu-1")
    one.redact = lambda text: text.replace("canary", "***")
    one.warn("gpu-1: its contract ends")  # named once
    one.say("said canary")
    one.result({"run": {"name": "train-1", "state": "running"}}, "first canary\nsecond")
    ended(screens)
    screens.close()
    said = capsys.readouterr()
    assert said.err.startswith("me@c:9 | ")
    assert "\ngpu-1  | " in said.err
    assert said.err.count("gpu-1") == 2
    assert said.err.endswith("said ***\n")
    assert "gpu-1  | first ***\ngpu-1  | second\n" in said.out
    assert "gpu-1   0     1.0 s  train-1 running: first ***\n" in said.out
    assert "b       3     2.0 s  no answer.\nme@c:9  0     1.0 s\n\nb: no answer." in said.out


def ended_by(what: str, rc: int) -> dict[str, object]:
    return {"run": {"name": "train-3", "state": "finished", "rc": rc, "ended": what}}


@pytest.mark.parametrize(
    ("result", "text", "said"),
    [
        (
            {"run": {"name": "train-1", "state": "running"}, "first_lines": ["warned", "loss 2"]},
            "  warned\n  loss 2\n  loss 1\n  saved\n\ngpu-1: run train-1: running",
            "train-1 running: loss 2",
        ),
        (
            {"run": {"name": "train-1", "state": "running"}},
            "\ngpu-1: run train-1: running",
            "train-1 running",
        ),
        ({"runs": [1, 2]}, "a: 1 file; its log\n  loss 2\nb: none\n  in x", "a: 1 file; b: none"),
        ({"runs": [*range(7)]}, "a\n" * 7, "a; a; a; a; a; and 2 more"),
        ({"verdict": {}}, "check  read\ndisk   1 TB\n\nKeep this box.", "Keep this box."),
        (ended_by("exit 0", 0), "", "train-3 finished"),
        (ended_by("exit 1", 1), "", "train-3 ended with exit code 1"),
        (ended_by("stop", 1), "", "train-3 stopped"),
    ],
)
def test_the_table_of_several_boxes_shows_the_verdict_or_the_first_own_line_of_each_run(
    result: dict[str, object], text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    screens = make_box_screens(HOSTS, make_screen(), as_json=False, brief=False)
    screens.of("gpu-1").result(result, text)
    ended(screens)
    screens.close()
    assert f" s  {said}\n" in capsys.readouterr().out


def test_the_table_of_several_boxes_wraps_in_a_narrow_terminal_and_cuts_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PlainScreen, "width", 40)
    screens = make_box_screens(HOSTS, make_screen(), as_json=False, brief=True)
    screens.of("gpu-1").result({}, said := "queued 3: lr=1e-3,seed=0, lr=1e-3,seed=2, lr=3e-4")
    ended(screens)
    screens.close()
    out = capsys.readouterr().out
    assert said in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 40


def test_brief_output_of_several_boxes_shows_only_the_first_line_of_a_result_in_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screens = make_box_screens(HOSTS, make_screen(), as_json=False, brief=True)
    screens.of("gpu-1").result({}, "\nfirst\nsecond")
    ended(screens)
    screens.close()
    out = capsys.readouterr().out
    assert "second" not in out
    assert "1.0 s  first" in out


def test_the_json_document_of_several_boxes_has_result_exit_code_and_error_of_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = make_screen(json=True)
    screens = make_box_screens(HOSTS, screen, as_json=True, brief=True)
    screens.of("gpu-1").result({"x": 1})
    ended(screens)
    screens.close()
    screen.close()
    boxes = json.loads(capsys.readouterr().out)["boxes"]
    assert [(one["host"], one["exit"], one.get("x")) for one in boxes] == [
        ("gpu-1", 0, 1),
        ("b", 3, None),
    ]
    assert boxes[1]["error"]["what"] == "no answer."


def test_a_command_for_several_boxes_shows_a_live_row_each_unless_it_prints_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    err, out = WideTerminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    screens = make_box_screens(HOSTS, make_screen(stream=err, out=out), as_json=False, brief=True)
    assert isinstance(screens, _LiveBoxes)
    streams = make_box_screens(HOSTS, make_screen(), as_json=False, brief=False, streams=True)
    streams.of("gpu-1").say("begun")  # a row would be drawn over what is printed meanwhile
    assert err.getvalue().endswith("begun\n")
    one = screens.of("gpu-1")
    one.plan(["repo", "python"])
    one.event(Event(setup="x", seq=1, t=1.0, step="repo", event="start"))
    row = next(line for line in screens._draw().plain.splitlines() if "gpu-1" in line)
    assert "repo" in row
    screens.of("b").lost(7)
    assert "link lost for 7" in screens._draw().plain
    one.warn("beware")
    ended(screens)
    assert "2 of 2 done" in screens._draw().plain
    screens.close()
    assert "gpu-1 | warning: beware" in out.getvalue()
    assert "b      3" in out.getvalue()


def test_text_that_a_box_sends_after_ctrl_c_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screens = make_box_screens(HOSTS, make_screen(), as_json=False, brief=True)
    screens.leave()
    screens.of("gpu-1").say("late")
    assert capsys.readouterr() == ("", "")
