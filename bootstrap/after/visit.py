"""A visit to a box that was set up before: its link, what it said, and the run that is meant."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.contact import Asked, Contact, contact
from bootstrap.errors import UsageError
from bootstrap.link.steady import SteadyLink
from bootstrap.talk.hello import Hello, greet
from bootstrap.talk.run import Run
from bootstrap.ui.screen import Screen


@dataclass
class Visit:
    """A login to a known box. A context manager: leaving it closes the link."""

    box: Contact
    link: SteadyLink
    hello: Hello
    workdir: str

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def run(self, name: str | None) -> Run:
        """The run called `name`, or the newest one. Raises UsageError where there is none."""
        found = [run for run in self.hello.runs if name in (None, run.name)]
        if found:
            return found[0]
        there = ", ".join(run.name for run in self.hello.runs) or "none"
        what = f"there is no run {name} on this box" if name else "nothing was started on this box"
        raise UsageError(f"{what}; there is: {there}.", where=self.link.label)


def visit(asked: Asked, screen: Screen) -> Visit:
    """Log in and ask. Raises UsageError, UnreachableError, HostKeyError."""
    box = contact(asked, screen.say, repo_key=_repo_key(asked))
    box.dial()
    link = SteadyLink(box.login, lost=screen.lost, back=screen.back, warn=screen.warn)
    try:
        workdir = box.recall("workdir")
        hello = greet(
            link.wire,
            workdir=workdir,
            repo_key=box.known.repo_key,
            repo_root=box.recall("repo_root"),
        )
    except BaseException:
        link.close()
        raise
    return Visit(box, link, hello, workdir)


def _repo_key(asked: Asked) -> str:
    """The repository decides only where no host was given; standing in none is no error here."""
    if asked.host:
        return ""
    from bootstrap.repo.here import read

    try:
        return read(asked.place).key
    except UsageError:
        return ""
