"""What became of the runs on a box, and of its last setup."""

from __future__ import annotations

import time

from bootstrap.after.choose import qualified, repository_names
from bootstrap.after.visit import visit
from bootstrap.contact import Asked
from bootstrap.link.said import number
from bootstrap.talk.hello import Hello
from bootstrap.talk.run import Run
from bootstrap.ui.screen import Screen
from bootstrap.ui.sizes import duration, size

_SHOWN = 10


def show_status(asked: Asked, screen: Screen) -> None:
    """Show both."""
    with visit(asked, screen) as there:
        hello = there.hello
        setup, names = _setup(hello), repository_names({run.repo_key for run in hello.runs})
        screen.result(
            {
                "box": there.box.known.name,
                "setup": {key: value for key, value in setup.items() if key != "text"},
                "runs": [
                    {**run.as_dict(), "repository": names[run.repo_key]} for run in hello.runs
                ],
            },
            "\n".join(status_lines(there.box.known.name, hello)),
        )


def status_lines(name: str, hello: Hello) -> list[str]:
    """What the box said, as people read it."""
    now = _box_time(hello)
    names = repository_names({run.repo_key for run in hello.runs})
    called = [qualified(run, names) for run in hello.runs[:_SHOWN]]
    width = max(map(len, called), default=0)
    runs = [
        _line(f"{name:<{width}}", run, now) for name, run in zip(called, hello.runs, strict=False)
    ]
    return [f"{name}: {_setup(hello)['text']}", *(runs or ["no run was started here"])]


def _setup(hello: Hello) -> dict[str, object]:
    last = hello.last_setup
    if hello.working:
        return {"id": hello.working[0], "state": "at work", "text": "a setup is at work"}
    if not last:
        return {"id": None, "state": "none", "text": "no setup was made here"}
    code = last.get("exit")
    if last.get("state") == "running":
        return {"id": last.get("setup"), "state": "cut", "text": "its last setup was cut short"}
    words = "is set up" if code == 0 else f"its last setup ended with exit code {code}"
    return {"id": last.get("setup"), "state": "over", "exit": code, "text": words}


def _box_time(hello: Hello) -> int:
    return number(hello.facts.get("time", "")) or int(time.time())


def _line(called: str, run: Run, now: int) -> str:
    age = duration(max(0, now - run.started))
    quiet = (
        f", last wrote {duration(max(0, now - run.written))} ago" if run.state == "running" else ""
    )
    return (
        f"  {called}  {run.outcome():<26} started {age} ago, "
        f"log {size(run.log_bytes)}{quiet}   {run.commit[:12]}  {run.command}"
    )
