"""Heed a notice that the box is about to be taken away: its runs save their work and end in time.

A thread of the monitor looks once, at its start, which cloud's metadata service answers, at its
link-local address alone: a name could be answered by anybody. It then asks that one until a notice
comes. RUN/interrupted then says by whom: `ec2 1763714700 1763714820`, with the second of the notice
and the one in which the box goes. `run_processes` limits a run's grace by it, and the run's end
is recorded as `interrupted` with these words. RUN/on_notice is the profile's command for it.

The stop of a container is told by SIGTERM: to this process if PID 1 sends that to all, or to the
carrier of a door, which then runs `onbox runs.notice BOX_HOME`.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..run_folder import RunFolder, runs_below, write_whole
from ..run_processes import stop_run
from ..run_queue import take_out

ADDRESS = "169.254.169.254", 80
ANSWERS_S = 1.0
"""How long a service may take to show itself, in seconds."""
PATIENCE_S = 5.0
WAKES_S = 150.0
"""Azure's first answer may take two minutes: it switches the service on."""
LONG_POLL_S = 300
NOTE, COMMAND = "interrupted", "on_notice"
LEADS_S = {"ec2": 120.0, "gcp": 30.0, "azure": 30.0, "container": 10.0}
"""Seconds from a notice until the box goes, where it does not say, or its clock is wrong."""
SHORTEST_S = 10.0
LAST_S = 10.0
"""Seconds before the box goes in which a run with a command of its own is asked to end."""
OVER_S = 60.0
_MOST, _LONGEST, _MOST_HEADERS = 64 * 1024, 8192, 100


class Notice(NamedTuple):
    """`leaves`: the second in which the box goes, if it is told. `ends`: whether it goes at all;
    else its cloud only says that it might soon."""

    by: str
    leaves: float | None = None
    ends: bool = True


FAILURES = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What a service that isn't there, or answers nonsense, leads to."""


class MetadataAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    text: str


