"""The login to a known box, and what it is asked first, while this side still prepares."""

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
    """What a box is asked about; nothing of it is known before a profile and a repository are."""

    workdir: str = ""
    repo_key: str = ""
    repo_root: str = ""
    """The repository's first commit."""
    script: str = ""
    """The id of the script that the box may have."""


class EarlyLogin(threading.Thread):
    """Logs in to a known box, and asks it, while this side still reads profile and repository.

    That takes this machine a quarter of a second, and the login takes the network as long.
    The box is asked about the script of the last time: mostly it is the one that comes out again.
    Whatever the login raises is raised by `login`.
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
        # A box that isn't known yet hears of us once everything here is right.
        self._began = box.is_known
        if self._began:
            self.start()

    def run(self) -> None:
        """Log in; ask, if there is something to ask about."""
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
            # What goes wrong here goes wrong again, in its own place, when it is asked for.
            with contextlib.suppress(BoxstrapError):
                self._answer = ask_box(self._wire, asked)

    def login(self) -> Wire:
        """The login that was begun; called again, a new one.

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
        """Let go of the login, now or when it has come."""
        self._closed = True
        if self._wire is not None:
            self._wire.close()

    def answer(self, request: ProbeRequest) -> BoxState | None:
        """What the box said, once, where it would say the same to this; None else."""
        if request._replace(script=self._request.script) != self._request or self._wire is None:
            return None
        self.join()
        answer, self._answer = self._answer, None
        if answer is None or request.script == self._request.script:
            return answer
        # Of a script that is not the one it has, it would tell no plan.
        return None if answer.script == request.script else replace(answer, plan={})


def begin_login(
    request: SetupRequest, say: Callable[[str], None], cancel: CancelToken
) -> EarlyLogin | None:
    """Begin the login to a known box that is named, before a profile is read.

    Nothing of a profile or a repository takes part: the box is where it was, under the same
    user. One that isn't known yet is not dialed. None where it can't be told yet which box it is,
    or something is wrong, which is said in its place.
    """
    if not request.host or "-L" in request.host:
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
    """Ask the box what it has of this, and the signs of every provider."""
    from bootstrap.profile.detect_provider import all_hints  # a login doesn't wait for it

    hints = all_hints()
    return probe(
        wire,
        **request._asdict(),
        hint_names=hints.env,
        hint_files=hints.files,
    )
