"""What becomes of the connection that stays open: it never fails a command, and costs little."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.boxes.loopback import LoopbackBox
from tests.cli import User, close_shared
from tests.faults.plugin import Faults
from tests.faults.test_disk_here import fill, mounted
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = [
    pytest.mark.boxes,
    pytest.mark.sampled(of="module"),
    pytest.mark.usefixtures("keeps_open"),
]

COSTS_S = 0.3
NOTICED_S = 20
STAYS = "connection that stays open"


@pytest.fixture
def rented(rent: Rent) -> Rented:
    rented = rent("vast")
    rented.user.repository()
    contact(rented)
    return rented


def contact(rented: Rented) -> None:
    """Log in, and wait until the connection is open."""
    rented.run("doctor").must(0)
    await_that(lambda: connected(rented.user))


def connected(user: User) -> list[str]:
    found = user.run("boxes", "--json").must(0).json()["boxes"]
    return [box["name"] for box in found if box["connected"]]


def await_that(there: Callable[[], object]) -> None:
    limit = time.monotonic() + 20
    while not there():
        assert time.monotonic() < limit, "it never came to be"
        time.sleep(0.05)


def logins(rented: Rented) -> int:
    return rented.box.read("/var/log/sshd.log").count("Accepted publickey")


def silent(rented: Rented, attempt: Callable[[], str]) -> None:
    """Check that a command says only what it says after a login of its own."""
    alone = rented.run("status", BOXSTRAP_KEEP_OPEN="0").must(0)
    assert attempt() == alone.err


def own_sockets(user: User) -> list[Path]:
    script = "from bootstrap.link import shared, record\n"
    script += "for box in record.all_boxes(): print(*shared._sockets(box), sep='\\n')"
    said = subprocess.run(
        ["python", "-c", script], env=user.env, capture_output=True, text=True, check=True
    )
    return [Path(line) for line in said.stdout.split()]


def test_cut_while_nobody_uses_it(rented: Rented, faults: Faults) -> None:
    """The box is gone for a while; the ordinary login says so, and works again afterwards."""
    config = rented.user.home / ".ssh/config"
    config.parent.mkdir(exist_ok=True)
    config.write_text("Host *\n    ConnectTimeout 2\n")
    with faults.attempt(STAYS, "cut while idle") as attempt:
        rented.box.blackhole(22)
        alone = rented.run("status", BOXSTRAP_KEEP_OPEN="0").must(3)
        done = rented.run("status").must(3)
        assert re.sub("[0-9.]+ s ago", "", done.err) == re.sub("[0-9.]+ s ago", "", alone.err)
        attempt.noticed(max(0.0, done.seconds - alone.seconds), at_most=2 * COSTS_S)
        rented.box.unblackhole()
        rented.run("status").must(0)
        attempt.outcome("the ordinary login, in silence")


def test_cut_while_a_command_uses_it(rented: Rented, faults: Faults) -> None:
    rented.user.repository("long", train__py="import time\nprint('one', flush=True)\n"
                           "time.sleep(600)\n")  # fmt: skip
    rented.run("setup").must(0)
    before = logins(rented)
    with faults.attempt(STAYS, "cut in use") as attempt:
        going = rented.begin("logs", "-f")
        assert going.line() == "one\n"
        assert logins(rented) == before
        rented.box.blackhole(22)
        attempt.begin()
        going.await_said("link       lost", timeout=NOTICED_S + 5)
        attempt.noticed(at_most=NOTICED_S)
        rented.box.unblackhole()
        going.await_said("link       back")
        going.interrupt()
        going.end()
        attempt.outcome("noticed, then the ordinary login")


def test_the_box_comes_back_with_another_key(rented: Rented, faults: Faults) -> None:
    with faults.attempt(STAYS, "another box at its address") as attempt:
        rented.box.power_off()
        rented.box.power_on()
        rented.box.new_host_key()
        rented.box.run("rm -f /var/log/sshd.log; touch /var/log/sshd.log")
        refused = rented.run("status").must(4)
        assert rented.box.known_fingerprint in refused.err
        assert logins(rented) == 0
        attempt.outcome("exit 4, nothing sent")


def test_a_socket_that_a_crash_left(rented: Rented, faults: Faults) -> None:
    with faults.attempt(STAYS, "socket left by a crash") as attempt:
        (path,) = own_sockets(rented.user)
        said = subprocess.run(
            ["ssh", "-F", "none", "-S", str(path), "-O", "check", "box"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        subprocess.run(
            ["kill", "-9", said.stderr.partition("pid=")[2].partition(")")[0]], check=True
        )
        silent(rented, lambda: rented.run("status").must(0).err)
        await_that(lambda: connected(rented.user))
        attempt.outcome("the ordinary login, in silence; opened again")


def test_a_box_that_stalls_every_channel(rented: Rented, faults: Faults) -> None:
    """It accepts what it is sent, and opens nothing."""
    with faults.attempt(STAYS, "channels stall") as attempt:
        before = logins(rented)
        rented.box.run("kill -STOP $(pgrep -f '[s]shd: root')")
        alone = rented.run("status", BOXSTRAP_KEEP_OPEN="0").must(0)
        done = rented.run("status").must(0)
        assert logins(rented) == before + 2
        assert done.err == alone.err
        attempt.noticed(max(0.0, done.seconds - alone.seconds), at_most=2 * COSTS_S)
        attempt.outcome("the ordinary login, in silence")


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_no_room_for_it(rent: Rent, faults: Faults, how: str) -> None:
    rented = rent("vast")
    rented.user.repository()
    rented.user.env["XDG_STATE_HOME"] = "/tmp/" + rented.user.home.name[:8]
    state = rented.user.state
    subprocess.run(["mkdir", "-p", str(state.parent)], check=True)
    try:
        options = "size=64k,nr_inodes=32,mode=0700"
        with faults.attempt(STAYS, f"{how} folder") as attempt, mounted(state, "-o", options):
            rented.run("status", BOXSTRAP_KEEP_OPEN="0").must(0)
            if how == "full":
                fill(state)
                while _another_file(state):
                    pass
            else:
                (state / "ssh").mkdir(mode=0o700)
                subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True)
            alone = rented.run("status", BOXSTRAP_KEEP_OPEN="0").must(0)
            for _ in range(2):
                assert rented.run("status").must(0).err == alone.err
            time.sleep(0.5)
            assert connected(rented.user) == []
            attempt.outcome("each command logs in, in silence")
    finally:
        subprocess.run(["rm", "-rf", str(state.parent)], check=True)


def _another_file(state: Path) -> bool:
    try:
        (state / f"more-{time.monotonic_ns()}").touch()
    except OSError:
        return False
    return True


def test_commands_at_once(rented: Rented, faults: Faults) -> None:
    with faults.attempt(STAYS, "four commands at once") as attempt:
        before = logins(rented)
        with ThreadPoolExecutor() as pool:
            done = list(pool.map(lambda _: rented.run("status"), range(4)))
        assert [one.rc for one in done] == [0] * 4
        assert logins(rented) == before
        close_shared(rented.user.env)
        with ThreadPoolExecutor() as pool:
            done = list(pool.map(lambda _: rented.run("status"), range(3)))
        assert [one.rc for one in done] == [0] * 3
        await_that(lambda: connected(rented.user))
        time.sleep(0.5)
        assert len(own_sockets(rented.user)) == 1
        attempt.outcome("one connection")


@pytest.fixture
def many(request: pytest.FixtureRequest) -> Iterator[list[LoopbackBox]]:
    boxes = [LoopbackBox() for _ in range(30 if request.config.option.every else 3)]
    yield boxes
    for box in boxes:
        box.stop()


def test_many_boxes_each_have_their_own(
    many: list[LoopbackBox], user: User, faults: Faults
) -> None:
    with faults.attempt(STAYS, "many boxes") as attempt:

        def ask(box: LoopbackBox) -> str:
            words = ("--host", box.host_string, "--identity", str(box.identity))
            return user.run("doctor", *words).must(0).out

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, many))
        await_that(lambda: len(connected(user)) == len(many))
        assert len(own_sockets(user)) == len(many)
        for box in many:
            box.kill_sshd()
        attempt.outcome(f"{len(many)}, each its own")
