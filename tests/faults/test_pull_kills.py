"""Kill either side of a pull, or cut its link, at random moments: all arrives unchanged, little of
it is sent twice, and no incomplete file ever has its final name here."""

import hashlib
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.cli import Completed, Running
from tests.faults.plugin import Faults
from tests.faults.test_sync_kills import cut_link, kill_program, kill_sshd
from tests.main_job.rented import Rented

PROFILE = "version: 1\ngpu: {require: false}\ntrain: {command: 'true', results: [out/]}\n"
MIB = 2**20
LARGE, SMALL = 48 * MIB, 200
MB_S = 16.0
AGAIN = 16 * MIB
"""Bytes that may be sent again after a cut."""


def kill_there(rented: Rented, going: Running, chance: random.Random) -> None:
    """Kill the program that a pull runs on the box."""
    rented.box.run("pkill -9 -f '[i]mport zlib,base64' || true")


KILLS = (
    ("kill -9 of sshd", kill_sshd),
    ("link cut", cut_link),
    ("kill -9 of the program", kill_program),
    ("kill -9 of the query on the box", kill_there),
)


def digests(root: Path) -> dict[str, str]:
    """Return the digest of each result with its final name, without the log and record."""
    # `Path.rglob` fails on a folder that goes while it looks.
    found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
        if not {".boxstrap-parts", "boxstrap-run"} & {*path.parts}
        and path.name != "boxstrap-manifest.json"
    }


def went(rented: Rented) -> int:
    """Return the bytes that left the box."""
    return int(rented.box.read("/sys/class/net/eth0/statistics/tx_bytes"))


def test_the_next_pull_after_a_killed_pull_continues_without_fetching_much_again(
    rented: Rented, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    rented.user.repository(boxstrap__yaml=PROFILE)
    rented.run("setup").must(0)
    there = rented.box.root / rented.tree[1:]
    (there / "out/small").mkdir(parents=True, exist_ok=True)
    (there / "out/large").write_bytes(seeded.randbytes(LARGE))
    for number in range(SMALL):
        (there / f"out/small/{number}").write_bytes(seeded.randbytes(seeded.choice((0, 9000))))
    results = {f"out/{name}": digest for name, digest in digests(there / "out").items()}
    home = rented.user.home / "results"
    rented.box.limit(MB_S)
    usual = (LARGE + SMALL * 4500) / (MB_S * 1e6)
    kills = 0
    for _ in range(max(1, request.config.getoption("tries") // 2)):
        shutil.rmtree(home, ignore_errors=True)
        for record in rented.user.state.glob("boxes/*/pulls"):
            shutil.rmtree(record)
        before, cuts, ends = went(rented), 0, list[Completed]()
        going = rented.begin("pull", "--to", str(home))
        while len(ends) < 5:
            if cuts < 2:
                what, kill = KILLS[kills % len(KILLS)]
                kills, cuts = kills + 1, cuts + 1
                with faults.attempt(what, at="pull") as attempt:
                    time.sleep(2 + seeded.uniform(0.1, 0.5) * usual)
                    attempt.begin()
                    kill(rented, going, seeded)
                    attempt.outcome("right after it")
                assert digests(home).items() <= results.items()
            if cuts < 2 and going.process.poll() is None:
                continue
            ends.append(going.end())
            if ends[-1].rc == 0:
                break
            assert ends[-1].rc in {1, 3, -9}, ends[-1].text
            assert "Traceback" not in ends[-1].text
            going = rented.begin("pull", "--to", str(home))
        assert ends[-1].rc == 0, ends[-1].text
        assert digests(home) == results
        assert not (home / ".boxstrap-parts").exists()
        size = LARGE + SMALL * 4500
        assert went(rented) - before < 1.1 * size + cuts * AGAIN
    again = went(rented)
    rented.run("pull", "--to", str(home)).must(0)
    assert went(rented) - again < MIB
