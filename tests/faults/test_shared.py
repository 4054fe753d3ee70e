"""What becomes of the connection that stays open: it never fails a command, and costs little."""

import contextlib
import subprocess
import tempfile
import time

import pytest

from tests.faults.plugin import Faults
from tests.faults.test_disk_here import fill, mounted
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.main_job.test_shared import connected, logins
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.boxes,
    pytest.mark.sampled(of="module"),
    pytest.mark.usefixtures("keeps_open"),
]
NOTICED_S = 20
STAYS = "connection that stays open"


@pytest.fixture
def rented(rent: Rent) -> Rented:
    rented = rent("vast", used=True)
    rented.user.repository()
    contact(rented)
    return rented


def contact(rented: Rented) -> None:
    """Log in, and wait until the connection is open."""
    rented.run("doctor").must(0)
    wait_until(lambda: connected(rented))


def test_a_kept_open_connection_cut_in_use_is_noticed_and_logs_follow_shows_the_runs_last_lines(
    rented: Rented, faults: Faults
) -> None:
    """The run ends while the link is down."""
    rented.user.repository("short", train__py="import time\nprint('one', flush=True)\n"
                           "time.sleep(8)\nprint('two')\n")  # fmt: skip
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
        done = going.end().must(0)
        assert "link       back" in done.err
        assert done.out == "two\n"
        attempt.outcome("noticed, then the ordinary login")


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_status_still_logs_in_without_a_warning_when_the_state_folder_is_full_or_read_only(
    rent: Rent, faults: Faults, how: str
) -> None:
    rented = rent("vast")
    rented.user.repository()
    # Short, as the path of a socket must be.
    with tempfile.TemporaryDirectory(prefix="bx-") as short:
        rented.user.env["XDG_STATE_HOME"] = short
        state, options = rented.user.state, "size=64k,nr_inodes=32,mode=0700"
        with faults.attempt(STAYS, f"{how} folder") as attempt, mounted(state, "-o", options):
            rented.run("status", BOXSTRAP_KEEP_OPEN="0").must(0)
            if how == "full":
                fill(state)
                with contextlib.suppress(OSError):
                    while True:
                        (state / f"more-{time.monotonic_ns()}").touch()
            else:
                (state / "ssh").mkdir(mode=0o700)
                subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True)
            alone = rented.run("status", BOXSTRAP_KEEP_OPEN="0").must(0)
            for _ in range(2):
                assert rented.run("status").must(0).err == alone.err
            time.sleep(0.5)
            assert connected(rented) == []
            attempt.outcome("each command logs in, in silence")
