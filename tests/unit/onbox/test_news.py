"""News of a run: each kind is found and told once, and no receiver hurts anybody."""

import json
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run, parse_details
from bootstrap.onbox import AGENT
from bootstrap.onbox.run_folder import lines_of
from bootstrap.onbox.runs import news, tell
from bootstrap.onbox.runs.news import NewsWatch, passed_on
from bootstrap.onbox.runs.tell import News, is_address, post, tell_all
from bootstrap.profile.load import read_commands
from bootstrap.runs.notifiers import notify
from bootstrap.runs.run_end import _Listener
from tests.plain_environment import HERE
from tests.receivers import WebReceiver, mail_receiver, web_receiver
from tests.unit.boxes.conftest import told

RUN = Run("homework-1", "train-1", "finished", 1, 1000, "", "", "train", 0, 9, "python t.py")
A_NEWS = News("end", 1000, "it ended with exit code 1", "train-1", "gpu")


class WatchedRun:
    """A box with one live run, looked at every ten seconds."""

    def __init__(self, home: Path) -> None:
        self.home, self.run, self.now = home, home / "runs/homework-1/train-1", 0.0
        self.run.mkdir(parents=True)
        self.tree = home / "homework"
        (self.tree / "out").mkdir(parents=True)
        self.write(dir=f"{self.tree}\n", log="start\n", results="out/\n", pid="1 1 x\n")
        self.watch = NewsWatch(home)
        self.watch._tell = lambda: None  # type: ignore[method-assign] # told below, by tell_all

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.run / name).write_text(text)

    def after(self, seconds: float = 10, *, live: bool = True) -> list[str]:
        """Let time pass; return what was found until then."""
        for _ in range(round(seconds / 10)):
            self.now += 10
            self.watch.turn([self.run] if live else [], self.now)
        rows = (line.split(" ", 2) for line in lines_of(self.run / "news"))
        return [f"{row[0]}: {row[2]}" for row in rows]

    def told(self) -> list[str]:
        """Return what is noted of telling, without times."""
        lines = (line.split(" ") for line in lines_of(self.run / "told"))
        return [" ".join([row[0], row[1], *row[3:]]) for row in lines]

    def status(self) -> tuple[str, ...]:
        """Return what `status` says of it."""
        failed = [line for line in lines_of(self.run / "told") if " failed " in line]
        line = told("untold", text="\n".join(failed))
        return parse_details(line).untold["key-1/train-1"]


@pytest.fixture
def there(tmp_path: Path) -> WatchedRun:
    return WatchedRun(tmp_path)


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as found:
        yield found


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tell, "PAUSES_S", (0.01, 0.01))
    monkeypatch.setattr(tell.post, "__defaults__", ((0.01, 0.01), tell.ASKED_S))


def test_the_first_loss_of_a_run_is_reported_once_even_by_a_second_monitor(
    there: WatchedRun,
) -> None:
    assert there.after() == []
    there.write(log="start\nlr 0.1\nstep 3 acc 0.5 loss 4.21\nstep 4 loss 4.2\nstep 5 lo")
    assert there.after(20) == ["loss: first loss: 4.21 at step 3"]
    # Another monitor knows what the one before found.
    there.watch = NewsWatch(there.home)
    assert there.after() == ["loss: first loss: 4.21 at step 3"]


def test_the_first_loss_is_reported_even_after_100000_log_lines_at_once(there: WatchedRun) -> None:
    there.write(log="x" * 300 + "\n")
    there.after()
    with (there.run / "log").open("a") as log:
        log.write("no number\n" * 100_000 + "loss 1\n")
    assert there.after() == ["loss: first loss: 1"]


def test_a_silent_run_is_reported_as_stalled_unless_its_results_grow(there: WatchedRun) -> None:
    there.after()
    assert there.after(news.STALL_S - 30) == []
    checkpoint = there.tree / "out/step-1.pt"
    checkpoint.write_text("x")
    assert there.after(news.LOOK_S * 2) == []
    os.utime(checkpoint, (1, 1))
    found = there.after(news.LOOK_S * 2)
    assert len(found) == 1
    assert found[0].startswith(
        "stall: it is silent: neither its log nor its results grew for 40 min"
    )
    assert there.after(7200) == found