def ask(
    method: str, path: str, headers: Mapping[str, str], wait_s: float = PATIENCE_S
) -> MetadataAnswer:
    """Ask the metadata service, past any proxy. Raises OSError, ValueError for nonsense.

    By hand: http.client loads OpenSSL, which is a quarter of what the monitor may take.
    """
    length = {"Content-Length": "0"} if method == "PUT" else {}
    named = {"Host": ADDRESS[0], "Connection": "close", **length, **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    with socket.create_connection(ADDRESS, wait_s) as link:
        link.sendall("\r\n".join([*lines, "", ""]).encode())
        with link.makefile("rb") as answer:
            words = answer.readline(_LONGEST).split()
            got = dict(_headers(answer))
            body = _body(answer, got)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError(words)
    return MetadataAnswer(int(words[1]), got, body.decode("utf-8", "replace"))


def _headers(answer: BinaryIO) -> Iterator[tuple[str, str]]:
    for _ in range(_MOST_HEADERS):
        line = answer.readline(_LONGEST).decode("latin-1").strip()
        if not line:
            return
        name, _, value = line.partition(":")
        yield name.strip().lower(), value.strip()
    raise ValueError


def _body(answer: BinaryIO, headers: Mapping[str, str]) -> bytes:
    """Read what comes after the headers (RFC 9112, 6.3). Raises ValueError if it was cut."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        whole = b""
        while size := int(answer.readline(_LONGEST).split(b";")[0], 16):
            whole += answer.read(min(size, _MOST))
            answer.readline(_LONGEST)
            if len(whole) > _MOST:
                raise ValueError
        return whole
    length = headers.get("content-length")
    if length is None:
        return answer.read(_MOST)
    body = answer.read(min(int(length), _MOST))
    if len(body) < min(int(length), _MOST):
        raise ValueError(length)
    return body


class Ec2Notices:
    """Amazon EC2, by IMDSv2: spot notices, and recommendations to rebalance."""

    every_s = 5.0

    def __init__(self) -> None:
        self._token = self._new_token(ANSWERS_S)

    def look(self) -> Notice | None:
        """A hibernated box goes on where it was, so that is none."""
        told = self._get("spot/instance-action")
        if told and told["action"] != "hibernate":
            moment = time.strptime(told["time"], "%Y-%m-%dT%H:%M:%SZ")
            return Notice("ec2", calendar.timegm(moment))
        advice = self._get("events/recommendations/rebalance")
        return Notice("ec2", ends=False) if advice else None

    @staticmethod
    def _new_token(wait_s: float = PATIENCE_S) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
        answer = ask("PUT", "/latest/api/token", headers, wait_s)
        if answer.status != 200:
            raise ValueError(answer.status)
        return answer.text

    def _get(self, name: str) -> Any:  # noqa: ANN401 - as it is answered
        """Return what is there; None if nothing is."""
        for _ in range(2):
            headers = {"X-aws-ec2-metadata-token": self._token}
            answer = ask("GET", f"/latest/meta-data/{name}", headers)
            if answer.status != 401:
                return json.loads(answer.text) if answer.status == 200 else None
            self._token = self._new_token()
        return None


class GoogleNotices:
    """Google Cloud: one request waits until the box is preempted."""

    every_s = 1.0
    _HEADERS: Mapping[str, str] = {"Metadata-Flavor": "Google"}

    def __init__(self) -> None:
        self._tag = ""
        self._is_preempted = self._ask(ANSWERS_S)

    def look(self) -> Notice | None:
        """Wait for a change; it is known since `_tag`, so none between two requests is missed."""
        if not self._is_preempted:
            self._is_preempted = self._ask(
                LONG_POLL_S + PATIENCE_S,
                f"?wait_for_change=true&timeout_sec={LONG_POLL_S}&last_etag={self._tag}",
            )
        return Notice("gcp") if self._is_preempted else None

    def _ask(self, wait_s: float, words: str = "") -> bool:
        path = f"/computeMetadata/v1/instance/preempted{words}"
        answer = ask("GET", path, self._HEADERS, wait_s)
        if answer.status != 200 or answer.headers.get("metadata-flavor") != "Google":
            raise ValueError(answer.status)
        self._tag = answer.headers.get("etag", "0")
        return answer.text.strip() == "TRUE"


class AzureNotices:
    """Azure's Scheduled Events. Events of other boxes of a group are told, too."""

    every_s = 1.0
    _HEADERS: Mapping[str, str] = {"Metadata": "true"}

    def __init__(self) -> None:
        self._wait_s = WAKES_S
        self._name: str = self._get("instance/compute?api-version=2021-02-01", ANSWERS_S)["name"]

    def look(self) -> Notice | None:
        """Reboots, freezes and moves are none."""
        events = self._get("scheduledevents?api-version=2020-07-01", self._wait_s)["Events"]
        self._wait_s = PATIENCE_S
        for event in events:
            if event["EventType"] in ("Preempt", "Terminate") and self._name in event["Resources"]:
                import email.utils  # Azure's boxes alone need it

                moment = event.get("NotBefore")  # empty once it has begun
                when = email.utils.parsedate_to_datetime(moment).timestamp() if moment else None
                return Notice("azure", when)
        return None

    def _get(self, path: str, wait_s: float) -> Any:  # noqa: ANN401
        answer = ask("GET", f"/metadata/{path}", self._HEADERS, wait_s)
        if answer.status != 200:
            raise ValueError(answer.status)
        return json.loads(answer.text)


def find_service() -> Ec2Notices | GoogleNotices | AzureNotices | None:
    """Return the metadata service of this box's cloud; None if none answers."""
    with contextlib.suppress(OSError):
        socket.create_connection(ADDRESS, ANSWERS_S).close()
        for kind in (Ec2Notices, GoogleNotices, AzureNotices):
            with contextlib.suppress(*FAILURES):
                return kind()
    return None


class NoticeHeeder:
    """Lets the runs of a box save their work and end, each once for each kind of notice."""

    def __init__(self, box_home: Path) -> None:
        self._home = box_home
        self._told: set[tuple[Path, bool]] = set()
        self._seen: dict[Notice, tuple[float, float]] = {}
        """When a notice came, and when the box goes."""

    def heed(self, notice: Notice) -> list[threading.Thread]:
        """Tell the live runs; return a thread for each that is told now, which ends with it."""
        now = time.time()
        lead = LEADS_S[notice.by] if notice.leaves is None else notice.leaves - now
        lead = min(max(lead, SHORTEST_S), LEADS_S[notice.by])
        seen, leaves = self._seen.setdefault(notice, (now, now + lead))
        if notice.ends and now > leaves + OVER_S:  # the box is still here
            return []
        words = f"{notice.by} {int(seen)} {int(leaves)}"
        if notice.ends:  # else a queued run would start when a live one ends
            take_out(runs_below(self._home / "runs"), f"{NOTE} {words}")
        begun = []
        for run in self._live():
            if (run, notice.ends) in self._told:
                continue
            self._told.add((run, notice.ends))
            work = (run, words, leaves) if notice.ends else (run,)
            begun.append(threading.Thread(target=_end if notice.ends else _save, args=work))
            begun[-1].start()
        return begun

    def _live(self) -> Iterator[Path]:
        for run in runs_below(self._home / "runs"):
            if run.is_running:
                yield Path(run.path)


def _end(run: Path, words: str, leaves: float) -> None:
    """Ask a run to end: by its profile's command if it has one, and else, or if it is still alive
    when the box is about to go, as `stop` does."""
    with contextlib.suppress(OSError):  # a full disk: it is to end all the same
        write_whole(run / NOTE, f"{words}\n")
    if _save(run):
        while time.time() < leaves - LAST_S and RunFolder(run).is_running:
            time.sleep(0.5)
    stop_run(RunFolder(run))


def _save(run: Path) -> subprocess.Popen[bytes] | None:
    """Start the profile's command for it in the run's environment, if there is one."""
    try:
        command = (run / COMMAND).read_text()
        folder, venv = ((run / name).read_text().strip() for name in ("dir", "venv"))
        child = (run / "pid").read_text().splitlines()[1].split()[0]
        log = (run / "log").open("ab")
    except (OSError, IndexError):
        return None
    own = {name: value for name, value in os.environ.items() if name != "LC_ALL"}
    own.update(BOXSTRAP_RUN=str(run), BOXSTRAP_PID=child, PYTHONUNBUFFERED="1")
    own.setdefault("LANG", "C.UTF-8")
    words = [_IN_ENVIRONMENT, "bash", str(run.parents[2] / "env"), venv, command]
    with log, contextlib.suppress(OSError):
        return subprocess.Popen(
            ["bash", "-c", *words],
            cwd=folder,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # See `hold_stop`. It takes no lock that another thread could have.
            preexec_fn=partial(  # noqa: PLW1509
                signal.pthread_sigmask, signal.SIG_UNBLOCK, [signal.SIGTERM]
            ),
        )
    return None


_IN_ENVIRONMENT = """
[ ! -r "$1" ] || . "$1"
[ ! -d "$2" ] || export VIRTUAL_ENV="$2" PATH="$2/bin:$PATH"
[ ! -r "$2/etc/conda/activate.sh" ] || . "$2/etc/conda/activate.sh"
exec bash -o pipefail -c "$3"
"""


@lru_cache(maxsize=None)  # noqa: UP033 - Python 3.8
def begin(box_home: Path) -> None:
    """Start to look for notices to this box, once in this process."""
    heeder = NoticeHeeder(box_home)
    threading.Thread(target=_watch, args=(heeder,), name="notices", daemon=True).start()
    if signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []):  # see `hold_stop`
        threading.Thread(target=_await_stop, args=(heeder,), name="stop", daemon=True).start()


def hold_stop() -> None:
    """Let SIGTERM wait for `begin`: only a thread that waits for it learns who sent it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _watch(heeder: NoticeHeeder) -> None:
    """Look for notices as long as this process lives, if a service tells of them."""
    service = find_service()
    while service:
        with contextlib.suppress(*FAILURES):  # it answered once, and will again
            notice = service.look()
            if notice:
                heeder.heed(notice)
        time.sleep(service.every_s)


def _await_stop(heeder: NoticeHeeder) -> None:
    """Wait for SIGTERM, and end by it; first end the runs if it comes from PID 1, or from outside
    of this container (0). Anybody else means this process alone."""
    if signal.sigwaitinfo([signal.SIGTERM]).si_pid in (0, 1):
        _heed_stop(heeder)
    os._exit(128 + signal.SIGTERM)


def _heed_stop(heeder: NoticeHeeder) -> None:
    for told in heeder.heed(Notice("container")):
        told.join()


def main() -> None:
    """End the runs of a box whose container is being stopped."""
    _heed_stop(NoticeHeeder(Path(sys.argv[1])))
