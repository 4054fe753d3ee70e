"""A box's answer about its servers is untrusted: an address on this machine is made from it."""

import json
from pathlib import Path

import pytest

from bootstrap.errors import BoxLacksError, StepFailedError
from bootstrap.link import LocalWire
from bootstrap.onbox.server import events_below
from bootstrap.onbox.step_report import StepError
from bootstrap.runs import tunnel
from bootstrap.runs.remote_command import RemoteProject
from bootstrap.runs.tunnel import JUPYTER, TENSORBOARD, Server, ServerKind, start_server

TOKEN = "0123456789abcdef" * 2


def told(monkeypatch: pytest.MonkeyPatch, kind: ServerKind, *lines: str) -> Server:
    """Return the server as read from a box that prints these lines to any query."""
    script = "".join(f"printf '%s\\n' '{line}'\n" for line in lines)
    monkeypatch.setattr(tunnel, "ask", lambda *_, **__: script)
    wire, project = LocalWire(), RemoteProject("/work/homework", "/work/homework/.venv")
    return start_server(wire, kind, home="/work/.boxstrap", project=project, doing=str)


def said(**values: object) -> str:
    return "server\t" + json.dumps({"port": 4000, "token": TOKEN, **values})


def test_tunnel_takes_port_and_token_of_jupyter_or_tensorboard_from_the_boxs_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = told(monkeypatch, JUPYTER, "found\tyes", said(url="http://evil.example"))
    assert (found.port, found.path, found.found) == (4000, f"/lab?token={TOKEN}", True)
    found = told(monkeypatch, TENSORBOARD, said(path_prefix=f"/{TOKEN}"))
    assert (found.port, found.path, found.found) == (4000, f"/{TOKEN}/", False)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        *((JUPYTER, line) for line in ("server\t{", "server\t[]", "server\t" + "[" * 3000)),
        *((JUPYTER, said(port=port)) for port in (0, 65536, -1, True, "22", 4000.5, None)),
        *(
            (JUPYTER, said(token=token))
            for token in ("", "short", f"{TOKEN}@evil", f"{TOKEN}\n", 7, None)
        ),
        *(
            (TENSORBOARD, said(path_prefix=path))
            for path in (f"{TOKEN}@evil", f"//evil.example/{TOKEN}", f"/{TOKEN}/..", "")
        ),
    ],
)
def test_a_jupyter_address_from_a_box_that_is_malformed_or_leads_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: ServerKind, line: str
) -> None:
    with pytest.raises(StepFailedError):
        told(monkeypatch, kind, line)


def test_tensorboard_shows_the_folder_above_all_event_files_of_the_repository(
    tmp_path: Path,
) -> None:
    with pytest.raises(StepError):
        events_below(str(tmp_path))
    deep = "out/" + "/".join("abcdef")
    for folder in ("out/b/x", ".venv/lib", f"{deep}/g"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "events.out.tfevents.1").touch()
    assert events_below(str(tmp_path)) == f"{tmp_path}/out/b"
    (tmp_path / deep / "events.out.tfevents.2").touch()
    assert events_below(str(tmp_path)) == f"{tmp_path}/out"


def test_why_jupyter_failed_to_start_is_shown_without_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(StepFailedError) as caught:
        told(monkeypatch, JUPYTER, "failed\tstart", "log\tno room \x1b[2J left")
    assert "Jupyter does not start:\nno room" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(BoxLacksError, match="nothing to install Jupyter with"):
        told(monkeypatch, JUPYTER, "")  # the box has no program
    with pytest.raises(BoxLacksError, match="--logdir"):
        told(monkeypatch, TENSORBOARD, "failed\tno-events")
    with pytest.raises(StepFailedError):
        told(monkeypatch, TENSORBOARD, "failed\tof its own making")
