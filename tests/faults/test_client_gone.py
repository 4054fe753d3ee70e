"""A setup waits for what the machine that started it sends, but not for longer than that exists."""

import time
from dataclasses import replace
from pathlib import Path

from tests.cli import LONG
from tests.faults.plugin import Faults
from tests.faults.program import with_numbers
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.main_job.slow import seen
from tests.waiting import wait_until

# The commit is never taken from the connection; the process that should take it outlives that.
NEVER = """\
mv /usr/bin/git /usr/bin/git.real
cat >/usr/bin/git <<'END'
#!/bin/bash
case " $* " in *' receive-pack '*) : >/tmp/sending; while :; do sleep 1; done ;; esac
exec /usr/bin/git.real "$@"
END
chmod +x /usr/bin/git
"""
PATIENCE_S = 6


def impatient(rented: Rented, folder: Path) -> Rented:
    return replace(rented, program=with_numbers(folder, CLIENT_PATIENCE_S=PATIENCE_S))


def test_setup_on_the_box_stops_waiting_for_the_commit_if_this_machines_command_is_killed(
    rent: Rent, faults: Faults, tmp_path: Path
) -> None:
    rented = impatient(rent("vast", used=True), tmp_path)
    rented.user.repository(boxstrap__yaml=LONG)
    rented.box.run(NEVER)
    with faults.attempt("client killed", at="sending the commit") as attempt:
        going = rented.begin("setup")
        wait_until(lambda: rented.box.exists("/tmp/sending"), going.said)
        time.sleep(PATIENCE_S + 2)  # as long as it lives, the box waits
        assert going.process.poll() is None, going.said()
        going.kill()
        going.close()
        attempt.begin()
        wait_until(lambda: "commit-missing" in "".join(seen(rented, "setups/*/events.jsonl")))
        attempt.noticed(at_most=PATIENCE_S + 5)
        rented.box.run("mv /usr/bin/git.real /usr/bin/git")
        rented.user.repository("other", boxstrap__yaml=LONG)
        rented.run("setup", "--wait", "1").must(0)


def test_setup_fails_in_a_minute_if_the_box_refuses_the_commit(
    rented: Rented, faults: Faults
) -> None:
    rented.user.repository(boxstrap__yaml=LONG)
    rented.box.run(NEVER.replace(": >/tmp/sending; while :; do sleep 1; done", "exit 3"))
    with faults.attempt("commit not taken"):
        done = rented.run("setup").must(7)
        assert done.seconds < 60
        assert "the box did not take the commit" in done.err
        rented.box.run("mv /usr/bin/git.real /usr/bin/git")
        rented.run("setup").must(0)
