"""Draw a real run: python -m tests.docs.picture docs/run.svg     (or: make picture)

As root the main job runs on a *vast* box of the rig, with a repository, a profile and a key as a
user has them; else the demo runs on this machine. What the box told is drawn as it was told.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bootstrap.events import EventLines
from bootstrap.paths import shipped
from bootstrap.ui.picture import draw
from tests.cli import User

BOXSTRAP = Path(sys.executable).parent / "boxstrap"
REQUIREMENTS = "numpy\npandas\nscikit-learn\nmatplotlib\ntqdm\n"
PROFILE = """\
version: 1
ssh: {identity: ~/.ssh/id_gpu}
gpu: {require: false}          # the rig's machine has none
train: {command: python train.py, results: [out/]}
"""


def main() -> None:
    """Run, read the events, draw."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        title, words, events = (_on_a_box if os.geteuid() == 0 else _here)(home)
    lines = EventLines()
    Path(sys.argv[1]).write_text(draw(lines.feed(events), words, title=title), encoding="utf-8")
    print(f"{sys.argv[1]}: {title}")


def _on_a_box(home: Path) -> tuple[str, str, bytes]:
    from tests.boxes import Rig

    with Rig() as rig:
        box = rig.start("vast")
        repository = _repository(home)
        (home / ".ssh").mkdir(mode=0o700)
        shutil.copy(rig.identity, home / ".ssh/id_gpu")
        user = User(home)
        user.place = repository
        user.agree()
        words = ["setup", "--host", f"root@{box.address}", "--name", "my-box"]
        said = _boxstrap(home, repository, *words)
        events = box.run("cat /workspace/.boxstrap/setups/*/events.jsonl").encode()
    return " ".join(["boxstrap", *words]), said, events


def _here(home: Path) -> tuple[str, str, bytes]:
    said = _boxstrap(home, home, "demo")
    (events,) = home.glob("**/setups/*/events.jsonl")
    told = events.read_bytes()
    _boxstrap(home, home, "stop", "--host", "local")
    return "boxstrap demo", said, told


def _repository(home: Path) -> Path:
    """A user's repository, with the demo's training in it."""
    folder = home / "homework"
    shutil.copytree(shipped("templates") / "demo", folder)
    (folder / "requirements.txt").write_text(REQUIREMENTS, encoding="utf-8")
    (folder / "boxstrap.yaml").write_text(PROFILE, encoding="utf-8")
    git = ["git", "-C", str(folder), "-c", "user.name=Me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Fit a line"]):
        subprocess.run([*git, *words], check=True, env=_environment(home))
    return folder


def _boxstrap(home: Path, place: Path, *words: str) -> str:
    """What it prints on standard output; its progress is shown as it comes."""
    done = subprocess.run(
        [BOXSTRAP, *words], cwd=place, env=_environment(home), stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode()


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    own = {"HOME": home, "TMUX_TMPDIR": home, "BOXSTRAP_SSH_CONFIG": home / ".ssh/config"}
    return {**kept, **{name: str(path) for name, path in own.items()}, "GIT_CONFIG_NOSYSTEM": "1"}


if __name__ == "__main__":
    main()
