"""push: files in, without a setup."""

from __future__ import annotations

from bootstrap.tasks.command import HOST, JSON, Call, Option, command


@command(
    Option("path", "The file or folder."),
    HOST,
    Option("to", "The folder on the box: below the repository's tree, or an absolute path."),
    Option("exclude", "What stays here, as a line of .gitignore. Repeatable.", many=True),
    Option("replace", "Replace files of the box that no push put there.", False),
    JSON,
    Option("repo", "The repository whose tree is meant; default: the one you stand in."),
    Option("identity", "The private key to log in with."),
    positional=("path",),
    interrupted="What has arrived stays. To go on, run the same command again: boxstrap push",
)
def push(call: Call) -> None:
    """Send a file or a folder to a box; again, it sends what changed.

    Example: boxstrap push data/corpus --host my-box
    """
    from bootstrap.runs.push import PushWish, push_path

    given = call.given
    wish = PushWish(given["path"], given["to"], tuple(given["exclude"] or ()), given["replace"])
    push_path(call.options(), call.screen, wish)
