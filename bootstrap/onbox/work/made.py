"""What was made in each tree of this box: edits, new files, and refs with commits that were never
sent to it. Changes nothing. Results of runs are left out: the caller checks each of them.

`onbox work.made BOX_HOME REQUEST` prints lines of JSON: for each tree what it holds, then the tree;
for each run that has begun, where its results are; at last how many lines that are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ..git import BoxTree, trees_of
from ..results.at_risk import FEW, Tree, new_work, told
from ..results.run_results import runs_of
from ..run_folder import RunFolder

LONGEST = 1000
"""Characters of a name that is told."""
CHANGED = ("--name-only", "-z", "--no-ext-diff", "--ignore-submodules=all", "--diff-filter=d")
_PEELED = (
    "--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname)",
)


def held(what: str, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield how many of a kind there are, and no more names than a person reads."""
    found = list(names)
    if found:
        few = [told(name[:LONGEST]) for name in found[:FEW]]
        yield {"kind": "holds", "what": what, "count": len(found), "names": few}


def edits(tree: BoxTree) -> list[str]:
    """Return the placed files that were edited. Raises OSError if git can't tell."""
    return tree.placed.paths("diff", *CHANGED)


def own_repositories(tree: BoxTree) -> Iterator[dict[str, Any]]:
    """Submodules travel as folders of files. One that became a repository on the box has commits
    that were never sent."""
    rows = (row.partition("\t") for row in tree.work.paths("ls-files", "-z", "--stage"))
    links = (path for about, _, path in rows if about.startswith("160000"))
    return held("repositories", (one for one in links if os.path.exists(f"{tree.path}/{one}/.git")))


MADE_BY_TOOLS = ("__pycache__/", "*.egg-info/", ".ipynb_checkpoints/")
"""Made beside what is imported, by an install of the tree itself, and beside a notebook that is
saved: nobody's work."""


def ignore_lines(tree: BoxTree) -> list[str]:
    """Return the results of runs that began in a tree, as lines of .gitignore."""
    paths = [path for run in runs_of(tree.home) if run.tree == tree.path for path in run.paths]
    return ["/" + re.sub(r"[][*?\\]", r"\\\g<0>", path) for path in paths]


def _refs(tree: BoxTree) -> set[tuple[str, str]]:
    """Return commits and names of its branches, tags and stashes."""
    work = tree.work
    head = work.id_of("HEAD^{commit}")
    lines = work.lines("for-each-ref", *_PEELED)
    if any(line.endswith(" refs/stash") for line in lines):
        # Only the newest stash is a ref; the ones below it are in its reflog.
        stashes = ("reflog", "show", "--format=%H refs/stash", "refs/stash", "--")
        lines += work.lines(*stashes)
    lines += [f"{head} HEAD"] if head else []
    refs = ((commit, name) for commit, _, name in (line.partition(" ") for line in lines))
    return {(commit, name) for commit, name in refs if not name.startswith("refs/remotes/")}


def _is_only(tree: BoxTree) -> bool:
    """Return whether git has no other working tree: files there would not be checked."""
    if os.path.isdir(tree.work.folder) and not os.path.exists(f"{tree.work.folder}/worktrees"):
        return True
    listed = tree.work.lines("worktree", "list", "--porcelain")
    return sum(line.startswith("worktree ") for line in listed) == 1


def own_refs(tree: BoxTree) -> Iterator[dict[str, Any]]:
    """Yield those that lead to commits which were never sent to this box."""
    if not _is_only(tree):
        raise OSError
    refs = sorted(_refs(tree))

    def never_sent(commits: Iterable[str]) -> bool:
        return bool(tree.store.ask("rev-list", "-n", "1", *commits, "--not", "--all"))

    # Usually none does, and one call of git shows it.
    if refs and never_sent(commit for commit, _ in refs):
        for commit, name in refs:
            if never_sent([commit]):
                yield {"kind": "ref", "commit": commit, "name": name}
    yield from own_repositories(tree)


def own_files(tree: BoxTree) -> Iterator[dict[str, Any]]:
    """Yield what somebody made in its files."""
    if not os.path.isfile(f"{tree.placed.folder}/index"):
        raise OSError
    yield from held("edits", edits(tree))
    # Changes in the index alone: one that the file also has is an edit, or was placed.
    staged = {*tree.work.paths("diff", "--cached", *CHANGED)}
    both = staged.intersection(tree.work.paths("diff", *CHANGED[:-1]))
    yield from held("staged", sorted(both))
    out = [f"--exclude={one}" for one in (*MADE_BY_TOOLS, *ignore_lines(tree))]
    exclude = f"{tree.work.folder}/info/exclude"
    out += [f"--exclude-from={exclude}"] if os.path.isfile(exclude) else []
    new = ("ls-files", "--others", "-z", "--exclude-per-directory=.gitignore")
    yield from held("files", new_work(tree, tree.placed.paths(*new, *out)))
    risks = Tree(tree)
    yield from risks.risks()
    if not risks.runs:
        yield from held("ignored", sorted(risks.made()))


def look_at(tree: BoxTree) -> Iterator[dict[str, Any]]:
    """Yield what a tree holds; nothing if it isn't there."""
    if not os.path.lexists(tree.path):
        return
    for part, look in (("refs", own_refs), ("files", own_files)):
        try:
            yield from list(look(tree))
        except OSError:
            yield from held("unread", [part])
    about = {"key": tree.key, "name": tree.name, "number": tree.number}
    yield {"kind": "tree", **about, "root": tree.note("repo.root")}


def places(home: str) -> Iterator[dict[str, Any]]:
    """Yield for each run that has begun a digest of where its results are: equal digests, one
    place."""
    for run in runs_of(home):
        lines = RunFolder(run.path).lines("results") or []
        text = "\n".join([f"{run.tree}\0", *lines])
        place = hashlib.sha256(os.fsencode(text)).hexdigest()
        about = {"run": f"{run.key}/{run.name}", "begun": run.begun // 10**9}
        yield {"kind": "results", "place": place, **about}


def tell(rows: Iterable[dict[str, Any]]) -> None:
    """Print lines; the last one says how many there were, so that none is missed."""
    sys.stdout.write('{"kind": "home"}\n')
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - the number of the last one
        sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.write(json.dumps({"kind": "over", "told": count}) + "\n")


def main() -> None:
    home = sys.argv[1]
    tell([*(row for tree in trees_of(home) for row in look_at(tree)), *places(home)])
