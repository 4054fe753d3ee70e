"""`wait`: how a run ended, why, and which of the user's commands run; also over a lost link."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.sizes import duration
from tests.cli import PROFILE, User
from tests.main_job.rented import Rented
from tests.receivers import web_receiver
from tests.used_here import seem_set_up
from tests.waiting import wait_until

LOCAL = (
    "version: 1\nextends: local\nbox: {workdir: ~/box}\nsecrets: [TOKEN]\n"
    "train: {command: python train.py}\n"
)
PLAIN = LOCAL.replace("secrets: [TOKEN]\n", "")
CRASH = """\
import os, time
print("step 1", flush=True)
while not os.path.exists("go-on"):
    time.sleep(0.05)
raise ValueError("bad token " + os.environ["TOKEN"])
"""
LONG = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
TOLD = 'tell: echo "$BOXSTRAP_MESSAGE|$BOXSTRAP_STATE|$BOXSTRAP_EXIT" >>~/told\nbad: exit 3\n'


def test_wait_for_a_failed_run_exits_with_10_shows_the_traceback_and_runs_the_notify_commands(
    user: User,
) -> None:
    notify = user.home / ".config/boxstrap/notify.yaml"
    notify.parent.mkdir(parents=True)
    notify.write_text(TOLD)
    seem_set_up(user, "box").repository(boxstrap__yaml="version: 1\n", train__py=CRASH)
    profile = user.home / "elsewhere.yaml"
    profile.write_text(LOCAL)
    setup = ("setup", "--host", "local", "--profile", str(profile))
    made = user.run(*setup, "--set", "box.price=36", TOKEN="hf_abcdefghij").must(0)
    assert re.search(r"setup +ok +[0-9.]+ s, \$0\.[0-9]", made.err)
    waiting = user.begin("wait", "--host", "local", TOKEN="hf_abcdefghij")
    waiting.await_said("must stay awake")
    (user.home / "box/homework/go-on").touch()
    waited = waiting.end().must(10)
    assert "train-1 ended with exit code 1" in waited.err
    assert "The log: boxstrap logs --host local --run train-1" in waited.err
    assert "| ValueError: bad token [TOKEN hidden]" in waited.out
    told = (user.home / "told").read_text()
    assert told.startswith("local: train-1 ended with exit code 1 after ")
    assert told.endswith("|finished|1\n")
    assert "notify.yaml: bad: it ended with 3" in waited.err
    # The run is already over, so no command runs; the reason is redacted without a value here.
    again = user.run("wait", "--host", "local", "--json").must(10).json()
    assert again["runs"][0]["failure"]["what"] == "ValueError: bad token [TOKEN hidden]"
    assert (user.home / "told").read_text() == told
    shown = user.run("status", "--host", "local").must(0).out
    assert "| ValueError: bad token [TOKEN hidden]" in shown
    # The price is recorded with the box, for every later command: a cent a second.
    assert again["runs"][0]["dollars"] == pytest.approx(again["runs"][0]["seconds"] / 100)
    took = again["runs"][0]["seconds"]
    assert f"{duration(took)}, ${took / 100:.2f}\n" in waited.out
    assert "  $36.00 an hour: about $" in shown
    assert "$36.00 an hour, about $" in user.run("boxes").must(0).out
    assert "hf_" not in waited.text + shown


LASTS = "echo begun; sleep 600"
"""A command without a line of output is looked at for half a minute before `run` returns."""
GOES_ON = """\
import os, time
print("step 1 loss 0.5", flush=True)
while not os.path.exists("go-on"):
    time.sleep(0.05)
print("step 2 loss 0.25", flush=True)
"""


def test_wait_and_stop_print_the_last_metric_and_exit_code_of_an_ended_run(user: User) -> None:
    seem_set_up(user, "box").repository(boxstrap__yaml=PLAIN, train__py=GOES_ON)
    to_local = ("--host", "local", "--json")
    user.run("setup", *to_local).must(0)
    waiting = user.begin("wait", *to_local, "--events")
    while (told := json.loads(waiting.line()))["event"] != "run":
        pass
    assert told["state"] == "running"
    (user.home / "box/homework/go-on").touch()
    (run,) = json.loads(waiting.end().must(0).out.splitlines()[-1])["runs"]
    (log,) = user.home.glob("box/.boxstrap/runs/*/train-1/log")
    assert (run["metric"], run["log_bytes"]) == ("step 2 loss 0.25", log.stat().st_size)
    assert "step 2 loss 0.25" in user.run("wait", "--host", "local").must(0).out
    # What `stop` ended is told likewise.
    user.run("run", *to_local, "--", LASTS).must(0)
    stopped = user.run("stop", *to_local).must(0).json()
    (run,) = stopped["runs"]
    assert (stopped["stopped"], run["state"], run["rc"]) == (["train-2"], "finished", 143)
    assert run["over"] >= 1
    user.run("run", *to_local, "--", LASTS).must(0)
    text = user.run("stop", "--host", "local").must(0).out
    assert text.startswith("stopped: train-3 of homework (was stopped after ")


def test_wait_continues_after_a_lost_link_and_leaves_no_process_on_the_box(rented: Rented) -> None:
    rented.user.repository(boxstrap__yaml=PROFILE, train__py=LONG)
    rented.run("setup").must(0)
    ended = rented.begin("wait")
    ended.await_said("waiting for homework/train-1")
    await_waiter(rented, is_there=True)
    ended.interrupt()
    assert "wait on" in ended.end().must(130).err
    await_waiter(rented, is_there=False)

    waited = rented.begin("wait")
    waited.await_said("waiting for homework/train-1")
    rented.box.kill_sshd()
    waited.await_said("lost")
    rented.box.start_sshd()
    rented.run("stop").must(0)
    assert "train-1 was stopped after" in waited.end().must(0).out
    await_waiter(rented, is_there=False)
    assert "nothing runs here" in rented.run("wait", "--all").must(0).out


def await_waiter(rented: Rented, *, is_there: bool) -> None:
    """Wait until the box's waiter is there or gone; each second it checks if anybody listens."""
    waiter: Callable[[], str] = lambda: rented.box.run("pgrep -f '[_]main__.py verbs ' || :")  # noqa: E731
    wait_until(lambda: bool(waiter().strip()) == is_there, pause=0.3)


