"""Repositories in the states that users leave them in, by a seed, for tests of snapshots."""

import os
import random
import tempfile
from pathlib import Path

from tests.cases import read_cases
from tests.programs import captured
from tests.unit.repo.repositories import SampleRepository

FILES = {
    ".gitignore": "*.pt\n/runs/\n!keep.pt\nlogs/\n",
    "train.py": "print(1)\n",
    "README": "read me\n",
    "run.sh": "#!/bin/sh\n",
    "src/model.py": "layers = 3\n",
    "src/deep/er/data.csv": "a,b\n1,2\n",
    "src/.gitignore": "*.tmp\n!important.tmp\n",
    "docs/guide.md": "guide\n",
    "docs/old.md": "old\n",
    "empty": "",
    "weights.bin": bytes(range(256)) * 8,
    "tracked.pt": "tracked though it is ignored\n",
    "big.txt": "line\n" * 2000,
}

STATES = dict(read_cases(Path(__file__).with_name("states.txt"))[1:])
_WITH = """
set -eu
some() { echo "0.$RANDOM$RANDOM"; }
noise() { head -c "$1" "$NOISE"; }
put() {
  for name; do
    case $name in */*) mkdir -p -- "${name%/*}" ;; esac
    [ "$name" = - ] || { if [ "${!#}" = - ]; then cat; else some; fi >"./$name"; }
  done
}
link() {
  case $1 in */*) mkdir -p "${1%/*}" ;; esac
  rm -rf "$1"
  ln -s "$2" "$1"
}
commit() {
  git add -A
  git commit -q --allow-empty -m "$1"
}
"""


def put_into(repo: SampleRepository, state: str, rng: random.Random) -> None:
    """Type what leads to a state."""
    with tempfile.NamedTemporaryFile() as noise:
        noise.write(rng.randbytes(100_000))
        noise.flush()
        script = f"{_WITH}RANDOM={rng.randrange(32768)}\n{STATES[state]}"
        env = {**os.environ, "NOISE": noise.name}
        done = captured(["bash", "-c", script], cwd=repo.root, env=env, check=False)
    assert done.returncode == 0, (state, done.stderr)


# How the repository was made in which these happen.
GROUNDS = (*["plain"] * 3, "detached", "shallow", "worktree", "shared", "sha256", "packed")


def make_state(seed: int, folder: Path) -> tuple[SampleRepository, list[str]]:
    """Return the clean repository of a seed, and the states to put it in, in this order.

    Of any `len(STATES)` consecutive seeds each state is sure to be in one; others are random.
    """
    rng = random.Random(seed)
    ground = GROUNDS[seed % len(GROUNDS)]
    names = [*STATES]
    chosen = [names[seed % len(names)], *rng.sample(names, rng.randrange(1, 4))]
    chosen.sort(key="sparse".__eq__)  # git doesn't add what it hides
    return _ground(ground, folder), list(dict.fromkeys(chosen))


def _ground(ground: str, folder: Path) -> SampleRepository:
    folder.mkdir()
    origin = SampleRepository(folder / "origin")
    origin.root.mkdir()
    origin.git("init", "-q", *(["--object-format=sha256"] if ground == "sha256" else []))
    for name, content in FILES.items():
        origin.write(name, content)
    (origin.root / "run.sh").chmod(0o755)
    origin.git("add", "-f", ".")
    origin.git("commit", "-qm", "First")
    work = folder / "work"
    if ground == "shallow":
        origin.commit("Second", train_py="print(2)\n")
        origin.git("clone", "-q", "--depth=1", f"file://{origin.root}", str(work))
    elif ground == "worktree":
        origin.git("worktree", "add", "-q", str(work))
    elif ground == "shared":
        origin.git("clone", "-q", "--shared", ".", str(work))
    else:
        origin.root.rename(work)
    repo = SampleRepository(work)
    if ground == "detached":
        repo.git("checkout", "-q", "--detach")
    if ground == "packed":
        repo.git("gc", "-q")
    return repo