def test_news_tell_of_a_low_disk_and_of_a_lease_about_to_end(there: WatchedRun) -> None:
    there.write(disk_low="19000000000 215000000000 700\n1 out/a\n")
    limits = {"hours": [3600.0 * 4, 3600.0 * 5], "dollars": [9.0, 10.0], "idle": [0.0, 600.0]}
    lease = there.home / "lease.state"
    lease.write_text(json.dumps({"limits": limits, "price": 0.5}))
    low = "disk: low disk: 19 of 215 GB free, full in about 11 min"
    assert there.after() == [low]
    limits["dollars"][0] = 9.9  # 12 minutes at 50 cents an hour
    lease.write_text(json.dumps({"limits": limits, "price": 0.5}))
    there.run.joinpath("disk_low").unlink()
    there.after()
    there.write(disk_low="19000000000 215000000000 -\n")
    assert there.after() == [low, "lease: the box's lease ends in about 12 min (dollars)"]
    for damaged in ("", "[]", '{"limits": 3}', '{"limits": {"hours": ["x"]}}'):
        lease.write_text(damaged)
        assert news.lease_ends(there.home) == ""


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"exit": "0\n", "ended": "exit 0\n"}, "it finished after 3 min"),
        ({"exit": "1\n", "ended": "pipeline 1 0\n"}, "it ended with exit code 1 after 3 min"),
        ({"exit": "0\n", "ended": "stop\n"}, "it was stopped after 3 min"),
        ({"exit": "143\n", "ended": "interrupted EC2\n"}, "it was interrupted after 3 min"),
    ],
)
def test_news_of_a_runs_end_say_whether_the_run_finished_failed_or_was_stopped(
    there: WatchedRun, files: dict[str, str], words: str
) -> None:
    there.after()
    there.write(**files)
    os.utime(there.run / "pid", (1000, 1000))
    os.utime(there.run / "exit", (1190, 1190))
    assert there.after(20, live=False) == [f"end: {words}"]


def test_each_news_of_a_run_is_posted_once_and_its_url_deleted_from_the_box_at_the_end(
    there: WatchedRun, web: WebReceiver
) -> None:
    address = f"{web.url}/services/a-secret"
    there.write(notify_to=f"- team gpu {address}\n- phone gpu ntfy+{web.url}/topic\n")
    there.write(log="loss 4\n")
    there.after()
    tell_all(there.home)
    tell_all(there.home)
    hook, phone = web.asked
    assert hook.path == "/services/a-secret"
    assert (
        hook.document["text"] == hook.document["content"] == "gpu: homework/train-1: first loss: 4"
    )
    assert (hook.document["event"], hook.document["box"]) == ("loss", "gpu")
    assert (phone.path, phone.body) == ("/topic", b"gpu: homework/train-1: first loss: 4")
    assert phone.headers["Title"] == "boxstrap: homework/train-1"
    assert {one.headers["User-Agent"] for one in web.asked} == {AGENT["User-Agent"]}
    there.write(exit="1\n", ended="exit 1\n")
    there.after(live=False)
    tell_all(there.home)
    assert [one.path for one in web.asked[2:]] == ["/services/a-secret", "/topic"]
    assert web.asked[3].headers["Priority"] == "high"
    assert not (there.run / "notify_to").exists()
    kept = " ".join(file.read_text() for file in there.run.iterdir())
    assert "a-secret" not in kept
    # A process that died while it told may have told.
    there.write(notify_to=f"- team gpu {address}\n", told="loss team 5 trying\n")
    tell_all(there.home)
    assert [one.document["event"] for one in web.asked[4:]] == ["end"]


