"""End what waits or computes, from another thread. What runs on the box continues."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from bootstrap.errors import BoxstrapError

_T = TypeVar("_T")


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


@contextlib.contextmanager
def within(seconds: float, cut: Callable[[], object]) -> Iterator[None]:
    """Call `cut`, from another thread, if what is done here takes longer than `seconds`."""
    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def made_beside(make: Callable[[], _T], seconds: float) -> _T | BoxstrapError:
    """Return what `make` makes, or why it doesn't: it took longer, or failed. For what is made
    beside a task, which must end whatever a box gives to compute."""
    made: list[_T | BoxstrapError] = []

    def work() -> None:
        try:
            made.append(make())
        except SystemExit:
            pass  # it took too long
        except Exception as error:  # one of ours too: the task is not about this
            made.append(BoxstrapError(f"it failed: {type(error).__name__}: {error}"))

    thread = threading.Thread(target=work, name="beside", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive() and thread.ident is not None:
        import ctypes  # late: hardly ever needed

        end = ctypes.py_object(SystemExit)  # raised there as soon as it is in Python code again
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), end)
    return made[0] if made else BoxstrapError(f"it did not finish within {seconds:g} s")


class AskedBeside(Generic[_T]):
    """What a box is asked in a thread, while something else is done."""

    def __init__(self, ask: Callable[[], _T]) -> None:
        self._ask = ask
        self._answer: _T | None = None
        self._thread = threading.Thread(target=self._work, name="asked", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with contextlib.suppress(BoxstrapError):
            self._answer = self._ask()

    def answer(self) -> _T | None:
        """Wait for the answer; None if there is none."""
        self._thread.join()
        return self._answer
