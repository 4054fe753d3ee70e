"""What a metadata service tells, and what of it is a notice."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bootstrap.boxes.run import parse_interruption
from bootstrap.onbox.runs import notice
from bootstrap.onbox.runs.notice import Notice, NoticeHeeder, find_service
from tests.boxes.metadata_server import VM, MetadataHandler, notice_in
from tests.run_states import CASES, lay, some_processes
from tests.waiting import PATIENCE_S, slowness

Serve = Callable[..., None]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Makes a cloud answer here: `serve("ec2", rebalance="now")`, again with what else it tells."""
    state = tmp_path / "state.json"
    handler = type("Handler", (MetadataHandler,), {"state": state, "tokens": set()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(notice, "ADDRESS", server.server_address)
        monkeypatch.setattr(MetadataHandler, "woken", 1.0)

        def tell(cloud: str, **told: Any) -> None:
            handler.cloud = cloud  # type: ignore[attr-defined]
            new = state.with_suffix(".new")
            new.write_text(json.dumps(told))
            new.replace(state)

        yield tell
        server.shutdown()


def found(kind: type[object]) -> Any:
    service = find_service()
    assert isinstance(service, kind)
    return service


def test_an_ec2_interruption_is_read_even_after_the_metadata_token_expired(serve: Serve) -> None:
    serve("ec2")
    service = found(notice.Ec2Notices)
    assert service.look() is None
    serve("ec2", forget=True)
    assert service.look() is None
    serve("ec2", rebalance="2026-11-25T08:22:00Z")
    assert service.look() == Notice("ec2", ends=False)
    serve("ec2", action="stop", time="2017-09-18T08:22:00Z", rebalance="earlier")
    assert service.look() == Notice("ec2", 1505722920.0)
    serve("ec2", action="hibernate", time="2017-09-18T08:22:00Z")
    assert service.look() is None
    serve("ec2", broken=500)
    assert service.look() is None


@pytest.mark.slow
def test_a_google_cloud_preemption_between_two_requests_is_noticed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "LONG_POLL_S", 60)
    serve("gcp")
    service = found(notice.GoogleNotices)
    serve("gcp", preempted=True)
    began = time.monotonic()
    assert service.look() == Notice("gcp")
    assert time.monotonic() - began < 30
    serve("gcp")
    service = found(notice.GoogleNotices)
    told: list[Notice | None] = []
    waiting = threading.Thread(target=lambda: told.append(service.look()), daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert told == []
    serve("gcp", preempted=True)
    waiting.join(PATIENCE_S)
    assert told == [Notice("gcp")]


def test_azure_events_of_other_boxes_or_kinds_are_not_taken_as_interruption(serve: Serve) -> None:
    serve("azure")
    service = found(notice.AzureNotices)
    assert service.look() is None
    began = time.time()
    (event,) = notice_in(30)["events"]
    for other in ({"Resources": ["another"]}, {"EventType": "Freeze"}, {"EventType": "Reboot"}):
        serve("azure", events=[{**event, **other}])
        assert service.look() is None
    serve("azure", events=[{**event, "Resources": ["another"]}, event])
    got = service.look()
    assert got.by == "azure"
    assert began + 29 <= got.leaves <= time.time() + 30  # in whole seconds
    serve("azure", events=[{**event, "EventStatus": "Started", "NotBefore": ""}])
    assert service.look() == Notice("azure")
    assert VM in event["Resources"]


@pytest.mark.slow
def test_a_box_without_a_cloud_metadata_service_is_recognised_within_seconds(
    monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    serve("something else")
    monkeypatch.setattr(MetadataHandler, "do_GET", lambda one: one._say(200, "a web page"))
    began = time.monotonic()
    assert find_service() is None
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    monkeypatch.setattr(notice, "ADDRESS", address)
    assert find_service() is None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(notice, "ADDRESS", silent.getsockname())
        assert find_service() is None
    assert time.monotonic() - began < 3.5 * slowness()


def test_a_run_is_told_only_once_of_an_interruption_even_if_the_boxs_clock_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = some_processes()
    run = tmp_path / "runs/homework-1/train-1"
    lay(CASES["at work"], processes, run)
    ended: list[tuple[str, float]] = []
    monkeypatch.setattr(notice, "_end", lambda _, words, leaves: ended.append((words, leaves)))
    heeder = NoticeHeeder(tmp_path)
    assert len(heeder.heed(Notice("ec2", ends=False))) == 1
    assert heeder.heed(Notice("ec2", ends=False)) == []
    began = time.time()
    for far in (10.0, began + 10**6):
        for thread in heeder.heed(Notice("ec2", far)):
            thread.join()
    ((words, leaves),) = ended
    assert began + 10 <= leaves <= time.time() + 10
    told = parse_interruption(words)
    assert told is not None
    assert told.leaves - told.noticed in (9, 10)
    assert NoticeHeeder(tmp_path).heed(Notice("azure"))
    processes.close()
