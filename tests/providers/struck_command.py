"""A command in a process of its own, which a simulated account ends at one of its requests."""

import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawValue
from typing import Any

from bootstrap.errors import BoxstrapError

DONE, REFUSED, INTERRUPTED, KILLED, _BROKEN = 0, 1, 2, -signal.SIGKILL, 70
_LONGEST_S = 60


@dataclass
class StruckCommand:
    """Runs one command at a time."""

    strikes: dict[int, tuple[bool, int]] = field(default_factory=dict)
    """By a request's number: whether to wait until it is done, and the signal to send."""
    pid: Any = field(default_factory=lambda: RawValue("i", 0))

    def run(self, command: Callable[[], object]) -> int:
        """Run the command; return how it ended."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the account has threads
            child = os.fork()
        if not child:
            self._be(command)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.pid.value = 0
        return status

    def strike(self, number: int, *, is_done: bool) -> None:
        """Send the signal set for this request, if any; called by the account."""
        when, signaled = self.strikes.get(number, (None, 0))
        if when is is_done:
            self.hit(signaled)

    def hit(self, signaled: int) -> None:
        """Send this signal to the running command."""
        if self.pid.value:
            os.kill(self.pid.value, signaled)
            time.sleep(0.02)  # so that it is noticed before the answer arrives

    def _be(self, command: Callable[[], object]) -> None:
        """Run the command in the child, and exit."""
        status = _BROKEN
        try:
            signal.alarm(_LONGEST_S)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.pid.value = os.getpid()
            command()
            status = DONE
        except BoxstrapError:
            status = REFUSED
        except KeyboardInterrupt:
            status = INTERRUPTED
        except BaseException:  # it is printed, and the test fails
            traceback.print_exc()
        finally:
            os._exit(status)
