"""Which tree a new run gets: the repository's folder, or one beside it for other work: NAME@2,
NAME@3, … A tree has one live run, so that results never mix."""

from __future__ import annotations

import os
from itertools import chain, count

from ..git import BoxTree
from ..run_folder import RunFolder, is_in_tree, lines_of, live_runs, made_at, names_in, runs_below


def is_placed(tree: BoxTree) -> bool:
    """Whether it was placed before, so that one state can replace another."""
    return os.path.isdir(tree.work.folder) and RunFolder(tree.notes).has("repo.placed")


def is_user(run: RunFolder, folder: str) -> bool:
    """Whether its environment is this folder, or is in it."""
    return f"{run.first('venv')}/".startswith(f"{folder}/")


def absolute_command(command: str, venv: str) -> str:
    """Return it with `python` as the environment's, by its path: PATH does not matter."""
    program, blank, rest = command.partition(" ")
    is_python = blank and program in ("python", "python3")
    return f"{venv}/bin/python {rest}" if is_python else command


def choose(home: str, key: str, main: str, content: str, *own: str) -> BoxTree:
    """With the lock held: return the main tree if it is free, else the one beside it in which the
    same ran last, else one that no run has used, else a new one. `own`: command and session of the
    run; `beside` asks for a tree without results of others: the last two, the main one before it is
    made, or, for a `cell` of a sweep, the one of its session."""
    command, session, beside, cell = own
    live, runs = live_runs(home), sorted(runs_below(f"{home}/runs"), key=made_at)
    last = {run.first("dir"): run for run in runs}
    beside_main = names_in(f"{home}/steps/{key}/beside")

    def tree_of(number: str) -> BoxTree:
        return BoxTree(home, key, main if number == "1" else f"{main}@{number}", number)

    def is_free(tree: BoxTree) -> bool:
        return not any(is_in_tree(run, key, tree.path) or is_user(run, tree.path) for run in live)

    def is_same(tree: BoxTree, run: RunFolder) -> bool:
        """Whether it ran this, in a tree that is as it was placed."""
        typed = absolute_command(command, run.first("venv"))
        is_own = cell and run.name.rpartition("-")[0] == f"{key}/{session}"
        is_work = content and content == run.first("tree") and (is_own or not beside)
        is_work = is_work and "\n".join(lines_of(f"{run.path}/command")) == typed
        return bool(is_work) and not tree.placed.run("diff", "--quiet", "--no-ext-diff").code

    if is_free(tree_of("1")) and not (beside and is_placed(tree_of("1"))):
        return tree_of("1")
    free = [tree for tree in map(tree_of, ("1", *beside_main)) if is_free(tree)]
    for tree in free:
        if tree.path in last and is_same(tree, last[tree.path]):
            return tree
    unused = (tree for tree in free if tree.number != "1" and tree.path not in last)
    # None that a tree has or had: the records of old runs stay true.
    taken = {*(tree_of(number).path for number in beside_main), *last}
    others = (tree_of(str(number)) for number in count(2))
    new = (one for one in others if not (one.path in taken or os.path.lexists(one.path)))
    tree = next(chain(unused, new))
    os.makedirs(tree.notes, exist_ok=True)
    tree.note_lines("repo.dir", [tree.path])
    return tree
