"""A hand-made folder that looks like boxstrap's on a box."""

import base64
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.box_programs import lay_programs
from tests.run_states import identity

DEAD = "999999999 1 00000000-0000-0000-0000-000000000000"


def text_of(command: str) -> str:
    """Return the script inside a command line made by `shell_command`."""
    packed = re.search(r"echo (\S+) \| base64 -d\)\"'$", command)
    if packed:
        return base64.b64decode(packed[1]).decode()
    *_, decode, _, quote, bang, backslash, text = shlex.split(command)
    stand_ins = re.findall(r'r "(.)"', decode)
    for stand_in, meant in zip(stand_ins, (quote, bang, backslash, "\n"), strict=True):
        text = text.replace(stand_in, meant)
    return text


def told(kind: str = "run", **values: object) -> bytes:
    """Return a line of `onbox/runs/status.py`; of a run, unless `kind` says otherwise."""
    run = {"state": "running", "started": 1700000000, "commit": "a" * 40, "work": "w"}
    run |= {"session": "train", "command": "python x.py"}
    document = {"kind": kind, "run": "key-1/train-1", **(run if kind == "run" else {}), **values}
    return json.dumps(document).encode() + b"\n"


@dataclass(frozen=True)
class BoxHome:
    """`<workdir>/.boxstrap`."""

    workdir: Path

    @property
    def path(self) -> Path:
        return self.workdir / ".boxstrap"

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def run(self, name: str, **changes: str) -> None:
        """Write a run that finished with exit code 0, unless `changes` say otherwise."""
        files = {
            "command": "python train.py\n",
            "commit": "a" * 40 + "\n",
            "work": "w" * 64 + "\n",
            "session": "train\n",
            "started": "1700000000\n",
            "pid": f"{DEAD}\n{DEAD}\n",
            "exit": "0\n",
            "log": "step 1\n",
        }
        kept = {key: text for key, text in {**files, **changes}.items() if text}
        self.write({f"runs/homework-1/{name}/{key}": text for key, text in kept.items()})

    def listing(self) -> dict[str, tuple[float, bytes]]:
        """Return everything below the working folder, with modification times."""
        return {
            str(path.relative_to(self.workdir)): (
                path.lstat().st_mtime,
                path.read_bytes() if path.is_file() else b"",
            )
            for path in sorted(self.workdir.rglob("*"))
        }


@pytest.fixture
def box_home(tmp_path: Path) -> BoxHome:
    """A box with four runs and a running setup: train-3 and the setup have this process's id."""
    home = BoxHome(tmp_path / "it's a work dir")
    lay_programs(home.path / "box/current")
    here = identity(os.getpid())
    home.run("train-1")
    home.run("train-2", exit="3\n", log="no\nsuch data\n", times="1 0\n4 5\n9 13\n")
    home.run("train-3", exit="", pid=f"{here}\n{here}\n")
    home.run("train-4", exit="")
    home.write(
        {
            "lock": f"{here}\n{'b' * 64}\n20260101-000000-abcdef\n",
            "setups/20260101-000000-abcdef/status.json": '{"v":1,"setup":"20260101-000000-abcdef",'
            '"script":"x","state":"running","exit":0,"t":1.5}\n',
            "setups/20260101-000000-abcdef/pid": f"{here}\n",
            "setups/20260101-000000-abcdef/events.jsonl": "{}\n",
            "steps/homework-1/train.ok": "w" * 64 + "\n",
            "steps/homework-1/setup.sh": "printf 'plan\\ttrain\\tdone\\n'\n",
        }
    )
    return home
