"""How `top` shows boxes."""

import io
import json
import time

import pytest

from bootstrap.boxes.run_history import Card, Machine, Process, RunNow, Sample
from bootstrap.runs.top import BoxView, LiveTable, TopScreen, make_top_screen

GIB = 1024**3


class TopTerminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


CARD = Card(
    index=0,
    name="NVIDIA A100-SXM4-80GB",
    load=97.0,
    memory_used=70 * GIB,
    memory_total=80 * GIB,
    power=391.4,
    power_limit=400.0,
    temperature=64.0,
    clock=1410,
    processes=(Process(pid=7, name="python", memory=69 * GIB),),
)
LOOK = Sample(
    t=1.0,
    host=Machine(
        cpus=32,
        cpu=12.0,
        memory_used=40 * GIB,
        memory_total=128 * GIB,
        disk_free=10**11,
        disk_total=1,
    ),
    gpus=(CARD, Card(index=1, name="NVIDIA A100-SXM4-80GB", error=15)),
    run=RunNow(name="train-2", repo="r", state="running", last="step 3 token=hunter22"),
    others=(RunNow(name="train-1", repo="r", state="running", last="step 7"),),
)


def live(name: str = "my-box") -> BoxView:
    return BoxView(name, "live", sample=LOOK, sampled=time.monotonic(), samples=1)


def redact(text: str) -> str:
    return text.replace("hunter22", "***")


def screen(out: io.StringIO, *, as_json: bool = False) -> TopScreen:
    return make_top_screen(out, as_json=as_json, redact=redact, env={})


def test_top_prints_plain_lines_where_there_is_no_terminal() -> None:
    out = TopTerminal()
    view = live()
    screen(out).show([view], view)
    lines = [line.partition("  ")[2] for line in out.getvalue().splitlines()]
    assert lines == [
        "my-box  GPU 0 A100-SXM4-80GB  97 %  70/80 GiB  391/400 W  64 °C  1410 MHz"
        "  python 69.0 GiB",
        "my-box  GPU 1 A100-SXM4-80GB  NVML error 15",
        "my-box  cpu 12 % of 32  memory 40.0/128.0 GiB  disk 100 GB free",
        "my-box  train-2 running: step 3 token=***",
        "my-box  train-1 running: step 7",
    ]


def test_top_without_a_terminal_prints_one_line_for_a_box_whose_link_is_lost() -> None:
    out = io.StringIO()
    plain = screen(out)
    view = BoxView("my-box", "lost", "for 2 s")
    for _ in range(3):
        plain.show([view], view)
    plain.show([view], None)
    assert out.getvalue().count("\n") == 1


def test_each_json_line_of_top_has_a_format_version_and_hides_secrets() -> None:
    out = io.StringIO()
    lines = screen(out, as_json=True)
    view, gone = live(), BoxView("other", "gone", "it is not the box that was pinned")
    lines.show([view], view)
    lines.show([view], None)
    lines.show([view, gone], gone)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["v"], first["box"], first["state"]) == (1, "my-box", "live")
    assert first["run"]["last"] == "step 3 token=***"
    assert second == {"v": 1, "box": "other", "state": "gone", "why": gone.why}


def drawn(views: list[BoxView], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "xterm")
    out = TopTerminal()
    table = make_top_screen(out, as_json=False, redact=redact, env={"TERM": "xterm"})
    assert isinstance(table, LiveTable)
    table.show(views, None)
    table.close()
    return out.getvalue()


def test_top_shows_a_live_table_of_several_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = live("silent-box")
    silent.sampled -= 30
    shown = drawn([live(), BoxView("lost-box", "lost", "for 8 s"), silent], monkeypatch)
    for text in ("my-box", "97 %", "391/400 W", "lost for 8 s", "silent for 30 s", "token=***"):
        assert text in shown, text
    assert "hunter22" not in shown


def test_rich_markup_from_a_box_is_shown_as_text_by_top(monkeypatch: pytest.MonkeyPatch) -> None:
    view = live()
    view.sample = LOOK.model_copy(update={"gpus": (Card(index=0, name="[red]A[/red]"),)})
    assert "[red]A[/red]" in drawn([view], monkeypatch)