TOLD_LATE = """\
import os, time
print("begun", flush=True)
for file in ("loss", "end"):
    while not os.path.exists(file):
        time.sleep(0.05)
    print("step 7 loss 4.5", flush=True)
"""


def is_asked_to_wait(home: Path) -> bool:
    """Whether a program of the box in this home is asked to wait."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = command.read_bytes() + command.with_name("environ").read_bytes()
            if b"python" in text.partition(b"\0")[0] and bytes(home) in text and b'"wait"' in text:
                return True
    return False


def test_wait_with_detach_returns_and_the_box_itself_sends_the_news_of_the_runs_end(
    user: User,
) -> None:
    with web_receiver() as web:
        notify = user.home / ".config/boxstrap/notify.yaml"
        notify.parent.mkdir(parents=True)
        # That this machine's own disk is low may be told, too: it is none of this test.
        tell = '[ "$BOXSTRAP_EVENT" = disk ] || echo "$BOXSTRAP_EVENT" >>~/told'
        notify.write_text(f"team: {web.url}/a-secret\ntell: '{tell}'\n")
        seem_set_up(user, "box").repository(boxstrap__yaml=PLAIN, train__py=TOLD_LATE)
        user.run("setup", "--host", "local").must(0)
        waiting = user.begin("wait", "--host", "local")
        waiting.await_said("must stay awake")
        # What the box notes before it is asked is old news.
        wait_until(lambda: is_asked_to_wait(user.home))
        (user.home / "box/homework/loss").touch()
        wait_until((user.home / "told").exists)
        assert (user.home / "told").read_text() == "loss\n"
        waiting.await_said("first loss: 4.5 at step 7")
        waiting.interrupt()
        waiting.end().must(130)
        assert web.events("disk") == ["loss"]

        left = user.run("wait", "--host", "local", "--detach", "--json").must(0)
        assert left.json()["told"] == ["team"]
        assert "a-secret" not in left.text
        (handed,) = (user.home / "box/.boxstrap/runs").glob("*/*/notify_to")
        assert handed.stat().st_mode & 0o777 == 0o600
        (user.home / "box/homework/end").touch()
        wait_until(lambda: web.events("disk") == ["loss", "end"])
        end = web.asked[-1].document
        assert (end["event"], end["text"].split(" after ")[0]) == (
            "end",
            "local: homework/train-1 finished",
        )
        wait_until(lambda: not handed.exists())
        # Who can't be told is told of.
        notify.write_text(f"team: {web.url}/a-secret\n")
        web.codes = [404, 404]
        user.run("run", "--host", "local", "--", LASTS).must(0)
        assert (
            "local tells team of homework/train-2"
            in user.run("wait", "--host", "local", "--detach").must(0).out
        )
        user.run("stop", "--host", "local").must(0)
        said = "could not tell team (end): HTTP 404"
        wait_until(lambda: said in user.run("status", "--host", "local").out, pause=1)
        notify.write_text("desktop: notify-send x\n")
        user.run("run", "--host", "local", "--", LASTS).must(0)
        refused = user.run("wait", "--host", "local", "--detach").must(2).err
        assert "no address that a box could post to" in refused
        user.run("stop", "--host", "local").must(0)


def test_the_url_in_the_secret_notify_url_is_told_the_end_and_exit_code_of_a_short_run(
    user: User,
) -> None:
    files = {"boxstrap__yaml": "version: 1\n", "train__py": "raise SystemExit(3)\n"}
    seem_set_up(user, "box").repository(**files)
    profile = user.home / "elsewhere.yaml"
    text = LOCAL.replace("TOKEN", "NOTIFY_URL") + "notify: [end]\n"
    setup = ("setup", "--host", "local", "--profile", str(profile))
    with web_receiver() as web:
        address = f"{web.url}/a-secret"
        profile.write_text(text.replace("secrets: [NOTIFY_URL]\n", ""))
        assert "NOTIFY_URL must be listed" in user.run(*setup, NOTIFY_URL=address).must(2).err
        profile.write_text(text)
        user.run(*setup, NOTIFY_URL=address).must(10)
        wait_until(lambda: web.asked)
        (end,) = web.asked
        assert (end.path, end.document["event"]) == ("/a-secret", "end")
        assert end.document["says"].startswith("it ended with exit code 3")
