"""`from bootstrap import Box`: boxes and their runs, for programs of yours (docs/library.md).

Each method logs in, does one thing and logs out, as the command of its name does; boxes may be
used in threads. Nothing is printed, and nothing is asked. Failures are the errors of
`bootstrap.errors`; results have what `--json` prints.
"""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bootstrap.errors import UsageError
from bootstrap.link.target import given_object, given_text
from bootstrap.paths import expanded
from bootstrap.ui.screen import Paint, Reporter, Result, Screen
from bootstrap.value import document

if TYPE_CHECKING:
    from bootstrap.boxes.run import Run
    from bootstrap.link.cancel import CancelToken
    from bootstrap.providers.offer import Offer
    from bootstrap.runs.status import BoxStatus
    from bootstrap.setup.result import SetupResult
    from bootstrap.setup.sync import Synced
    from bootstrap.steps.events import Event

GIB = 1 << 30


class Box:
    """One box, and this machine's repository on it.

    `host` is what `--host` takes: an address, an alias, `provider:ID`, `local`, or a box's name;
    without one it is the repository's only box.
    """

    def __init__(  # noqa: PLR0913 - the options of every command
        self,
        host: str | None = None,
        *,
        repo: Path | str | None = None,
        profile: str | None = None,
        sets: Sequence[str] = (),
        identity: str | None = None,
        host_key: str | None = None,
        name: str | None = None,
        consent: str | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        from bootstrap.setup.request import SetupRequest

        self._request = SetupRequest(
            host=host,
            profile=profile,
            sets=sets,  # type: ignore[arg-type]  # as given; `checked` makes a tuple
            repo=repo,  # type: ignore[arg-type]  # and a path
            identity=identity,
            host_key=host_key,
            name=name,
            consent=consent,
        ).checked()
        self._reporter = given_object("reporter", reporter, Reporter)

    def rent(self, *, max_price: float, provider: str | None = None) -> SetupResult:
        """Rent what the profile orders, for `max_price` dollars an hour at most, and set it up.

        A box that the repository has rented already is taken. Raises as `setup`; UsageError if
        that is no price, nothing fits, or no account has a key here.
        """
        from bootstrap.renting.up import UpOptions, rent_and
        from bootstrap.setup.sequence import run_setup

        try:
            dollars = float(max_price)
        except (TypeError, ValueError):
            dollars = math.nan
        if not 0 < dollars < math.inf:  # a computed one may be NaN, which nothing exceeds
            raise UsageError(f"max_price: {max_price!r} is no amount of dollars.")
        if provider is not None:
            provider = given_text("provider", provider)
        _, result = rent_and(
            lambda setup: run_setup(setup, self._reporter),
            UpOptions(self._request, provider, dollars),
            self._reporter,
            lambda offer: _agree(offer, dollars),
        )
        self._request = replace(self._request, host=result.box)
        return result

    @property
    def host(self) -> str | None:
        """What was given for it; after `setup` or `rent` its name on this machine."""
        return self._request.host

    def setup(
        self,
        *,
        committed_only: bool = False,
        restart: bool = False,
        cancel: CancelToken | None = None,
    ) -> SetupResult:
        """Take it to its first training step; again, continue or change nothing.

        Raises UnreachableError, HostKeyError, ProfileError, ConsentError, StepFailedError,
        GpuRejectedError, BusyError; a failed or waiting training is in the result.
        """
        from bootstrap.setup.sequence import run_setup

        request = replace(self._request, committed_only=committed_only, restart=restart)
        result = run_setup(request, self._reporter, cancel)
        self._request = replace(self._request, host=result.box)
        return result

    def run(  # noqa: PLR0913 - the options of `boxstrap run`
        self,
        command: str | Sequence[str] | None = None,
        *,
        session: str = "",
        gpus: str = "",
        queue: str = "",
        beside: bool = False,
        overwrite: bool = False,
    ) -> BoxRun:
        """Start a run of the local files: a command of a shell, or its words, by default the
        profile's. `queue` is `gpus`, `after:RUN` or `after-any:RUN`. How it ends is told by
        `BoxRun.wait`, however soon.

        Raises UsageError if the command is empty or one of them is malformed, NotSafeError if
        work or results of the box are in the way, and as `setup`.
        """
        from bootstrap.setup.new_run import start_run
        from bootstrap.setup.request import RunOptions

        if command is not None and not isinstance(command, str):
            try:
                command = shlex.join(command)
            except TypeError:
                raise UsageError(f"command: {command!r} is neither a text nor words.") from None
        if command is not None and not command.strip():
            raise UsageError("the command is empty.", hint="Leave it out for the profile's own.")
        wanted = RunOptions(command or "", session, gpus, queue, beside, overwrite).checked()
        screen = _Collected(self._reporter)
        started = start_run(replace(self._request, run=wanted), screen, lambda _: None)
        self._request = replace(self._request, host=started.box)
        return BoxRun(self, started.run.name)

    def runs(self) -> list[BoxRun]:
        """Return this repository's runs on it, newest first."""
        from bootstrap.boxes.login import BoxLogin

        with BoxLogin.open(self._request, _Collected(self._reporter)) as box:
            return [BoxRun(self, one.name) for one in box.runs(None)]

    def status(self) -> BoxStatus:
        """Return the state of its runs, and of its last setup."""
        from bootstrap.link.registry import only_box
        from bootstrap.runs.status import find_status

        found, *others = find_status(self._request, _Collected(self._reporter))
        if others:
            only_box(self._request.repository[0])  # says which there are
        if found.error:
            raise found.error
        return found

    def sync(self) -> Synced:
        """Send the local files to their tree on it, without a setup."""
        from bootstrap.setup.sync import send_state

        return send_state(self._request, _Collected(self._reporter))

    def push(
        self, path: Path | str, to: str | None = None, *, replace_there: bool = False
    ) -> Mapping[str, object]:
        """Send a file or a folder; again, what changed. Files that no push put there stay."""
        from bootstrap.setup.push import PushOptions, push_path

        place = None if to is None else given_text("to", to)
        wish = PushOptions(given_text("path", path), place, (), replace_there)
        return self._collect(push_path, wish)

    def stop(self) -> Mapping[str, object]:
        """End all runs of the repository on it, and those that wait for their turn."""
        from bootstrap.runs.run_end import stop_run

        return self._collect(stop_run, run=None, every=True, setup=False)

    def down(self, *, stop_runs: bool = False, discard: bool = False) -> Mapping[str, object]:
        """Bring home what it has, and destroy it; if no account can, `destroyed` is false.

        Raises NotSafeError with a list if something would be lost, unless `discard` is given;
        UnreachableError if it is unknown whether it is gone.
        """
        from bootstrap.renting.teardown import TeardownOptions, tear_down

        return self._collect(tear_down, TeardownOptions(_MOST, discard, stop_runs))

    def _collect(
        self, do: Callable[..., None], *given: object, **named: object
    ) -> Mapping[str, object]:
        screen = _Collected(self._reporter)
        do(self._request, screen, *given, **named)
        return screen.data


def _agree(offer: Offer, max_price: float) -> None:
    """Agree to rent this. Raises UsageError if it costs more; no search should have found it."""
    if offer.price > max_price:
        raise UsageError(f"it costs ${offer.price:.2f} an hour, more than max_price.")


_MOST = 50 * GIB
"""The most that comes home of one run, in bytes, as for `--max-size`."""


@dataclass(frozen=True)
class BoxRun:
    """A run on a box, by its name. It is asked for when a method is called, and not kept."""

    box: Box
    name: str

    def __post_init__(self) -> None:
        given_text("name", self.name)

    def state(self) -> Run:
        """Return what the box says of it now. Raises UsageError if it isn't there any more."""
        from bootstrap.boxes.login import BoxLogin

        with BoxLogin.open(self.box._request, _Collected(self.box._reporter)) as box:
            return box.runs(self.name)[0]

    def wait(self) -> Mapping[str, object]:
        """Wait until it is over, across lost links. Raises TrainingFailedError if it failed."""
        from bootstrap.runs.run_end import wait_for

        return self.box._collect(wait_for, run=self.name, every=False)

    def log(self, to: BinaryIO | None = None, *, follow: bool = False) -> str:
        """Return its log, with secrets redacted; or write it to `to`, with `follow` as it grows.

        Raises TrainingFailedError if a followed run failed.
        """
        from bootstrap.runs.logs import LogOptions, show_log

        out: Any = io.BytesIO() if to is None else to
        if not hasattr(out, "write") or isinstance(out, io.TextIOBase):
            raise UsageError(f"to: {to!r} is no binary file.")
        screen = _Collected(self.box._reporter)
        options = LogOptions(names=(self.name,), follow=follow)
        show_log(self.box._request, screen, options, to=out)
        return out.getvalue().decode(errors="replace") if isinstance(out, io.BytesIO) else ""

    def pull(self, to: Path | str | None = None, *, watch: bool = False) -> Path:
        """Bring its results home, verified, and return their folder.

        Raises NotSafeError if not all of it is here.
        """
        from bootstrap.runs.pull import PullOptions, pull_results

        place = None if to is None else expanded(given_text("to", to))
        wanted = PullOptions(_MOST, self.name, place, watch)
        return Path(str(self.box._collect(pull_results, wanted)["place"]))

    def stop(self) -> None:
        """End it, if it is alive or waits for its turn."""
        from bootstrap.runs.run_end import stop_run

        self.box._collect(stop_run, run=self.name, every=False, setup=False)


class _Collected(Screen):
    """Keeps a command's result, and passes reports on."""

    def __init__(self, reporter: Reporter) -> None:
        self.data: dict[str, object] = {}
        self._reporter = reporter

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in {"redact", "price"} and "_reporter" in vars(self):
            setattr(self._reporter, name, value)

    def result(
        self,
        data: Result,
        text: str = "",  # noqa: ARG002 - for people
        paint: Paint | None = None,  # noqa: ARG002
    ) -> None:
        self.data.update(document(data))

    def close(self) -> None:
        """Do nothing: nothing is shown."""

    def plan(self, steps: Sequence[str]) -> None:
        self._reporter.plan(steps)

    def event(self, event: Event) -> None:
        self._reporter.event(event)

    def say(self, text: str) -> None:
        self._reporter.say(self.safe_text(text))

    def note(self, label: str, text: str) -> None:
        self._reporter.note(label, self.safe_text(text))

    def warn(self, text: str) -> None:
        self._reporter.warn(self.safe_text(text))

    def lost(self, seconds: float) -> None:
        self._reporter.lost(seconds)

    def back(self) -> None:
        self._reporter.back()
