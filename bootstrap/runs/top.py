"""`top`: watch several boxes live, with a login and a thread each, on one screen."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BoxLacksError, BoxstrapError, UnreachableError
from bootstrap.link.exchange import stream_script
from bootstrap.link.registry import meant
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost
from bootstrap.protocol.query import BoxRedaction, build_query
from bootstrap.protocol.run_history import Sample, SampleLines
from bootstrap.ui.screen import Reporter
from bootstrap.ui.top_view import BoxView, TopScreen

RETRY_S = 15.0
"""Seconds between two tries of a box that could not be reached at first."""
TICK_S = 0.5
"""Seconds after which a screen is drawn again, so that ages grow."""


@dataclass
class TopOptions:
    """Seconds between samples, and their number; 0 means until the user ends it."""

    every_s: int = 2
    samples: int = 0
    warn: Callable[[str], None] = field(default=lambda _text: None)


def watch_boxes(
    options: BoxOptions, hosts: Sequence[str], wanted: TopOptions, screen: TopScreen
) -> None:
    """Show the boxes until each has sent enough samples, or the user ends it.

    Raises UsageError if no box is meant; the first box's error if none can be reached.
    """
    changes: queue.Queue[BoxView] = queue.Queue()
    feeds: list[Feed] = []
    try:
        feeds += [Feed(one, wanted, changes) for one in meant(options, hosts)]
        views = [feed.view for feed in feeds]
        for feed in feeds:
            feed.start()
        while not over(views, wanted.samples) and not screen.is_left():
            try:
                changed = changes.get(timeout=TICK_S)
                changed.announced = False
                screen.show(views, changed)
            except queue.Empty:
                screen.show(views, None)
    finally:
        screen.close()
        for feed in feeds:
            feed.close()
    first = next((view.error for view in views if view.error), None)
    if first is not None and not any(view.samples for view in views):
        raise first


def over(views: Sequence[BoxView], samples: int) -> bool:
    """Whether no more samples are to be expected."""
    unreached = [view for view in views if view.error and not view.samples]
    left = [view for view in views if view.state != "gone" and view not in unreached]
    if not left:
        return all(view.error for view in views)
    return samples > 0 and all(view.samples >= samples for view in left)


class Feed(threading.Thread):
    """One box: logs in, again after a lost link, and passes on its samples."""

    def __init__(
        self, options: BoxOptions, wanted: TopOptions, changes: queue.Queue[BoxView]
    ) -> None:
        super().__init__(name=f"top {options.host}", daemon=True)
        self._box = BoxLogin.find(options, _FeedReporter(self, wanted.warn))
        self.view = BoxView(self._box.name)
        self._every, self._most = wanted.every_s, wanted.samples
        self._changes = changes
        self._closed = threading.Event()

    def run(self) -> None:
        """Read samples until closed, until there are enough, or until the box can't be watched."""
        while not self._closed.is_set() and not self._enough():
            try:
                self._follow()
            except LinkLost as lost:
                self._again(lost)
            except UnreachableError as error:
                self.tell("lost", error.what, error)
                self._closed.wait(RETRY_S)
            except BoxstrapError as error:
                self.tell("gone", error.what, error)
                return

    def close(self) -> None:
        """Stop, and close the link."""
        self._closed.set()
        self._box.close()

    def _again(self, lost: LinkLost) -> None:
        if self._closed.is_set():
            return
        try:
            self._box.reconnect(lost)
        except BoxstrapError as error:
            self.tell("gone", error.what, error)
            self._closed.set()

    def _follow(self) -> None:
        # Without a probe, which secrets it still holds is unknown: it redacts all it was given.
        box = self._box
        there = BoxRedaction(box.known.secrets or ())
        query = build_query("top", there, workdir=box.known.workdir, every=self._every)
        stream = stream_script(box.wire, query)
        lines = SampleLines()
        while piece := stream.read(64 * 1024):
            for sample in lines.feed(piece):
                self._take(sample)
                if self._enough():
                    return
        if self._closed.is_set():
            return
        said = stream.read_err().strip()
        if box.wire.alive() and said:
            raise BoxLacksError(
                f"it can't be looked at: {said.decode('utf-8', 'replace').splitlines()[-1][:300]}",
                where=box.label,
                hint="Set the box up again: boxstrap verify",
            )
        raise LinkLost(box.label, "the box stopped sending samples")

    def _enough(self) -> bool:
        return 0 < self._most <= self.view.samples

    def _take(self, sample: Sample) -> None:
        if sample.missing:
            raise BoxLacksError(
                "boxstrap's programs are not installed on this box.",
                where=self.view.name,
                hint=f"It comes with a setup, or with: boxstrap verify --host {self.view.name}",
            )
        view = self.view
        view.sample, view.sampled, view.samples = sample, time.monotonic(), view.samples + 1
        self.tell("live", "")

    def tell(self, state: str, why: str, error: BoxstrapError | None = None) -> None:
        """Change the view, and report that."""
        self.view.state, self.view.why, self.view.error = state, why, error
        if not self.view.announced:
            self.view.announced = True
            self._changes.put(self.view)


class _FeedReporter(Reporter):
    """Shows in a feed's view what becomes of its link."""

    def __init__(self, feed: Feed, warn: Callable[[str], None]) -> None:
        self._feed, self._warn = feed, warn

    def say(self, text: str) -> None:
        self._warn(text)

    def warn(self, text: str) -> None:
        self._feed.tell("lost", text)

    def lost(self, seconds: float) -> None:
        self._feed.tell("lost", f"for {seconds:.0f} s")

    def back(self) -> None:
        self._feed.tell("connecting", "")
