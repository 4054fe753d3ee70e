"""Stop following a box, from another thread. What runs on the box continues."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bootstrap.errors import BoxstrapError


class CancelledError(BoxstrapError):
    """The caller cancelled; what runs on the box continues."""

    def __init__(self) -> None:
        super().__init__("cancelled; what runs on the box goes on.")


class CancelToken:
    """After `cancel`, everything that waits with this token raises CancelledError."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Cancel, from any thread; repeated calls are harmless."""
        with self._lock:
            self._event.set()
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Call `action` once this is cancelled, to end what would go on waiting."""
        with self._lock:
            self._actions.append(action)
        if self._event.is_set():
            self.cancel()

    def forget(self, action: Callable[[], None]) -> None:
        """Remove an action: it has nothing to end any more."""
        with self._lock:
            self._actions = [each for each in self._actions if each != action]

    def check(self) -> None:
        """Raise CancelledError if it was cancelled."""
        if self._event.is_set():
            raise CancelledError

    def wait(self, seconds: float) -> None:
        """Pause. Raises CancelledError as soon as it is cancelled."""
        if self._event.wait(seconds):
            raise CancelledError
