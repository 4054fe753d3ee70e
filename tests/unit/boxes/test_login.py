"""The login that starts before a profile is read: to a known box, at its last address and user."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.boxes import BoxState, Run
from bootstrap.boxes import login as logins
from bootstrap.boxes.at_home import RunAtHome, all_kept, note_seen
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run_details import NO_DETAILS
from bootstrap.errors import HostKeyError, NoSuchRunError, UnreachableError
from bootstrap.link import CancelToken, KnownBox, forget_box, parse_host, record
from bootstrap.link.endpoint import resolve
from bootstrap.link.wire import LinkLost
from bootstrap.setup import Reporter, SetupRequest, context, sequence
from tests.cli import User
from tests.logins import Teller, login_to

HOST = "root@192.0.2.7:2222"
FINISHED = Run("k", "train-1", "finished", 0, 1, "c" * 40, "w", "train", 1, 2, "true")
Begin = Callable[..., "BoxLogin | None"]


@pytest.fixture
def begin(user: User, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Start a login to a box recorded with user `root` and this address; nothing is dialed."""
    for name, value in user.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(BoxLogin, "dial", lambda self: setattr(self, "_dialing", "dialed"))
    monkeypatch.setattr(logins.DeferredLogin, "begin", lambda self: None)
    box = KnownBox("gpu", HOST, address="192.0.2.7", port=2222, user="root", created=1.0)
    record.save_box(box)
    box.known_hosts.write_text("[192.0.2.7]:2222 ssh-ed25519 AAAA\n")
    return lambda host=HOST, **asked: sequence._begin_login(
        SetupRequest(host=host, **asked), Teller(pytest.fail), CancelToken()
    )


@pytest.mark.parametrize("host", [HOST, "gpu"])
def test_a_known_box_is_logged_in_to_before_the_profile_is_read(host: str, begin: Begin) -> None:
    login = begin(host)
    assert login
    assert login.name == "gpu"
    assert login.endpoint
    assert login.endpoint.label == HOST


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        (None, {}),
        ("root@192.0.2.8:2222", {}),
        ("me@192.0.2.7:2222", {}),
        ('"ssh -p 2222 root@192.0.2.7 -L 1:localhost:1"', {}),
        ("no such box", {}),
        (HOST, {"new_box": True}),
        (HOST, {"name": "../.."}),
    ],
)
def test_an_unknown_host_or_login_option_starts_no_login_before_the_profile_is_read(
    host: str | None, asked: dict[str, Any], begin: Begin
) -> None:
    login = begin(host, **asked)
    assert login is None or not (login._early or login._dialing)


PINS = [f"x ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 42}{last}\n" for last in "AE"]


