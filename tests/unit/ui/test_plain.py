from contextlib import closing

import pytest
from telling import STEPS, Clock, ev, paper, run_events, written

from bootstrap.ui.screen import TAIL_LINES
from bootstrap.ui.screens import MOST_LINES, PlainScreen, make_screen

GOLDEN = """\
12:00:00  commit     1a2b3c4 Fix the loss
12:00:00  plan       preflight, shell, gpu, repo, python, train
12:00:00  setup      start
12:00:00  preflight  start  checking whether this box can be set up
12:00:00  preflight  ok     0.3 s, $0.0001
12:00:00  gpu        start  asking the GPU
12:00:00  repo       start  new commit
12:00:01  gpu        warn   the box has no tmux: training runs detached, with the same log
12:00:02  gpu        ok     1.7 s, $0.0006, the box has no tmux: training runs detached, with the \
same log
12:00:07  repo       ...    39 of 40 MB, 6.1 MB/s, 0.2 s left
12:00:08  repo       ok     7.6 s, $0.0025, 39 MB
12:00:08  python     start  new requirements
12:00:14  python     ...    12 of 90 packages
12:01:14  python     fail   1 min 06 s, $0.02, a package could not be built or installed
12:01:14  train      skip   a step that it needs failed
12:01:14  setup      fail   1 min 14 s, $0.02
12:01:14  python     |      error: no such file
12:01:14  still here
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


def plain(clock, stream, out=None) -> PlainScreen:
    return PlainScreen(stream, out or paper(), now=clock, clock=clock.show)


def test_setup_without_a_terminal_is_shown_as_plain_lines(clock):
    stream, out = paper(), paper()
    with closing(plain(clock, stream, out)) as screen:
        screen.price = 1.2
        screen.note("commit", "1a2b3c4 Fix the loss")
        screen.plan(STEPS)
        for event in run_events():
            clock.now = event.t
            screen.event(event)
        screen.log_tail("python", [b"10%\r\x1b[31merror: no such file\x1b[0m\n"])
        screen.say("still here")
        screen.result({"run": "abc"}, "next: attach")
    assert written(stream) == GOLDEN
    assert written(out) == "next: attach\n"


def test_a_lost_link_to_a_box_is_shown_at_once_and_then_every_five_seconds(clock):
    stream = paper()
    screen = plain(clock, stream)
    for second in range(12):
        clock.now = second
        screen.lost(8 + second)
    screen.back()
    screen.back()
    assert written(stream) == (
        "12:00:00  link       lost   for 8 s; reconnecting; if the box is up, it continues\n"
        "12:00:05  link       lost   for 13 s; reconnecting; if the box is up, it continues\n"
        "12:00:10  link       lost   for 18 s; reconnecting; if the box is up, it continues\n"
        "12:00:11  link       back   after 19 s\n"
    )


def test_plain_output_of_endless_events_stops_at_a_limit_and_points_to_the_steps_log(clock):
    stream = paper()
    screen = plain(clock, stream)
    for t in range(2000):
        screen.event(ev(t, "repo", "start"))
        screen.event(ev(t, "repo", "ok"))
    lines = written(stream).splitlines()
    assert len(lines) == MOST_LINES
    assert "the step's log has all of them" in lines[-1]


def test_the_log_end_shown_for_a_step_has_limited_lines_and_width(clock):
    stream = paper()
    plain(clock, stream).log_tail("train", (b"x" * 1_000_000 for _ in range(100)))
    lines = written(stream).splitlines()
    assert len(lines) == TAIL_LINES
    assert max(map(len, lines)) < 2100
    stream = paper()
    log = [*(f"warning: {n}" for n in range(9)), "error: no solution", "warning: last"]
    plain(clock, stream).log_tail("python", log)
    shown = [line.rpartition("|")[2].strip() for line in written(stream).splitlines()]
    cause = ["error: no solution", "warning: last"]
    assert shown == ["warning: 0", "warning: 1", "warning: 2", "and 6 more", *cause]


def test_plain_output_shows_text_from_a_box_without_control_codes_and_secrets(clock):
    stream, out = paper(), paper()
    screen = plain(clock, stream, out)
    screen.redact = lambda text: text.replace("hunter22", "[PW hidden]")
    screen.say("a\x1b]0;t\x07b hunt\x1b[0mer22")
    screen.warn("c\x9b31m hunter22")
    screen.note("box\x1b[1m", "\u202ehunter22")
    screen.log_tail("x", ["hunter22"])
    screen.result({}, "\x1b[2Jhunter22")
    told = written(stream) + written(out)
    assert "hunter22" not in told
    assert told.count("[PW hidden]") == 5
    assert not set(told) & {"\x1b", "\x9b", "\u202e", "\x07"}


def test_output_to_a_stream_without_utf8_has_question_marks(clock):
    stream, out = paper("ascii"), paper("ascii")
    with closing(make_screen(stream=stream, out=out, env={"TERM": "xterm"})) as screen:
        assert isinstance(screen, PlainScreen)
        screen.say("naïve ✓")
        screen.result({}, "✓")
    assert written(stream).endswith("na?ve ?\n")
    assert written(out) == "?\n"
