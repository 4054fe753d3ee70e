"""Stopping to follow a box, from another thread. What runs on the box goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bootstrap.errors import BoxstrapError


class CancelledError(BoxstrapError):
    """The caller cancelled; what runs on the box goes on."""

    def __init__(self) -> None:
        super().__init__("cancelled; what runs on the box goes on.")


class CancelToken:
    """Call `cancel`, and whatever waits with this token raises CancelledError."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Cancel, from any thread; once more is no more."""
        with self._lock:
            self._event.set()
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Call it once this is cancelled: it ends what would wait on."""
        with self._lock:
            self._actions.append(action)
        if self._event.is_set():
            self.cancel()

    def forget(self, action: Callable[[], None]) -> None:
        """There is nothing to end any more."""
        with self._lock:
            self._actions = [each for each in self._actions if each != action]

    def check(self) -> None:
        """Raise CancelledError where it was cancelled."""
        if self._event.is_set():
            raise CancelledError

    def wait(self, seconds: float) -> None:
        """Pause. Raises CancelledError as soon as it is cancelled."""
        if self._event.wait(seconds):
            raise CancelledError