def test_a_forgotten_box_with_a_new_host_key_gets_its_name_back_if_it_has_the_same_runs(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some boxes make new keys when they restart; another box at that place has other runs."""
    for name, value in user.env.items():
        monkeypatch.setenv(name, value)
    asked = lambda *_, **__: (BoxState(runs=(FINISHED,)), NO_DETAILS)  # noqa: E731
    monkeypatch.setattr("bootstrap.boxes.run_details.ask_details", asked)
    named, other = KnownBox("gpu", HOST, "192.0.2.7", 2222, "root", created=1.0), "192.0.2.7-2222"
    record.save_with_pin(named, PINS[0], is_new=True)
    RunAtHome("gpu", 1.0, HOST, FINISHED).save()
    forget_box(named)
    others = BoxState(runs=(replace(FINISHED, started=8),))
    for at, state, ask, name in (
        (2.0, others, BoxLogin.refresh, other),
        (3.0, BoxState(runs=(FINISHED,)), BoxLogin.refresh, "gpu"),
        (4.0, others, BoxLogin.refresh_details, "gpu"),
    ):
        monkeypatch.setattr(logins, "_probed", lambda *_, state=state: state)
        now = replace(named, name=other, created=at)
        record.save_with_pin(now, PINS[1], is_new=True)
        box = login_to(now, resolve(parse_host(HOST)))
        box._link = cast(Any, SimpleNamespace(wire=None))
        ask(box)
        assert box.name == name
        if name != other:
            assert [(one.box, one.created) for one in all_kept()] == [("gpu", at)]
            forget_box(box.known)


def test_the_error_of_an_unreachable_box_says_when_a_shared_connection_reached_it_last(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in user.env.items():
        monkeypatch.setenv(name, value)
    hours_ago = time.time() - 7200
    known = record.save_box(KnownBox("gpu", "root@127.0.0.1:1", "127.0.0.1", seen=hours_ago))
    note_seen(known, [FINISHED], str, every=True)
    dialing = login_to(known, resolve(parse_host("root@127.0.0.1:1")))._dialed()
    assert dialing
    with pytest.raises(UnreachableError, match=r"You were last on this box [\d.]+ s ago"):
        dialing.socket()


def test_the_first_login_to_a_box_uses_ssh_first_contact_of_the_profile(
    begin: Begin, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = begin("root@192.0.2.8:2222")
    assert found
    dialed = []
    monkeypatch.setattr(BoxLogin, "dial", lambda self: dialed.append(self.first_contact))
    said = SimpleNamespace(user=None, identity=None, first_contact="ask")
    loaded = cast(Any, SimpleNamespace(profile=SimpleNamespace(ssh=said)))
    request = SetupRequest(host="root@192.0.2.8:2222")
    login = context._box_of(request, loaded, Reporter(), CancelToken(), found)
    assert login is found
    assert dialed == ["ask"]


@pytest.mark.parametrize(
    ("ssh", "same"),
    [
        ({}, True),
        ({"user": "root"}, True),
        ({"user": "ubuntu"}, False),
        ({"identity": "~/.ssh/other"}, False),
    ],
)
def test_a_profile_with_another_user_or_identity_closes_the_early_login_and_starts_a_new_one(
    ssh: dict[str, str], same: bool, begin: Begin, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = user.home / ".ssh/other"
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_text("a key")
    begun = begin()
    assert begun
    closed = []
    monkeypatch.setattr(BoxLogin, "close", lambda self: closed.append(self.known))
    said = SimpleNamespace(user=None, identity=None, first_contact="pin")
    said.__dict__.update(ssh)
    loaded = cast(Any, SimpleNamespace(profile=SimpleNamespace(ssh=said)))
    request = SetupRequest(host=HOST)
    login = context._box_of(request, loaded, Reporter(), CancelToken(), begun)
    assert (login is begun) == same
    assert closed == ([] if same else [begun.known])
    assert replace(login.known, user="") == replace(begun.known, user="")


ABOUT = ("~", "homework-1", "r" * 40)
LAST = "of the last time"
SAID = BoxState({"user": "root"}, script=LAST, plan={"train": "done"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("has", "about", "script", "answer"),
    [
        # The box has the script that it was asked about: its plan is valid.
        (LAST, ABOUT, LAST, SAID),
        # The box lacks the script rendered now: there is no plan, and it is not asked again.
        (LAST, ABOUT, "new", replace(SAID, plan={})),
        ("", ABOUT, "new", replace(SAID, script="", plan={})),
        # Somebody has since set it up with exactly that script: its plan was not asked for.
        ("new", ABOUT, "new", None),
        (LAST, ("~", "other-2", "r" * 40), LAST, None),
        (LAST, ("/workspace", *ABOUT[1:]), "new", None),
    ],
)
def test_setup_asks_for_the_plan_again_if_the_plan_read_at_login_was_of_another_script(
    has: str,
    about: tuple[str, str, str],
    script: str,
    answer: BoxState | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logins, "_probed", lambda *_: replace(SAID, script=has))
    box = login_to(KnownBox("gpu", "local"), None)
    (box.workdir, box.repo_key, box.repo_root), box.known = (
        ABOUT,
        box.known.using(ABOUT[1], script=LAST),
    )
    box.begin()
    box.workdir, box.repo_key, box.repo_root = about
    monkeypatch.setattr(BoxLogin, "refresh", lambda *_: None)
    for expected in (answer, None):  # an answer is used once
        assert box.state_for(script) == expected
    box.close()


def test_no_command_that_goes_on_logs_in_again_to_a_box_that_was_forgotten_meanwhile(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pinned whichever box had that address by then, and gave it the other one's runs."""
    known = record.save_box(KnownBox("gpu", HOST, "192.0.2.7", 2222, "root"))
    box = login_to(known, resolve(parse_host(HOST)))
    box._link = cast(Any, SimpleNamespace(label="gpu"))
    monkeypatch.setattr(BoxLogin, "_dialed", pytest.fail)
    forget_box(known)
    with pytest.raises(HostKeyError, match="it was forgotten or given back here"):
        box._log_in_instead()


@pytest.mark.parametrize("ended", [0.0, 1001.0])
def test_a_box_was_reached_until_its_login_was_lost_or_closed_unless_it_was_given_up_meanwhile(
    ended: float, user: User
) -> None:
    """So is counted what it cost, if nobody can ask it any more."""
    for how in ("lost", "closed"):
        known = record.save_box(KnownBox(how, "local", seen=1000.0, ended=ended))
        box = login_to(known, None)
        if how == "lost":
            box.link.reconnect(LinkLost("gpu", "cut"))
        else:
            assert box.wire.alive()
            box.close()
        (seen,) = (one.seen for one in (record.load_box(known.folder),) if one)
        assert seen == pytest.approx(1000.0 if ended else time.time(), abs=60)


def test_the_error_that_no_run_was_started_says_if_a_setup_is_at_work_on_the_box() -> None:
    box = login_to(KnownBox("gpu", "local"), None)
    for working, hint in ((None, "To start one"), (("s", "0" * 64), "A setup is at work there")):
        box.state = BoxState(working=working)
        with pytest.raises(NoSuchRunError, match=f"no run was started on this box.\n{hint}"):
            box.runs(None)


def test_after_a_login_messages_show_hidden_in_place_of_each_secret_of_that_box(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdef12")
    box = login_to(KnownBox("gpu", "local", secrets=("HF_TOKEN",), price=0.5), None)
    assert box.wire.alive()
    assert box.reporter.redact("it said hf_abcdef12") == "it said [HF_TOKEN hidden]"
    assert box.reporter.price == 0.5
    box.close()
