"""The login that starts before a profile is read: to a known box, at its last address and user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.cancel import CancelToken
from bootstrap.link import record
from bootstrap.link.handle import BoxHandle
from bootstrap.link.record import KnownBox
from bootstrap.protocol.probe import BoxState
from bootstrap.setup import context, early_login
from bootstrap.setup.early_login import EarlyLogin, ProbeRequest, begin_login
from bootstrap.setup.request import SetupRequest
from bootstrap.ui.reporter import Reporter
from tests.cli import User

HOST = "root@192.0.2.7:2222"
Begin = Callable[..., "EarlyLogin | None"]


@pytest.fixture
def begin(user: User, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Start a login to a box recorded with user `root` and this address; nothing is dialed."""
    for name, value in user.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(BoxHandle, "dial", lambda self: setattr(self, "_dialing", "dialed"))
    monkeypatch.setattr(EarlyLogin, "start", lambda self: None)
    box = KnownBox("gpu", HOST, address="192.0.2.7", port=2222, user="root", created=1.0)
    record.save(box)
    box.known_hosts.write_text("[192.0.2.7]:2222 ssh-ed25519 AAAA\n")
    return lambda host=HOST, **asked: begin_login(
        SetupRequest(host=host, **asked), pytest.fail, CancelToken()
    )


@pytest.mark.parametrize("host", [HOST, "gpu"])
def test_a_known_box_is_logged_in_to_at_once(host: str, begin: Begin) -> None:
    login = begin(host)
    assert login
    assert login.box.known.name == "gpu"
    assert login.box.endpoint
    assert login.box.endpoint.label == HOST


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
def test_what_is_not_plain_waits_for_the_profile(
    host: str | None, asked: dict[str, Any], begin: Begin
) -> None:
    login = begin(host, **asked)
    assert login is None or not (login._began or login.box._dialing)


def test_a_box_that_is_not_known_is_dialed_once_the_profile_is_read(
    begin: Begin, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = begin("root@192.0.2.8:2222")
    assert found
    dialed = []
    monkeypatch.setattr(BoxHandle, "dial", lambda self: dialed.append(self.first_contact))
    said = SimpleNamespace(user=None, identity=None, first_contact="ask")
    loaded = cast(Any, SimpleNamespace(profile=SimpleNamespace(ssh=said)))
    request = SetupRequest(host="root@192.0.2.8:2222")
    login = context._early_login(request, loaded, Reporter(), CancelToken(), found)
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
def test_a_profile_that_says_otherwise_has_another_login(
    ssh: dict[str, str], same: bool, begin: Begin, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = user.home / ".ssh/other"
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_text("a key")
    begun = begin()
    assert begun
    closed = []
    monkeypatch.setattr(EarlyLogin, "close", lambda self: closed.append(self.box.known))
    said = SimpleNamespace(user=None, identity=None, first_contact="pin")
    said.__dict__.update(ssh)
    loaded = cast(Any, SimpleNamespace(profile=SimpleNamespace(ssh=said)))
    request = SetupRequest(host=HOST)
    login = context._early_login(request, loaded, Reporter(), CancelToken(), begun)
    assert (login is begun) == same
    assert closed == ([] if same else [begun.box.known])
    assert replace(login.box.known, user="") == replace(begun.box.known, user="")


ASKED = ProbeRequest("~", "homework-1", "r" * 40, "of the last time")
SAID = BoxState({"user": "root"}, script="of the last time", plan={"train": "done"})


@pytest.mark.parametrize(
    ("script", "request_", "answer"),
    [
        # The box has the script that the probe asked about: its plan is valid.
        (ASKED.script, ASKED, SAID),
        # The box lacks the script rendered now: there is no plan, and no new probe is needed.
        (ASKED.script, ASKED._replace(script="new"), replace(SAID, plan={})),
        ("", ASKED._replace(script="new"), replace(SAID, script="", plan={})),
        # Somebody has since set it up with exactly that script: its plan was not asked for.
        ("new", ASKED._replace(script="new"), None),
        (ASKED.script, ASKED._replace(repo_key="other-2"), None),
        (ASKED.script, ASKED._replace(workdir="/workspace", script="new"), None),
    ],
)
def test_what_it_said_early_stands_for_what_it_would_say(
    script: str,
    request_: ProbeRequest,
    answer: BoxState | None,
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = replace(SAID, script=script)
    monkeypatch.setattr(early_login, "ask_box", lambda wire, request: said)
    monkeypatch.setattr(BoxHandle, "login", lambda self: object())
    monkeypatch.setattr(EarlyLogin, "start", lambda self: None)
    monkeypatch.setattr(EarlyLogin, "join", lambda self: None)
    login = begin()
    assert login
    login._request = ASKED
    login.run()
    assert login.answer(request_) == answer
    assert login.answer(request_) is None  # an answer is used once