@pytest.mark.parametrize(
    ("kind", "text", "priority"),
    [
        ("loss", "first loss: 4", "default"),
        ("end", "it finished after 2 min", "default"),
        ("end", "it was stopped after 2 min", "default"),
        ("end", "it ended with exit code 1 after 2 min", "high"),
        ("end", "it died, with its box or its runner", "high"),
        ("end", "it was interrupted after 2 min", "high"),
        ("stall", "it is silent", "high"),
    ],
)
def test_a_phone_notification_has_high_priority_only_for_failures_and_stalls(
    web: WebReceiver, kind: str, text: str, priority: str
) -> None:
    assert post(f"ntfy+{web.url}/topic", News(kind, 1000, text, "train-1", "gpu")) == ""
    assert web.asked[0].headers["Priority"] == priority


def test_a_new_receiver_gets_no_news_from_before_it_was_added(
    there: WatchedRun, web: WebReceiver
) -> None:
    there.write(log="loss 4\n", notify_to=f"loss,disk team gpu {web.url}\n", exit="0\n")
    there.after()
    there.after(live=False)
    tell_all(there.home)
    assert web.events() == ["end"]


def test_the_address_in_a_secret_gets_only_the_kinds_of_news_in_the_profile(
    there: WatchedRun, web: WebReceiver
) -> None:
    (there.home / "secrets").write_text(f"TOKEN=x y\0NOTIFY_URL={web.url}/secret\0")
    there.write(log="loss 4\n", notify="stall\nend\n")
    there.after()
    there.write(exit="0\n")
    there.after(live=False)
    tell_all(there.home)
    assert web.events() == ["end"]
    assert there.told() == ["end NOTIFY_URL trying", "end NOTIFY_URL told"]
    assert not (there.run / "notify").exists()


