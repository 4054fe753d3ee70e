"""Who is told of runs: commands and addresses of `notify.yaml`, by `wait` or, handed over, the box.

The file is the user's own: a repository's profile names no program to run here, and no address
that isn't a secret of the user's.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import Run
from bootstrap.errors import UsageError
from bootstrap.link.cancel import made_beside
from bootstrap.link.exchange import answer_rows, run_script
from bootstrap.link.query import ask
from bootstrap.onbox.runs.tell import News, is_address, post
from bootstrap.paths import config_dir

_COMMAND_S = 30  # how long a command, or a request, may take, in seconds
_ASKED_S = 10  # for how many of them a receiver may ask between two tries


def notify_file() -> Path:
    """Return the file with the user's commands and addresses, one per line: `NAME: command`."""
    return config_dir() / "notify.yaml"


def own_notifiers() -> dict[str, str]:
    """Read those, by name. Raises UsageError for an unusable file."""
    from bootstrap.profile.load import read_commands

    found = read_commands(notify_file(), 'notify-send boxstrap "$BOXSTRAP_MESSAGE"')
    wrong = next((name for name in found if not name or any(each.isspace() for each in name)), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r}: a name is one word.", where=str(notify_file()))
    return found


def ring() -> None:
    """Ring the terminal's bell, if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\a")
        sys.stderr.flush()


def notify(  # noqa: PLR0913, PLR0917 - what is told, to whom
    notifiers: dict[str, str], run: Run, box: str, kind: str, text: str, warn: Callable[[str], None]
) -> None:
    """Run the commands in the home folder, and post to the addresses; a failure is only a warning.
    They get the message, which contains nothing from a log but a metric's name and number."""
    from bootstrap.profile.load import profile_label

    news = News(kind, round(time.time()), text, run.name, box)
    for name, notifier in notifiers.items():
        where = f"{profile_label(notify_file())}: {name}"
        if is_address(notifier):
            why = _posted(notifier.strip(), news)
        else:
            why = _done(notifier, run, news)
        if why:
            warn(f"{where}: {why}")


def _posted(address: str, news: News) -> str:
    """Post it, within the time; return why that failed."""
    why = made_beside(lambda: post(address, news, asked_s=_ASKED_S), _COMMAND_S)
    return why if isinstance(why, str) else why.what


def _done(command: str, run: Run, news: News) -> str:
    told = {
        "BOXSTRAP_EVENT": news.kind,
        "BOXSTRAP_MESSAGE": news.message,
        "BOXSTRAP_BOX": news.box,
        "BOXSTRAP_RUN": run.name,
        "BOXSTRAP_STATE": run.state,
        "BOXSTRAP_EXIT": "" if run.rc is None else str(run.rc),
    }
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            cwd=Path.home(),
            env={**os.environ, **told},
            timeout=_COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not finish within {_COMMAND_S} s"
    except (OSError, ValueError) as error:  # ValueError: of a message that no variable can hold
        return getattr(error, "strerror", None) or str(error)
    return f"it ended with {done.returncode}" if done.returncode else ""


def hand_over(box: BoxLogin, runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Let the box tell the addresses of `notify.yaml` of these runs; return those that go on, and
    the addresses' names. The addresses travel over standard input, and no command shows them.

    Raises UsageError if there is no address; LinkLost, NoAnswer.
    """
    addresses = {name: text.strip() for name, text in own_notifiers().items() if is_address(text)}
    if not addresses:
        raise UsageError(
            "it has no address that a box could post to; commands can only run here.",
            where=str(notify_file()),
            hint="As in: phone: ntfy+https://ntfy.sh/YOUR-TOPIC",
        )
    lines = "\n".join(f"{name} {box.name} {address}" for name, address in addresses.items())
    names = " ".join(run.path for run in runs)
    query = ask("verbs", {"verb": "detach", "runs": names}, workdir=box.workdir)
    told = who_is_told_of(run_script(box.wire, query, lines.encode(), timeout=60))
    return [run for run in runs if run.path in told], [*addresses]


def who_is_told_of(answer: bytes) -> set[str]:
    """Return the runs that the box says it tells of, `KEY/NAME`."""
    return {path for word, path in answer_rows(answer) if word == "told"}
