"""The request for a setup, and for a run that it should start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.link.target import BoxOptions, given_text
from bootstrap.value import dataclass, field, replace

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.profile.values import Rule

_SESSION = "train"


@dataclass(frozen=True)
class RunOptions:
    """A run to start. The box starts it only once for its id, however often it is asked."""

    command: str = ""
    """"" for the profile's command."""
    session: str = ""
    gpus: str = ""
    """Comma-separated numbers; "" for all GPUs."""
    queue: str = ""
    """What it waits for: `gpus`, `after:NAME`, `after-any:NAME`; "" to start it now."""
    beside: bool = False
    """In a tree of its own, without the results of other runs."""
    overwrite: bool = False
    """Allow it to overwrite earlier results that are not home."""
    variables: tuple[tuple[str, str], ...] = ()
    """Names and values that its environment has besides the profile's; without line breaks."""
    nodes: str = ""
    """The id under which its box knows the nodes with which it begins and ends; "" for none."""
    id: str = field(default_factory=lambda: os.urandom(8).hex())

    def checked(self) -> RunOptions:
        """Return it as a box may get it from a user. Raises UsageError if it is malformed."""
        from bootstrap.profile.values import COMMAND, GPUS, RUN, SESSION

        kind, waits, name = _text("queue", self.queue).partition(":")
        if not (kind in ("after", "after-any") and name) and self.queue not in ("", None, "gpus"):
            known = "gpus, after:RUN, after-any:RUN"
            raise UsageError(f"{self.queue!r} is nothing to wait for.", hint=f"There are: {known}")
        return replace(
            self,
            command=_checked("the command", self.command, COMMAND),
            session=_checked("--session", self.session, SESSION),
            gpus=_checked("--gpus", self.gpus, GPUS),
            queue=f"{kind}{waits}{_checked(f'--{kind}', name, RUN)}",
        )

    def another(
        self, *, gpus: str, queue: str, variables: tuple[tuple[str, str], ...]
    ) -> RunOptions:
        own = os.urandom(8).hex()
        return replace(self, gpus=gpus, queue=queue, variables=variables, id=own)

    def of(self, profile: Profile) -> RunOptions:
        """Fill in what is not given from the profile. Raises UsageError without a command."""
        train = profile.train
        command = self.command or (train.command if train else "")
        if not command:
            raise UsageError(
                "which command? The profile has no train.command.",
                hint="Name it behind `--`: boxstrap run -- python train.py",
            )
        session = self.session or (train.session if train else _SESSION)
        return replace(self, command=command, session=session)

    def words(self, profile: Profile) -> list[str]:
        """Return words for the script on the box, see `WantedSetup`. Raises as `of`."""
        wish = self.of(profile)
        given = {"gpus": wish.gpus, "queue": wish.queue, "nodes": wish.nodes}
        more = [f"{name}={value}" for name, value in given.items() if value]
        if wish.variables:
            lines = "\n".join(f"{name}={value}" for name, value in wish.variables)
            more.append(f"variables={_as_word(lines)}")
        more += [word for word in ("beside", "overwrite") if getattr(wish, word)]
        command = f"command={_as_word(wish.command)}"
        return [f"run={wish.id}", command, f"session={wish.session}", *more]


def _text(name: str, text: str) -> str:
    return "" if text in ("", None) else given_text(name, text)


def _checked(name: str, text: str, rule: Rule) -> str:
    try:
        return rule(text) if (text := _text(name, text)) else ""
    except ValueError as error:
        raise UsageError(f"{name}: {error}.") from None


def _as_word(text: str) -> str:
    """Return it as one word, from which `printf %b` makes it again: who looks for a run's command
    among the processes of its box finds only the run."""
    return "".join(f"\\x{byte:02x}" for byte in text.encode(errors="surrogateescape"))


@dataclass(frozen=True)
class SetupRequest(BoxOptions):
    """A requested setup: the box and the profile (`BoxOptions`), and what to do.

    All fields are optional: without a host, the repository's only box is used.
    """

    committed_only: bool = False
    """Send only the commit; uncommitted changes are not sent."""
    restart: bool = False
    """Start the training again, even if a run is alive."""
    redo: str = ""
    """Comma-separated steps: do them again, although they are right."""
    overwrite: bool = False
    """Allow the training to overwrite earlier results that are not home."""
    adopt: bool = False
    """Use the clone in the repository's folder even if boxstrap did not make it."""
    strict: bool = False
    """Treat a warning in the verdict as a reason to return the box."""
    only: str = ""
    """Comma-separated steps: run only them and what they need, regardless of their stamps."""
    run: RunOptions | None = None
    """Start this run, whatever ran before."""
    holds: bool = False
    """Leave the training to the common start of all nodes."""
    wait_s: int = 60
    """How long to wait for another setup on the box, in seconds."""
    rented: float | None = None
    """When a new box was rented, by its account's clock. Its lease counts from then."""
    price: float | None = None
    """What the box costs an hour, in dollars, as it was said once, where no account says it."""
    ends: bool = False
    """Whether its provider ends it at a time that nothing moves."""

    def checked(self) -> SetupRequest:
        """As that of `BoxOptions`."""
        run: object = self.run
        if run is not None and not isinstance(run, RunOptions):
            raise UsageError(f"run: {run!r} are no RunOptions.")
        if not isinstance(self.wait_s, int) or self.wait_s < 0:
            raise UsageError(f"wait_s: {self.wait_s!r} is no whole number from 0 on.")
        return replace(
            super().checked(),
            redo=_text("redo", self.redo),
            only=_text("only", self.only),
            new_box=bool(self.new_box),
            run=self.run and self.run.checked(),
        )


def not_set_up(where: str, name: str) -> UsageError:
    """Return the error for a box without a tree of this repository."""
    return UsageError(
        "this repository was not set up on this box yet.",
        where=where,
        hint=f"Do that first: boxstrap setup --host {name}",
    )
