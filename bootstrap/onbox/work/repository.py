"""What identifies a repository on a box."""

from __future__ import annotations

import os

from ..git import BoxGit


def root_of(git_folder: str) -> str:
    """Return the first commit of the main line of what was sent, as a line; "" if the history is
    shallow."""
    git = BoxGit(git_folder)
    if not os.path.isdir(git_folder) or os.path.isfile(f"{git_folder}/shallow"):
        return ""
    sent = git.run("for-each-ref", "--count=1", "--format=%(objectname)", "refs/boxstrap").output
    words = ("rev-list", "--first-parent", "--max-parents=0", os.fsdecode(sent).strip() or "HEAD")
    return os.fsdecode(git.run(*words, "--").output)
