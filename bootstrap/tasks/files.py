"""sync, push, pull: files to a box and from it."""

from __future__ import annotations

import contextlib
import json
import posixpath
from typing import TYPE_CHECKING

from bootstrap.errors import NoSuchRunError, UnreachableError, UsageError, WhichBoxError
from bootstrap.paths import expanded
from bootstrap.tasks.command import BOXES, CONSENT, HOSTS, JSON, MAX_SIZE, Call, command
from bootstrap.tasks.options import COMMITTED, IDENTITY, PROFILE, REPO_MEANT, WAIT, Option
from bootstrap.tasks.runs import BEGUN_RUN
from bootstrap.value import document

if TYPE_CHECKING:
    from bootstrap.setup.sync import Synced


@command(
    Option(
        "path",
        "The file or folder; without one, what the profile's data names of this machine. "
        "The word --path may be left out.",
        bare=True,
    ),
    *HOSTS,
    Option("to", "The folder on the box: below the repository's tree, or an absolute path."),
    Option("exclude", "What stays here, as a line of .gitignore. Repeatable.", many=True),
    Option("replace", "Replace files of the box that no push put there.", False),
    JSON,
    Option("profile", "Without a path: the profile that is meant, its name or a path."),
    CONSENT,
    Option("repo", "The repository whose tree is meant; default: that of the current folder."),
    IDENTITY,
    interrupted="What has arrived stays. To go on: {again}",
)
def push(call: Call) -> None:
    """Send a file or a folder, or the profile's local data, to a box; again, it sends what changed.
    Example: boxstrap push data/corpus --host my-box"""
    from bootstrap.setup.push import PushOptions, push_data, push_path

    given = call.given
    if not given["path"]:
        if given["to"] or given["exclude"]:
            raise UsageError("which file or folder?", hint="As in: boxstrap push data/corpus")
        push_data(call.options(), call.screen, replace=given["replace"])
        return
    wish = PushOptions(given["path"], given["to"], tuple(given["exclude"] or ()), given["replace"])
    push_path(call.options(), call.screen, wish)


@command(
    *HOSTS,
    Option("run", f"{BEGUN_RUN.help} Repeatable.", many=True, bare=True),
    Option("all", "All runs of this repository, each into a folder of its own.", False),
    Option("watch", "Go on while it trains: what becomes complete comes, to its end.", False),
    Option("to", "The folder here; default: boxstrap-results/BOX/RUN in the repository."),
    Option(
        "also",
        "A file or folder of the run's tree that is to come too, and counts as its result from now "
        "on. Repeatable.",
        many=True,
    ),
    Option(
        "without",
        "A result to let go of, for down and the lease too: its path, or a pattern as 'out/*.tmp'. "
        "Repeatable; remembered, until other ones are given (- for none).",
        many=True,
    ),
    MAX_SIZE,
    JSON,
    *(PROFILE, REPO_MEANT, IDENTITY),
    interrupted="What came stays. To go on: {again}",
)
def pull(call: Call) -> None:
    """Bring a run's results here: complete files alone, verified, and nothing of yours replaced.
    Example: boxstrap pull --host my-box --watch"""
    from bootstrap.runs.pull import PullOptions, pull_results, pull_several, say_at_home
    from bootstrap.transfer.destination import why_refused
    from bootstrap.transfer.frames import MOST_LET_GO

    given = call.given
    to = expanded(given["to"]) if given["to"] else None
    also = tuple(given["also"] or ())
    names = tuple(dict.fromkeys(given["run"] or ()))
    if given["all"] and names:
        raise UsageError("--all, or --run: name one of them.")
    several = given["all"] or names[1:]
    if several and (to or given["watch"]):
        raise UsageError("each of several runs has a folder of its own, without --to or --watch.")
    if given["all"] and also:
        raise UsageError("--also is of runs that are named, not of --all.")
    for one in also:
        if why := why_refused(posixpath.normpath(one)):
            raise UsageError(
                f"--also {one} {why}.",
                hint="As in: --also artifacts/, below the repository's folder on the box",
            )
    without = tuple(one for one in given["without"] if one != "-") if given["without"] else None
    if without and len(without) > MOST_LET_GO:
        raise UsageError(
            f"--without: more than {MOST_LET_GO} are too many.",
            hint="Use a pattern, as in 'out/*.tmp'",
        )
    run = names[0] if names else None
    wish = PullOptions(call.max_size, run, to, given["watch"], without, also)
    if several:
        pull_several(call.options(), call.screen, wish, names)
    else:
        try:
            pull_results(call.options(), call.screen, wish)
        except (NoSuchRunError, UnreachableError, WhichBoxError) as error:
            say_at_home(call.options(), call.screen, wish, error)


_OF_THIS = tuple(option for option in BOXES if option.name not in ("name", "new_box"))


@command(
    *_OF_THIS,
    COMMITTED,
    WAIT,
    Option("watch", "Keep sending, on every save, until Ctrl-C.", False),
    Option("back", "Bring what was made on the box here, as refs; nothing is checked out.", False),
    interrupted="What was placed stays. To go on: {again}",
)
def sync(call: Call) -> None:
    """Send your current files to their tree on a box, without a setup; or bring its work home.
    Example: boxstrap sync --host my-box --watch"""
    given = call.given
    if given["watch"] and given["back"]:
        raise UsageError("--watch and --back are two directions: name one of them.")
    if given["back"]:
        from bootstrap.setup.back import bring_work_home

        brought = bring_work_home(call.options(), call.screen)
        call.screen.result(brought, "\n".join(brought.lines()))
    elif given["watch"]:
        _watch(call)
    else:
        from bootstrap.setup.sync import send_state

        synced = send_state(call.request(), call.screen)
        call.screen.result(synced, str(synced))


def _watch(call: Call) -> None:
    """Print a line for each placed state; with --json a JSON line."""
    from bootstrap.setup.watch import watch_states

    def tell(synced: Synced) -> None:
        if call.is_json:
            line = json.dumps({"v": 1, **document(synced)})
        else:
            line = call.screen.safe_text(f"{synced} ({synced.seconds:.2f} s)")
        print(line, flush=True)  # noqa: T201 - immediately, not at the end

    with contextlib.suppress(KeyboardInterrupt):  # the normal way to end it
        watch_states(call.request(), call.screen, tell)
