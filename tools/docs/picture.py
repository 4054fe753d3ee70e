"""Draw docs/run.svg from a real run: python -m tools.docs.picture     (make picture)

Needs root: a setup runs on a *vast* box of the rig, with a user's repository, profile and key. Its
output and recorded events are kept next to this file; `--redraw` (make docs) draws them again
without a run.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bootstrap.paths import shipped
from bootstrap.steps.events import Event, EventLines
from tests.boxes import Rig
from tests.cli import User
from tools.docs.svg import draw

RECORDED = Path(__file__).with_name("recorded_run.json")
PICTURE = Path(__file__).parents[2] / "docs/run.svg"
NAME, KIND = "my-box", "vast"
PROFILE = """\
version: 1
ssh: {identity: ~/.ssh/id_gpu}
gpu: {require: false}          # the rig's machine has none
train: {command: python train.py, results: [out/]}
"""
REQUIREMENTS = "numpy\npandas\nscikit-learn\nmatplotlib\ntqdm\n"


@dataclass(frozen=True)
class Recording:
    """A run: the command typed, what it printed on standard output, its events as lines."""

    command: str
    output: str
    events: tuple[str, ...]

    def parsed(self) -> Iterable[Event]:
        """Its events."""
        return EventLines().feed("".join(f"{line}\n" for line in self.events).encode())


def record(rig: Rig, home: Path) -> Recording:
    """Set up a fresh box of the rig as a user with this home."""
    user = User(home)
    user.env["BOXSTRAP_SSH_CONFIG"] = str(home / ".ssh/config")
    demo = shipped("templates") / "demo"
    user.repository(
        train__py=(demo / "train.py").read_text(encoding="utf-8"),
        requirements__txt=REQUIREMENTS,
        boxstrap__yaml=PROFILE,
    )
    (home / ".ssh").mkdir(mode=0o700)
    shutil.copy(rig.identity, home / ".ssh/id_gpu")
    user.agree()
    box = rig.start(KIND)
    try:
        words = ["setup", "--host", f"root@{box.address}", "--name", NAME]
        done = user.run(*words).must(0)
        events = box.run("cat /workspace/.boxstrap/setups/*/events.jsonl")
    finally:
        box.stop()
    return Recording(" ".join(["boxstrap", *words]), done.out, tuple(events.splitlines()))


def read() -> Recording:
    """The run that the picture shows."""
    kept = json.loads(RECORDED.read_text(encoding="utf-8"))
    return Recording(kept["command"], kept["output"], tuple(kept["events"]))


def drawn(recording: Recording) -> str:
    """Return its picture as SVG."""
    return draw(recording.parsed(), recording.output, title=recording.command)


def main() -> None:
    """Record a run, unless `--redraw` is given, and draw it."""
    if "--redraw" not in sys.argv:
        with tempfile.TemporaryDirectory() as folder, Rig() as rig:
            recording = record(rig, Path(folder) / "home")
        text = json.dumps(asdict(recording), indent=1, ensure_ascii=False)
        RECORDED.write_text(f"{text}\n", encoding="utf-8")
    PICTURE.write_text(drawn(read()), encoding="utf-8")


if __name__ == "__main__":
    main()