def test_a_failing_receiver_of_news_is_tried_three_times_and_named_by_status(
    there: WatchedRun, web: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.codes = [500, 503, 500]
    there.write(log="loss 4\n", notify_to=f"- team gpu {web.url}/a-secret\n")
    there.after()
    tell_all(there.home)
    tell_all(there.home)
    assert len(web.asked) == 3
    assert there.status() == ("could not tell team (loss): HTTP 500",)
    # What won't change is not tried again; nobody else is asked than who was chosen.
    for code in (404, 301, 302, 307):
        web.asked, web.codes = [], [code] * 3
        assert post(web.url, A_NEWS) == f"HTTP {code}"
        assert [one.path for one in web.asked] == ["/"]
    web.asked, web.codes = [], [429]
    assert post(web.url, A_NEWS) == ""
    monkeypatch.setattr(tell, "ANSWER_S", 0.2)
    web.slow_s = 0.5
    assert post(web.url, A_NEWS) == "no answer within 0 s"
    assert post("http://127.0.0.1:9/a-secret", A_NEWS) == "connection refused"
    assert "a-secret" not in post("http://[a-secret/", A_NEWS)


def test_sending_news_waits_for_a_short_retry_after_and_reports_one_of_an_hour(
    web: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = list[float]()
    clock = SimpleNamespace(sleep=pauses.append, time=time.time)
    monkeypatch.setattr(tell, "time", clock)
    web.codes, web.retry_after = [429, 503, 429], "7"
    assert post(web.url, A_NEWS) == "HTTP 429"
    web.codes, web.retry_after = [429], "3600"
    assert post(web.url, A_NEWS) == "HTTP 429; it asks to wait 3600 s"
    assert pauses == [7, 7]


def test_news_are_sent_only_to_an_http_or_ntfy_url() -> None:
    for text in ("https://a/b", " http://a ", "ntfy+https://ntfy.sh/x"):
        assert is_address(text), text
    for text in ("curl https://a", "ftp://a", "https://", "https://a b", "ntfy+ntfy+https://a", ""):
        assert not is_address(text), text


def recipes() -> str:
    """Return the recipes of docs/runs.md."""
    text = (HERE / "docs/runs.md").read_text()
    (block,) = re.findall(r"```\n(# ~/.config/boxstrap/notify.yaml\n.*?)```", text, re.DOTALL)
    return str(block)


Try = Callable[..., None]


@pytest.fixture
def try_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Let a recipe of the docs tell of an end, with other places in it; it must not fail."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def work(name: str, kind: str = "end", **instead: str) -> None:
        text = recipes()
        for before, after in instead.items():
            text, count = re.subn(rf"(https|smtps)://{before.replace('__', '.')}", after, text)
            assert count == 1
        file = tmp_path / "notify.yaml"
        file.write_text(text)
        file.chmod(0o600)
        wrong: list[str] = []
        found = read_commands(file, "")[name]
        notify({name: found}, RUN, "gpu", kind, "it ended with exit code 1", wrong.append)
        assert wrong == []

    return work


def test_the_documented_webhooks_and_phone_deliver_news(try_recipe: Try, web: WebReceiver) -> None:
    try_recipe("team", hooks__slack__com=web.url)
    try_recipe("discord", discord__com=web.url)
    try_recipe("phone", ntfy__sh=web.url)
    team, discord, phone = web.asked
    said = "gpu: train-1 ended with exit code 1"
    assert (team.path, team.document["text"]) == ("/services/T000/B000/XXXX", said)
    assert (discord.path, discord.document["content"]) == ("/api/webhooks/000/XXXX", said)
    assert (phone.path, phone.body.decode()) == ("/your-topic", said)


def test_the_documented_mail_receiver_delivers_the_news(try_recipe: Try, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password word\n")
    with mail_receiver() as server:
        try_recipe("mail", smtp__example__com=f"smtp://127.0.0.1:{server.port}")
        (mail,) = server.mails
    assert mail.startswith("Subject: gpu: train-1 ended with exit code 1\n\nend")
    said = b64encode(b"\0me\0word").decode()
    assert any(line.endswith(said) for line in server.commands)
    assert "MAIL FROM:<me@example.com>" in " ".join(server.commands)
    assert "RCPT TO:<me@example.com>" in server.commands


def test_the_documented_receivers_for_a_desktop_show_the_news(
    try_recipe: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, shown = tmp_path / "bin/notify-send", tmp_path / "shown"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{shown}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    try_recipe("desktop")
    try_recipe("only-the-end", "loss")
    try_recipe("only-the-end")
    assert shown.read_text() == "boxstrap gpu: train-1 ended with exit code 1\n" * 2


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("loss", "first val/loss_2: -1.5e-05 at epoch 2.5", ""),
        ("loss", "first loss: nan", ""),
        ("stall", "it is silent: neither its log nor its results grew for 1 h 05 min", ""),
        ("disk", "low disk: 19 of 215 GB free, full in about 11 min", ""),
        ("lease", "the box's lease ends in about 40 s (stall)", ""),
        ("end", "it ended with exit code 137 after 3 min", ""),
        ("loss", "first loss: 4\rBcc: all@example.com", "its first metric is there"),
        ("loss", "first @everyone: 4", "its first metric is there"),
        ("loss", "first evil.example/pay: 4", "its first metric is there"),
        ("loss", "first loss: 4\n", "its first metric is there"),
        ("stall", "it is silent. Log in at evil.example", "it is silent"),
        ("disk", "low disk: 19 of 215 GB free <b>", "its disk is low"),
        ("disk", "low disk: \u0661 of 215 GB free", "its disk is low"),
        ("lease", "the box's lease is over (<!here>)", "the box's lease is about to end"),
        ("end", "", "it ended"),
    ],
)
def test_forged_text_in_a_boxs_news_is_never_printed_or_sent_but_a_fixed_sentence(
    there: WatchedRun, web: WebReceiver, kind: str, text: str, told: str
) -> None:
    assert passed_on(kind, text) == (told or text)
    said = list[str]()
    screen: Any = SimpleNamespace(say=said.append, warn=said.append)
    box: Any = SimpleNamespace(name="gpu")
    run = Run("k-1", "train-1", "running", None, 1, "", "", "train", 0, 0, "python x")
    if kind != "end":
        _Listener(box, {}, screen).hear(run, "news", f"{kind} 5 {text}")
        assert said == [f"train-1: {told or text}"]
    if "\n" not in text and "\r" not in text:
        there.write(news=f"{kind} 5 {text}\n", notify_to=f"- team gpu {web.url}\n")
        tell_all(there.home)
        assert [one.document["says"] for one in web.asked] == [told or text]
