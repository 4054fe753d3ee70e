"""Kill either side of a push, or cut its link, at random moments: all arrives unchanged, and little
of it is sent twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.cli import Completed, Running
from tests.faults.plugin import Faults
from tests.faults.test_sync_kills import cut_link, files, kill_program, kill_sshd
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.waiting import wait_until

pytestmark = pytest.mark.boxes

MIB = 2**20
LARGE, SMALL = 48 * MIB, 200
MB_S = 16.0
AGAIN = 16 * MIB
"""Bytes that may be sent again after a cut."""
TARGET = "/root/data"


def kill_there(rented: Rented, going: Running, chance: random.Random) -> None:
    """Kill the program that a push runs on the box."""
    rented.box.run("pkill -9 -f '[i]mport zlib,base64' || true")


KILLS = (
    ("kill -9 of sshd", kill_sshd),
    ("link cut", cut_link),
    ("kill -9 of the program", kill_program),
    ("kill -9 of the query on the box", kill_there),
)


def came(rented: Rented) -> int:
    """Return the bytes that came to the box."""
    return int(rented.box.read("/sys/class/net/eth0/statistics/rx_bytes"))


def full_disk(rented: Rented, source: Path, faults: Faults) -> None:
    """There is enough room when it is checked, and then there is none."""
    with faults.attempt("disk full", at="push") as attempt:
        going = rented.begin("push", str(source), "--to", "data")
        parts = rented.box.root / TARGET[1:]
        wait_until(lambda: list(parts.glob(".boxstrap-parts/*")), going.said)
        attempt.begin()
        rented.box.fill_disk(15)
        told = going.end().must(5).err
        assert "there is no room for it: its disk is full; " in told
        assert "no room for it: 5" in rented.run("push", str(source), "--to", "data").must(5).err
        rented.box.empty_disk()
        rented.run("push", str(source), "--to", "data").must(0)
        attempt.outcome("said, then finished")


def test_a_push_killed_at_a_random_moment(
    rent: Rent, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    rented = rent("smalldisk")
    source = rented.user.home / "data"
    (source / "small").mkdir(parents=True)
    (source / "large").write_bytes(seeded.randbytes(LARGE))
    for number in range(SMALL):
        (source / "small" / str(number)).write_bytes(seeded.randbytes(seeded.choice((0, 9000))))
    rented.box.limit(MB_S)
    usual = (LARGE + SMALL * 4500) / (MB_S * 1e6)
    there = rented.box.root / TARGET[1:]
    full_disk(rented, source, faults)
    assert files(there) == files(source)
    kills = 0
    for _ in range(max(2, request.config.getoption("tries") // 2)):
        rented.box.run(f"rm -rf {TARGET} /root/.boxstrap/data")
        before, cuts, ends = came(rented), 0, list[Completed]()
        going = rented.begin("push", str(source), "--to", "data")
        while len(ends) < 5:
            if cuts < 2:
                share = seeded.uniform(0.1, 0.5)
                what, kill = KILLS[kills % len(KILLS)]
                kills, cuts = kills + 1, cuts + 1
                with faults.attempt(what, at="push") as attempt:
                    time.sleep(share * usual)
                    attempt.begin()
                    kill(rented, going, seeded)
                    attempt.outcome("right after it")
            if cuts < 2 and going.process.poll() is None:
                continue
            ends.append(going.end())
            if ends[-1].rc == 0:
                break
            assert ends[-1].rc in {1, 3, -9}, ends[-1].text
            assert "Traceback" not in ends[-1].text
            going = rented.begin("push", str(source), "--to", "data")
        assert ends[-1].rc == 0, ends[-1].text
        assert files(there) == files(source)
        assert not (there / ".boxstrap-parts").exists()
        size = sum(len(data) for data, _ in files(source).values())
        assert came(rented) - before < 1.1 * size + cuts * AGAIN
    again = came(rented)
    assert "200 files" not in rented.run("push", str(source), "--to", "data").must(0).out
    assert came(rented) - again < MIB
