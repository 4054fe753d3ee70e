"""Send the news of a box's runs to their receivers, each once, and note in RUN/told how that went.

`onbox runs.tell BOX_HOME` is started by the monitor when there are news, and exits when all are
told: an address that doesn't answer costs only this process's time. Receivers of a run are lines
`KINDS NAME BOX ADDRESS` of RUN/notify_to (mode 0600), which `wait --detach` handed over, with the
kinds that were found before, which are not told; and the secret NOTIFY_URL, if RUN/notify names the
kinds that the profile wants told. An address is http(s)://…, which gets JSON with `text` (Slack,
Mattermost) and `content` (Discord), or ntfy+http(s)://…, a topic of ntfy, which gets text. A line
of RUN/told is `KIND NAME SECONDS WORD`: `trying`, `told`, or `failed` and why. What may have been
sent is not sent again.

`post` is used on the user's machine, too.
"""

from __future__ import annotations

import fcntl
import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .. import AGENT
from ..retry_after import asked_pause
from ..run_folder import lines_of, secrets_of
from .news import CALM_ENDS, HANDED_OVER, KINDS, NAME, OF_PROFILE, passed_on

TOLD = "told"
SECRET = "NOTIFY_URL"  # noqa: S105 - its name
ANSWER_S = 10.0
LONGEST_S = 900
"""Seconds that telling all may take."""
PAUSES_S = (1.0, 5.0)
"""Seconds between two tries, unless the answer asks for more."""
ASKED_S = 120
"""Most seconds between two tries: a receiver that asks for more isn't tried again."""
_NTFY = "ntfy+"


class NewsReceiver(NamedTuple):
    """Where news go: its name, how it knows the box, the address, a secret, and which kinds."""

    name: str
    box: str
    address: str
    kinds: tuple[str, ...]


class News(NamedTuple):
    """One thing to tell of a run."""

    kind: str
    at: int
    text: str
    run: str
    box: str

    @property
    def message(self) -> str:
        """All of it in a sentence."""
        if self.text.startswith("it "):
            return f"{self.box}: {self.run} {self.text[3:]}"
        return f"{self.box}: {self.run}: {self.text}"


def is_address(text: str) -> bool:
    """Whether this is an address that news can be posted to."""
    scheme, _, rest = text.strip().partition("://")
    return scheme.replace(_NTFY, "", 1) in ("http", "https") and bool(rest) and not any(
        each.isspace() for each in text.strip()
    )  # fmt: skip


def post(
    address: str, news: News, pauses: tuple[float, ...] = PAUSES_S, asked_s: float = ASKED_S
) -> str:
    """Send it; return "" or, after the last try, why it could not be sent: without the address."""
    why = ""
    for pause in (*pauses, None):
        why, asked = _try(address, news)
        if not why or asked is None or pause is None:
            break
        if asked > asked_s:
            return f"{why}; it asks to wait {asked} s"
        time.sleep(max(pause, asked))
    return why


def _try(address: str, news: News) -> tuple[str, int | None]:
    """Send it once; return why that failed, and the seconds that it asks to wait until it is tried
    again; None if it would fail again."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, build_opener

    class Stay(HTTPRedirectHandler):  # what was chosen is told, and nobody else
        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    try:
        with build_opener(Stay).open(_request(address, news), timeout=ANSWER_S) as answer:
            answer.read(4096)
    except HTTPError as error:
        may_pass = error.code >= 500 or error.code in (408, 425, 429)
        return f"HTTP {error.code}", (asked_pause(error) or 0) if may_pass else None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, (TimeoutError, socket.timeout)):
            return f"no answer within {ANSWER_S:.0f} s", 0
        words = getattr(reason, "strerror", None)
        return (words.lower() if isinstance(words, str) else type(reason).__name__), 0
    except ValueError:
        return "the address can't be used", None
    return "", None


def _request(address: str, news: News):  # type: ignore[no-untyped-def] # noqa: ANN202
    from urllib.request import Request

    text = news.message
    if address.startswith(_NTFY):
        is_urgent = news.kind != "loss" and not news.text.startswith(CALM_ENDS)
        title = f"boxstrap: {news.run}".encode("ascii", "replace").decode()
        headers = {"Title": title, "Priority": "high" if is_urgent else "default", **AGENT}
        return Request(address[len(_NTFY) :], text.encode(), headers)  # noqa: S310 - is_address
    said = {"v": 1, "text": text, "content": text, "event": news.kind, "time": news.at,
            "run": news.run, "box": news.box, "says": news.text}  # fmt: skip
    headers = {"Content-Type": "application/json", **AGENT}
    return Request(address, json.dumps(said).encode(), headers)  # noqa: S310 - is_address


def tell_all(box_home: Path) -> None:
    for run in sorted({file.parent for file in box_home.glob(f"runs/*/*/{OF_PROFILE}*")}):
        receivers = [*receivers_of(run)]
        for news in news_of(run):
            for receiver in receivers:
                if news.kind in receiver.kinds:
                    _tell(run, receiver, news)
        if any(news.kind == "end" for news in news_of(run)):
            # Nothing more will be told: the addresses don't stay, nor does the box look again.
            for name in (HANDED_OVER, OF_PROFILE):
                (run / name).unlink(missing_ok=True)


def _tell(run: Path, receiver: NewsReceiver, news: News) -> None:
    begun = {tuple(line.split(" ")[:2]) for line in lines_of(run / TOLD)}
    if (news.kind, receiver.name) in begun:
        return
    note(run, receiver, news.kind, "trying")
    why = post(receiver.address, news._replace(box=receiver.box))
    note(run, receiver, news.kind, f"failed {why}" if why else "told")


def note(run: Path, receiver: NewsReceiver, kind: str, word: str) -> None:
    """Add a line to RUN/told. Raises OSError if the disk is full: then nothing is sent."""
    with (run / TOLD).open("a", encoding="utf-8") as out:
        out.write(f"{kind} {receiver.name} {round(time.time())} {word}\n")


def receivers_of(run: Path) -> Iterator[NewsReceiver]:
    for line in lines_of(run / HANDED_OVER):
        words = line.split(" ", 3)
        if len(words) == 4 and is_address(words[3]):
            before = words[0].split(",")
            kinds = tuple(kind for kind in KINDS if kind not in before)
            yield NewsReceiver(words[1], words[2], words[3], kinds)
    address = secrets_of(run.parents[2]).get(SECRET, "").strip()
    if (run / OF_PROFILE).exists() and is_address(address):
        kinds = tuple(lines_of(run / OF_PROFILE))
        yield NewsReceiver(SECRET, socket.gethostname(), address, kinds)


def news_of(run: Path) -> list[News]:
    """Return the news of a run, the oldest first."""
    tree = "".join(lines_of(run / "dir")[:1]).rstrip("/").rpartition("/")[2]
    name = f"{tree}/{run.name}" if tree else run.name
    found = []
    for line in lines_of(run / NAME):
        kind, _, rest = line.partition(" ")
        at, _, text = rest.partition(" ")
        if kind in KINDS and at.isdecimal():
            found.append(News(kind, int(at), passed_on(kind, text), name, ""))
    return found


def main() -> None:
    """Tell, one process at a time, and not for ever."""
    box_home = Path(sys.argv[1])
    signal.alarm(LONGEST_S)
    with (box_home / "tell.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tell_all(box_home)
