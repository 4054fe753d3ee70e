"""The timeline in a real terminal: tmux draws it and reports what a user sees."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import contextlib, json, sys, time
from bootstrap.steps.events import parse_event
from bootstrap.ui.screens import make_screen

def ev(step, event, **fields):
    head = {"v": 1, "setup": "s", "seq": 1, "t": time.time(), "step": step, "event": event}
    return parse_event(json.dumps({**head, **fields}).encode())

with contextlib.closing(make_screen()) as screen:
    screen.note("box", "vast-5")
    screen.plan(["preflight", "gpu", "repo", "python"])
    screen.event(ev("preflight", "ok", secs=0.4))
    screen.event(ev("gpu", "start"))
    screen.event(ev("repo", "progress", done=12, total=38, unit="objects"))
    sys.stdin.readline()
    screen.event(ev("gpu", "warn", code="no-python"))
    screen.event(ev("gpu", "ok", secs=2))
    screen.event(ev("repo", "ok", secs=3))
    screen.event(ev("python", "fail", code="build-failed", secs=1))
    screen.log_tail("python", ["\\x1b[2J\\x1b[Herror: the end"])
    screen.result({}, "how to go on")
print("prompt")
time.sleep(60)
"""

TOP = """
import os, sys, time
from bootstrap.ui.screens import make_screen
from bootstrap.runs.top import BoxView, make_top_screen

screen = make_top_screen(sys.stdout, as_json=False, redact=str, env=dict(os.environ))
while not screen.is_left():
    screen.show([BoxView("my-box", "lost", "for 8 s")], None)
    time.sleep(0.05)
screen.close()
print("left at", make_screen().width, "columns:", sys.stdin.readline())
time.sleep(60)
"""


class Pane:
    """A tmux terminal, on a socket of its own."""

    def __init__(self, folder: Path, width: int, text: str = SCRIPT) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux.sock"), "-f", "/dev/null", "-u"]
        script = folder / "script.py"
        script.write_text(text)
        root = Path(__file__).parents[3]
        # A size from the environment must not count.
        env = f"PYTHONPATH={root} COLUMNS=300 LINES=3 PYTHONIOENCODING=utf-8"
        command = f"{env} {sys.executable} {script}"
        self("new-session", "-d", "-x", str(width), "-y", "30", command)

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], check=True, capture_output=True, encoding="utf-8"
        )
        return done.stdout

    def wait_for(self, text: str) -> list[str]:
        for _ in range(1000):
            lines = self("capture-pane", "-p").rstrip().splitlines()
            if any(text in line for line in lines):
                return lines
            time.sleep(0.1)
        pytest.fail("\n".join([f"no {text!r} in:", *lines]))


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
@pytest.mark.parametrize("width", [40, 100])
def test_setup_redraws_its_steps_after_a_resize_and_leaves_a_line_for_each(tmp_path, width):
    pane = Pane(tmp_path, width)
    try:
        first = pane.wait_for("setup")
        assert [line.split()[1] for line in first[1:]] == [
            *("preflight", "gpu", "repo", "python", "setup")
        ], first
        pane("resize-window", "-x", str(width + 15), "-y", "20")
        pane("send-keys", "bored", "Enter")
        last = pane.wait_for("prompt")
    finally:
        pane("kill-server")
    told = [line.rstrip() for line in last]
    assert not any("bored" in line for line in told)
    for mark, step in (("✓", "preflight"), ("!", "gpu"), ("✓", "repo"), ("✗", "python")):
        assert sum(line.startswith(f" {mark} {step} ") for line in told) == 1, told
    assert not any(line[1:2] in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" for line in told if line[1:2] and "setup" not in line)
    assert told[-3:] == [" | error: the end", "how to go on", "prompt"]


def test_q_ends_top_and_restores_the_terminal(tmp_path: Path) -> None:
    pane = Pane(tmp_path, 70, TOP)
    try:
        assert "my-box" in "".join(pane.wait_for("q leaves"))
        pane("send-keys", "x")
        pane("send-keys", "q")
        pane("send-keys", "a whole line", "Enter")
        shown = "\n".join(pane.wait_for("left at"))
        assert "left at 70 columns: a whole line" in shown
        assert "my-box" in shown
    finally:
        pane("kill-server")
