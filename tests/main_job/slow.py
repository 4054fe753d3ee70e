"""A setup that lasts as long as a test needs, and what the box reports during it."""

import json
import time
from collections.abc import Callable

from tests.cli import LONG, UserRepository
from tests.main_job.own_backend import PROJECT, backend
from tests.main_job.rented import Rented
from tests.waiting import PATIENCE_S, wait_until

# A package whose build sleeps until /tmp/go-on exists, so that a setup lasts as a test needs.
BUILD = """\
import time
from collections.abc import Callable
limit = time.time() + 60
while not os.path.exists("/tmp/go-on") and time.time() < limit:
    time.sleep(0.1)
return write_wheel(folder, "slow.py", "")
"""


def slow(rented: Rented, name: str = "homework") -> UserRepository:
    """A repository whose environment is not built before /tmp/go-on exists."""
    project, builds = PROJECT.format(name="slow"), backend("slow", BUILD)
    return rented.user.repository(
        name, boxstrap__yaml=LONG, pyproject__toml=project, backend__py=builds
    )


def go_on(rented: Rented) -> None:
    rented.box.run("touch /tmp/go-on; chmod 666 /tmp/go-on")


def await_step(rented: Rented, step: str, event: str = "start") -> str:
    """Wait until a setup on the box reports this event; its id."""
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        found = "".join(seen(rented, "setups/*/events.jsonl"))
        for line in found.splitlines(keepends=True):
            told = json.loads(line) if line.endswith("\n") else {"step": "", "event": ""}
            if (told["step"], told["event"]) == (step, event):
                return str(told["setup"])
        time.sleep(0.1)
    raise AssertionError(f"no {event} of {step}:\n{found}")


def seen(rented: Rented, pattern: str) -> list[str]:
    """Texts of files in boxstrap's folder, read from outside: often, without starting a process."""
    folder = rented.box.root / "workspace/.boxstrap"
    return [path.read_text() for path in sorted(folder.glob(pattern))]


def await_nothing(rented: Rented, pattern: str) -> None:
    """Wait until no process has a command that matches."""
    found: Callable[[], str] = lambda: rented.box.run(f"pgrep -fa '{pattern}' || true")  # noqa: E731
    wait_until(lambda: not found(), found, pause=0.1)


def setups(rented: Rented) -> list[str]:
    return rented.box.run("ls /workspace/.boxstrap/setups").split()
