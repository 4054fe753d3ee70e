import re
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from telling import RUN, STEPS, Clock, ev, paper, run_events, written

from bootstrap.steps.events import CODES, EVENTS, UNITS, WHY
from bootstrap.steps.plan import NAMES
from bootstrap.ui.screens import PlainScreen, make_screen
from bootstrap.ui.timeline import TimelineScreen

ENV = {"TERM": "xterm-256color"}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TimelineTerminal:
    """A timeline on a simulated terminal."""

    def __init__(self, width=80, height=24, encoding="utf-8", env=ENV) -> None:
        self.clock, self.stream, self.out = Clock(), paper(encoding), paper(encoding)
        self.console = Console(
            file=self.stream,
            force_terminal=True,
            width=width,
            height=height,
            no_color=bool(env.get("NO_COLOR")),
            _environ=env,
        )
        self.screen = TimelineScreen(
            self.stream, self.out, env=env, now=self.clock, console=self.console
        )

    def take(self, events) -> None:
        for event in events:
            self.clock.now = event.t
            self.screen._steps.take(event)

    def frame(self, height=None) -> list[str]:
        return [text.plain for text in self.screen.frame(self.console.width - 1, height)]


def until(t: float) -> list:
    return [ev(at, step, event, **fields) for at, step, event, fields in RUN if at <= t]


MIDDLE = [
    f" {mark} {step:<9}  {words:<53}  {seconds:>10}".rstrip()
    for mark, step, words, seconds in (
        ("✓", "preflight", "", "0.3 s"),
        ("!", "gpu", "the box has no tmux: training runs detached, with th…", "1.7 s"),
        ("*", "repo", "20 of 40 MB, 10 MB/s, 2.0 s left", "2.0 s"),
        ("·", "python", "", ""),
        ("·", "train", "", ""),
        ("*", "setup", "", "2.4 s"),
    )
]


def test_the_timeline_during_a_setup_shows_each_step_with_its_state():
    terminal = TimelineTerminal()
    terminal.screen._steps.plan(STEPS)
    terminal.take(until(2.4))
    terminal.clock.now = 2.4
    told = [re.sub(f"[{SPINNER}]", "*", line.rstrip()) for line in terminal.frame()]
    assert told == MIDDLE


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("price", [None, 1.2])
def test_no_line_of_the_setup_timeline_is_wider_than_the_terminal(width, price):
    terminal = TimelineTerminal(width)
    terminal.screen.price = price
    with closing(terminal.screen) as screen:
        screen.plan(STEPS)
        for event in run_events():
            terminal.clock.now = event.t
            screen.event(event)
            screen.lost(event.t)
            terminal.screen._live.refresh()
    for line in re.split(r"\r|\n", ESCAPES.sub("", written(terminal.stream))):
        if "tmux" not in line and "link back" not in line:  # printed sentences do wrap
            assert cell_len(line) <= max(width - 1, 20)


ANY_EVENT = st.tuples(
    st.floats(-1e9, 1e9),
    st.sampled_from((*NAMES, "setup")),
    st.sampled_from(sorted(EVENTS)),
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("done", "total", "secs"), st.floats(-(2.0**53), 2.0**53)),
            "unit": st.sampled_from(sorted(UNITS)),
            "why": st.sampled_from(sorted(WHY)),
            "code": st.sampled_from(sorted(CODES)),
        },
    ),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ANY_EVENT, max_size=20), st.integers(40, 200), st.integers(2, 30))
def test_the_timeline_of_a_setup_fits_the_terminal_whatever_a_box_sends(events, width, height):
    terminal = TimelineTerminal(width)
    terminal.screen.price = 1.2
    for t, step, event, fields in events:
        terminal.screen._steps.take(ev(t, step, event, **fields))
    lines = terminal.frame(height)
    assert len(lines) <= max(height, 3)
    assert all(cell_len(line) <= width - 1 for line in lines)


def test_a_terminal_of_few_lines_shows_running_and_failed_steps_first():
    terminal = TimelineTerminal()
    terminal.screen._steps.plan(STEPS)
    terminal.take(until(74.0)[:-1])
    terminal.screen._steps.take(ev(74, "train", "start"))
    shown = [line.split()[1] for line in terminal.frame(height=5)]
    assert shown == ["gpu", "python", "train", "more", "setup"]


def test_the_timeline_uses_plus_x_and_question_marks_if_the_terminal_has_no_utf8():
    terminal = TimelineTerminal(encoding="ascii")
    with closing(terminal.screen) as screen:
        screen.plan(STEPS)
        for event in run_events():
            screen.event(event)
        screen.say("naïve")
    told = written(terminal.stream)
    told = ESCAPES.sub("", told)
    assert " + preflight" in told
    assert " x python" in told
    assert "na?ve" in told


def test_no_color_removes_only_colours_from_the_timeline():
    for env, has_colour in ((ENV, True), ({**ENV, "NO_COLOR": "1"}, False)):
        terminal = TimelineTerminal(env=env)
        with closing(terminal.screen) as screen:
            screen.plan(["gpu"])
            screen.event(ev(0, "gpu", "ok"))
        assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", written(terminal.stream))) == has_colour


def test_the_timeline_of_a_setup_prints_the_row_of_a_finished_step_once():
    terminal = TimelineTerminal()
    with closing(terminal.screen) as screen:
        screen.plan(["gpu", "repo"])
        screen.event(ev(0, "gpu", "ok"))
        screen.log_tail("train", ["step 1"])
        before = len(written(terminal.stream))
        screen.event(ev(1, "repo", "start"))
    after = written(terminal.stream)[before:]
    assert "repo" in after
    assert "gpu" not in after


def test_twenty_thousand_setup_events_print_under_200_kb_to_the_terminal():
    terminal = TimelineTerminal()
    flood = [ev(0, "repo", "progress", done=n, total=10**6, unit="objects") for n in range(500)]
    with closing(terminal.screen) as screen:
        screen.plan(["repo"])
        for _ in range(40):
            for event in flood:
                screen.event(event)
    assert len(written(terminal.stream)) < 200_000


def test_the_terminal_cursor_is_shown_again_after_ctrl_c():
    terminal = TimelineTerminal()

    def interrupted() -> None:
        with closing(terminal.screen) as screen:
            screen.plan(["gpu"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    told = written(terminal.stream)
    assert told.rindex("\x1b[?25h") > told.rindex("\x1b[?25l")


class Tty:
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ({"TERM": "xterm"}, TimelineScreen),
        ({"TERM": "xterm", "NO_COLOR": "1"}, TimelineScreen),
        ({"TERM": "dumb"}, PlainScreen),
        ({"TERM": "unknown"}, PlainScreen),
    ],
)
def test_setup_draws_a_timeline_only_on_a_capable_terminal(env, kind):
    assert type(make_screen(stream=Tty(), out=paper(), env=env)) is kind
    assert type(make_screen(stream=paper(), out=paper(), env=env)) is PlainScreen
