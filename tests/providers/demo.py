"""Rent, train, give back, without an account: python -m tests.providers.demo    (make demo-rent)

Needs root. The account is simulated and the rented box is one of the rig; the commands are the real
program's, run as a user with their own home, repository and key. The box has its own account key
and reaches the account through a tunnel, so it holds its lease itself.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bootstrap.paths import shipped
from tests.boxes import Rig
from tests.cli import User
from tests.main_job.used import start_used
from tests.providers.accounts import (
    KEY,
    SimulatedAccount,
    SimulatedClock,
    SimulatedOffer,
    simulated,
)

KIND = "vast"
PROFILE = """\
version: 1
gpu: {name: RTX 4090, require: false}    # the rig's machine has none
train: {command: python train.py, results: [out/]}
"""
RESULT = """
from pathlib import Path
Path("out").mkdir(exist_ok=True)
Path("out/line.txt").write_text(f"y = {slope:.2f} x + {offset:.2f}\\n")
"""
TYPED = (
    *("boxstrap up --dry-run", "boxstrap up --max-price 0.60", "boxstrap wait"),
    *("boxstrap lease --extend 2h", "boxstrap boxes --all", "boxstrap down"),
    *("cat boxstrap-results/*/*/out/line.txt", "boxstrap boxes --all"),
)


def show(
    rig: Rig, home: Path, typed: Sequence[str] = TYPED, used: Path | None = None
) -> tuple[list[str], list[str]]:
    """Run all commands; return the ids rented and those destroyed. Raises CalledProcessError."""
    train = (shipped("templates") / "demo/train.py").read_text("utf-8") + RESULT
    print("building a box on this machine; the first one takes a few minutes", flush=True)
    with rentable(rig, home, train, used) as (user, account):
        env = {**user.env, "TERM": os.environ.get("TERM", "dumb")}
        for line in typed:
            print(f"\n$ {line}", flush=True)
            subprocess.run(["/bin/sh", "-c", line], cwd=user.place, env=env, check=True)
        return account.rented, account.destroyed


@contextmanager
def rentable(
    rig: Rig, home: Path, train: str, used: Path | None = None
) -> Iterator[tuple[User, SimulatedAccount]]:
    """A user in a repository with this training, and their account, which has a box to rent; one
    that was set up before, if the folder is given in which such are kept (`main_job/used.py`)."""
    user = User(home)
    made = {"train.py": train, "requirements.txt": "tqdm\n", ".gitignore": "out/\n"}
    user.repository(**made, **{"boxstrap.yaml": PROFILE})
    (home / ".ssh").mkdir(mode=0o700)
    for suffix in ("", ".pub"):
        shutil.copy(f"{rig.identity}{suffix}", home / f".ssh/id_ed25519{suffix}")
    with simulated("vast") as account:
        own = {"CONTAINER_ID": str(account.next_id), "CONTAINER_API_KEY": KEY}
        at_home = f"BOXSTRAP_VAST_API={account.url}\n"
        files = {"/root/onstart.sh": "true\n", "/etc/environment": at_home}
        of: Any = {"environ": own, "files": files}
        box = start_used(rig, KIND, used, **of) if used else rig.start(KIND, **of)
        port = account.url.rpartition(":")[2]
        there = box.ssh_command("-N", "-R", f"{port}:127.0.0.1:{port}")
        tunnel = subprocess.Popen(there, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            account.clock, account.loading_s = SimulatedClock(time.time), 3.0
            account.address = (box.address, box.port, box.user)
            account.offers = [
                SimulatedOffer(str(11 + at), price=price, billed=price + 0.01, region=region)
                for at, (price, region) in enumerate(((0.41, "Texas, US"), (0.36, "Sweden, SE")))
            ]
            user.env |= account.environment()
            yield user, account
        finally:
            tunnel.terminate()
            tunnel.wait()
            box.stop()


def main() -> int:
    """Run the demo."""
    with tempfile.TemporaryDirectory() as folder, Rig() as rig:
        try:
            show(rig, Path(folder) / "home")
        except subprocess.CalledProcessError as error:
            return error.returncode
    print("\nNothing was rented for real: the account and the box were simulated, and are gone.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
