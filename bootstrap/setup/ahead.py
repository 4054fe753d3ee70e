"""Ahead of time: the login, and the look at a box that is known, while this side still prepares.

Reading the profile and the repository takes this machine a quarter of a
second, and logging in takes the network as long; they need not wait for each
other. Of a known box the script of the last time is asked about: mostly it is
the one that comes out again, and then the answer is there already.
"""

from __future__ import annotations

import contextlib
import threading

from bootstrap.errors import BoxstrapError
from bootstrap.link.handle import BoxHandle
from bootstrap.link.wire import Wire
from bootstrap.profile.providers import all_hints
from bootstrap.protocol.probe import BoxState, probe

Look = tuple[str, str, str, str]
"""What a look is about: working folder, repository, its first commit, script."""


class Ahead(threading.Thread):
    """Logs in, and looks, in a thread of its own; whatever it raises is raised by `login`."""

    def __init__(self, box: BoxHandle) -> None:
        super().__init__(name="ahead", daemon=True)
        self._box = box
        self._wire: Wire | None = None
        self._error: BaseException | None = None
        self._about: Look = (
            box.known.workdir,
            box.known.repo_key,
            box.known.repo_root,
            box.known.script,
        )
        self._hello: BoxState | None = None
        self._logged_in = threading.Event()
        # A box that isn't known yet hears of us once everything here is right.
        self._began = box.is_known
        if self._began:
            self.start()

    def run(self) -> None:
        """Log in; look, if there is something to look for."""
        try:
            self._wire = self._box.login()
        except BaseException as error:
            self._error = error
        finally:
            self._logged_in.set()
        workdir, repo_key, repo_root, script = self._about
        if self._wire is not None and workdir and repo_key and script:
            hints = all_hints()
            # What goes wrong here goes wrong again, in its own place, when it is asked for.
            with contextlib.suppress(BoxstrapError):
                self._hello = probe(
                    self._wire,
                    workdir=workdir,
                    repo_key=repo_key,
                    repo_root=repo_root,
                    script=script,
                    hint_names=hints.env,
                    hint_files=hints.files,
                )

    def login(self) -> Wire:
        """The login that was begun; called again, a new one. Raises as `BoxHandle.login`."""
        if not self._began:
            return self._box.login()
        self._began = False
        self._logged_in.wait()
        if self._error is not None:
            raise self._error
        assert self._wire is not None  # noqa: S101 - one of the two is there
        return self._wire

    def look(self, about: Look) -> BoxState | None:
        """What the box said of exactly this; None where something else was asked, or nothing."""
        if about != self._about or self._wire is None:
            return None
        self.join()
        return self._hello
