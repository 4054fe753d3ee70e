"""The login to a known box and its first probe, in parallel with preparations on this machine."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bootstrap.errors import BoxstrapError
from bootstrap.link import record
from bootstrap.link.handle import BoxHandle, find_box
from bootstrap.protocol.probe import BoxState, probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from bootstrap.cancel import CancelToken
    from bootstrap.link.wire import Wire
    from bootstrap.setup.request import SetupRequest


class ProbeRequest(NamedTuple):
    """What to ask a box about; empty until profile and repository are known."""

    workdir: str = ""
    repo_key: str = ""
    repo_root: str = ""
    """The repository's first commit."""
    script: str = ""
    """The id of a script that the box may have."""


class EarlyLogin(threading.Thread):
    """Logs in to a known box and probes it while this machine reads profile and repository.

    Reading takes a quarter of a second, and the login waits for the network about as long. The
    probe asks about the last script, since usually the same one is rendered again. Errors of the
    login are raised by `login`.
    """

    def __init__(self, box: BoxHandle, cancel: CancelToken, *, ask: bool = True) -> None:
        super().__init__(name="early login", daemon=True)
        self.cancel = cancel
        self.box = box
        self._closed = False
        self._wire: Wire | None = None
        self._error: BaseException | None = None
        known = box.known
        about = (known.workdir, known.repo_key, known.repo_root, known.script)
        self._request = ProbeRequest(*(about if ask else ()))
        self._answer: BoxState | None = None
        self._logged_in = threading.Event()
        # An unknown box is contacted only after everything local has been checked.
        self._began = box.is_known
        if self._began:
            self.start()

    def run(self) -> None:
        """Log in; probe, if there is something to ask about."""
        try:
            self._wire = self.box.login()
        except BaseException as error:
            self._error = error
        finally:
            self._logged_in.set()
        if self._closed:
            self.close()
        asked = self._request
        if self._wire is not None and asked.workdir and asked.repo_key and asked.script:
            # If this fails, the probe is repeated later, and its error raised there.
            with contextlib.suppress(BoxstrapError):
                self._answer = ask_box(self._wire, asked)

    def login(self) -> Wire:
        """Return the login that was started; on later calls, a new one.

        Raises as `BoxHandle.login`, and CancelledError.
        """
        self.cancel.check()
        if not self._began:
            return self.box.login()
        self._began = False
        self.cancel.on_cancel(self._logged_in.set)
        self._logged_in.wait()
        self.cancel.forget(self._logged_in.set)
        self.cancel.check()
        if self._error is not None:
            raise self._error
        assert self._wire is not None  # noqa: S101 - one of the two is there
        return self._wire

    def close(self) -> None:
        """Close the login, now or as soon as it is made."""
        self._closed = True
        if self._wire is not None:
            self._wire.close()

    def answer(self, request: ProbeRequest) -> BoxState | None:
        """Return the box's early answer, once, if it is also valid for this request; else None."""
        if request._replace(script=self._request.script) != self._request or self._wire is None:
            return None
        self.join()
        answer, self._answer = self._answer, None
        if answer is None or request.script == self._request.script:
            return answer
        # A box gives no plan for a script that it doesn't have.
        return None if answer.script == request.script else replace(answer, plan={})


def begin_login(
    request: SetupRequest, say: Callable[[str], None], cancel: CancelToken
) -> EarlyLogin | None:
    """Start the login to a known box that `--host` names, before a profile is read.

    It depends on neither profile nor repository: the box is where it was, with the same user.
    An unknown box is not dialed. None if the box can't be determined yet, if there is an
    error (raised later in its place), or for an ssh command with -L, of which `find_box` would
    speak twice.
    """
    if not request.host or " -L" in request.host:
        return None
    try:
        box = find_box(request, say)
        before = record.by_name(box.known.name)
    except BoxstrapError:
        return None
    if box.is_known:
        if before is None or before.user != box.known.user:
            return None
        box.dial()
    return EarlyLogin(box, cancel, ask=request.run is None)


def ask_box(wire: Wire, request: ProbeRequest) -> BoxState:
    """Probe the box for this request and for the signs of every provider."""
    from bootstrap.profile.detect_provider import all_hints  # imported here to not delay the login

    hints = all_hints()
    return probe(
        wire,
        **request._asdict(),
        hint_names=hints.env,
        hint_files=hints.files,
    )
