"""push, pull: send files to a box, and copy a run's results from it."""

from __future__ import annotations

from bootstrap.errors import UsageError
from bootstrap.paths import expanded
from bootstrap.tasks.command import CONSENT, HOST, JSON, Call, Option, command


@command(
    Option(
        "path",
        "The file or folder; without one, what the profile's data names of this machine. "
        "The word --path may be left out.",
        bare=True,
    ),
    HOST,
    Option("to", "The folder on the box: below the repository's tree, or an absolute path."),
    Option("exclude", "What stays here, as a line of .gitignore. Repeatable.", many=True),
    Option("replace", "Replace files of the box that no push put there.", False),
    JSON,
    Option("profile", "Without a path: the profile that is meant, its name or a path."),
    CONSENT,
    Option("repo", "The repository whose tree is meant; default: that of the current folder."),
    Option("identity", "The private key to log in with."),
    interrupted="What has arrived stays. To go on, run the same command again: boxstrap push",
)
def push(call: Call) -> None:
    """Send a file or a folder, or the profile's local data, to a box; again, it sends what changed.

    Example: boxstrap push data/corpus --host my-box
    """
    from bootstrap.runs.push import PushWish, push_data, push_path

    given = call.given
    if not given["path"]:
        if given["to"] or given["exclude"]:
            raise UsageError("which file or folder?", hint="As in: boxstrap push data/corpus")
        push_data(call.options(), call.screen, replace=given["replace"])
        return
    wish = PushWish(given["path"], given["to"], tuple(given["exclude"] or ()), given["replace"])
    push_path(call.options(), call.screen, wish)


@command(
    HOST,
    Option("run", "The run, as `status` names it; default: this repository's newest."),
    Option("watch", "Go on while it trains: what becomes complete comes, to its end.", False),
    Option("to", "The folder here; default: boxstrap-results/BOX/RUN in the repository."),
    Option("max_size", "What the results may be at the most, as in 200G.", "50G"),
    JSON,
    Option("profile", "A profile: its name, or a path."),
    Option("repo", "The repository that is meant; default: that of the current folder."),
    Option("identity", "The private key to log in with."),
    interrupted="What came stays. To go on, run the same command again: boxstrap pull",
)
def pull(call: Call) -> None:
    """Bring a run's results here: complete files alone, verified, and nothing of yours replaced.

    Example: boxstrap pull --host my-box --watch
    """
    from bootstrap.runs.pull import PullWish, pull_results
    from bootstrap.text.sizes import bytes_of

    given = call.given
    most = bytes_of(given["max_size"])
    if most is None:
        raise UsageError(f"--max-size: {given['max_size']!r} is no size.", hint="As in: 50G, 1.5T")
    to = expanded(given["to"]) if given["to"] else None
    pull_results(call.options(), call.screen, PullWish(most, given["run"], to, given["watch"]))
