"""What would be lost with a box: what runs there, was made there, or is not at home yet. Results
are missing here unless each file was checked on both sides."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.boxes.at_home import find_kept
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import BoxState
from bootstrap.boxes.receipt import check_receipt, receipt_file
from bootstrap.boxes.run import Run, qualified, repository_names
from bootstrap.boxes.trees import BoxContent, BoxWork, UnsentContent, also_commands
from bootstrap.errors import BoxstrapError, BusyError, NotSafeError, UsageError
from bootstrap.repo.local import LocalRepository, known_place, read_repository
from bootstrap.repo.names import shown
from bootstrap.runs.bring_home import bring_home
from bootstrap.runs.pull import PullOptions, pull_run, results_of_profile
from bootstrap.runs.pull_result import let_go_words
from bootstrap.setup.back import bring_from, look_at_work, only_there
from bootstrap.sizes import file_count, first_of, size
from bootstrap.transfer.destination import why_refused
from bootstrap.transfer.frames import BoxResults, Transfer
from bootstrap.transfer.puller import NOTHING, REASONS, lost_words
from bootstrap.ui.screen import Screen
from bootstrap.value import Document

_NAMED = 5
_KNOWN_ONLY_THERE = ("staged", "unread", "repositories", "ignored")
"""Kinds that only the box itself can find, even after its edits were fetched."""


@dataclass(frozen=True)
class Loss(Document):
    """Something that would be lost with the box."""

    KEYS = "kind, where, what"

    kind: str
    """run, queued, processes, setup; results, log; edits, staged, files, ignored, commits,
    repositories, unread; unknown, unseen; left (any of these, in a working folder of before)."""
    where: str  # the run, or the tree
    what: str
    let_go: str = field(default="", compare=False)
    """For results that no pull brings: the command that lets go of them; for what git ignores,
    those that bring it, and that let go of it."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def find_live_processes(state: BoxState) -> list[Loss]:
    """Return what is active there: runs, queued runs, leftover processes of runs, a setup."""
    names = repository_names({run.repo_key for run in state.runs})
    found = []
    for run in state.runs:
        if run.goes_on:
            kind = "run" if run.state == "running" else "queued"
            found.append(Loss(kind, qualified(run, names), run.outcome()))
        elif run.left:
            found.append(Loss("processes", qualified(run, names), run.outcome()))
    if state.working:
        found.append(Loss("setup", "setup", str(state.holder or f"{state.working[0]} at work")))
    return found


def find_ended_since(before: BoxState, now: BoxState) -> list[Loss]:
    """Return runs that ended after results were checked: their results were not."""
    names = repository_names({run.repo_key for run in now.runs})
    seen = {(run.repo_key, run.name, run.started) for run in before.runs if not run.goes_on}
    return [
        Loss("results", qualified(run, names), "it ended after results were looked at")
        for run in now.runs
        if not run.goes_on and (run.repo_key, run.name, run.started) not in seen
    ]


class BoxTrees:
    """The trees of a box, compared with the repositories on this machine."""

    def __init__(self, box: BoxLogin, made: BoxContent, screen: Screen) -> None:
        self._box, self._made, self._screen = box, made, screen

    def bring_home(self) -> list[Loss]:
        """Fetch commits and edits of the current repository; return what failed, and why."""
        found = []
        for tree in self._made.trees:
            here = self._here(tree)
            if here is None or tree.beside or tree.repo_key != self._box.own:
                continue
            try:
                brought = bring_from(self._box, here, self._screen)
            except BoxstrapError as error:
                if type(error) is not BoxstrapError:
                    raise
                found.append(Loss("unread", tree.name, error.what))
                continue
            if brought.new:
                self._screen.note("home", "; ".join(brought.lines()[: len(brought.refs)]))
        return found

    def find_unsafe(self) -> list[Loss]:
        """Return what is in no repository on this machine. Raises UnreachableError, NoAnswer."""
        if not self._made.is_set_up:
            what = "boxstrap has no folder there, so it is unknown what is on it"
            return [Loss("unknown", self._box.name, what)]
        found = (one for tree in self._made.trees for one in self._of_tree(tree))
        return list(dict.fromkeys(found))  # refs and files of one tree may both be unread

    def _of_tree(self, tree: UnsentContent) -> Iterator[Loss]:
        here = self._here(tree)
        lost = only_there(here, {commit for commit, _ in tree.refs}) if here else None
        if refs := [ref for commit, ref in tree.refs if lost is None or commit in lost]:
            yield Loss("commits", tree.name, f"commits that are only there: {_few(refs)}")
        ways = self._ways_on(tree, here)
        for folder in tree.risky:
            yield Loss("ignored", tree.name, str(folder), ways)
        compared = self._compared(tree, here)
        if compared is not None:
            yield from compared
        for content in tree.holds:
            if compared is None or content.kind in _KNOWN_ONLY_THERE:
                yield Loss(content.kind, tree.name, str(content))

    def _ways_on(self, tree: UnsentContent, here: LocalRepository | None) -> str:
        """Return the commands about its risky folders."""
        if not tree.risky:
            return ""
        command = f"boxstrap pull --host {self._box.name}"
        if tree.repo_key != self._box.own and here is not None:
            command += f" --repo {shlex.quote(str(here.root))}"
        own = (one.risky for one in self._made.trees if one.risky and one.repo_key == tree.repo_key)
        return also_commands(command, tree.risky, own)

    def _compared(self, tree: UnsentContent, here: LocalRepository | None) -> list[Loss] | None:
        """Compare a main tree's edits with what was fetched; None if that is impossible."""
        if here is None or tree.beside:
            return None
        work = look_at_work(self._box, here, tree.repo_key)
        if work is None or Path(work.folder).name != tree.name:
            return None
        return list(_not_home(tree, work, here))

    def _here(self, tree: UnsentContent) -> LocalRepository | None:
        """Return the tree's repository on this machine, if there is one."""
        try:
            if tree.repo_key == self._box.own:
                return read_repository(self._box.options.place)
            place = known_place(tree.repo_key, tree.root)
            return read_repository(place) if place else None
        except UsageError:
            return None


def _not_home(tree: UnsentContent, work: BoxWork, here: LocalRepository) -> Iterator[Loss]:
    if work.edits and only_there(here, [work.edits]):
        kinds = [str(one) for one in tree.holds if one.kind in ("edits", "files")]
        yield Loss("edits", tree.name, "; ".join(kinds) or "edits made on the box")
    if work.left:
        what = "too large to come home, or repositories of their own"
        yield Loss("files", tree.name, f"{what}: {_few(work.left)}")
    if work.unread or not work.base:
        yield Loss("unread", tree.name, "git can't tell what was made there")


def _few(names: list[str] | tuple[str, ...]) -> str:
    more = ", …" if len(names) > _NAMED else ""
    return ", ".join(map(shown, names[:_NAMED])) + more


_NAMED_RESULTS = 10


class BoxResultsCheck:
    """The results of all runs of a box that are over, of each its own."""

    def __init__(self, box: BoxLogin, screen: Screen) -> None:
        self._box, self._screen = box, screen
        self._names = repository_names({run.repo_key for run in box.state.runs})
        self._let_go: dict[str, list[str]] = {}  # results that the user let go of, by run
        self._fallback = results_of_profile(box.options)
        self._runs = sorted(
            (run for run in box.state.runs if run.is_over),
            key=lambda run: run.begun or run.started,
            reverse=True,
        )

    def find_unsafe(self, most: int | None = None) -> list[Loss]:
        """Return results that are not here. `most`: pull up to so many bytes for each run first.
        Raises as `pull_run`, except that results which were not pulled are returned as unsafe."""
        found = []
        for run in self._runs:
            problems = self._problems(run)
            if run_lets_go := self._let_go.get(run.path):
                self._screen.note("let go", f"of {run.name}: {let_go_words(run_lets_go)}")
            let_go = ""
            is_own = self._box.own in ("", run.repo_key)
            if problems and most is not None and is_own and not _odd(run):
                pulled, let_go = self._pull(run, most)
                problems = pulled or self._problems(run)
            name = qualified(run, self._names)
            told = first_of(problems, _NAMED_RESULTS)
            found += [Loss("results", name, what, let_go) for what in told]
        return found

    def _pull(self, run: Run, most: int) -> tuple[list[str], str]:
        """Pull the run's results; return what was not pulled, and why, and the command that lets
        go of it if no other pull brings any of it."""
        wish = PullOptions(most, run.name)
        try:
            pulled = pull_run(self._box, self._screen, wish, run)
            self._screen.note("pull", "; ".join(line.strip() for line in pulled.lines()))
        except (NotSafeError, BusyError) as error:
            self._screen.warn(error.text())
            return [], ""
        manifest = pulled.manifest
        let_go = pulled.let_go_command() if len(manifest.never) == len(manifest.missing) else ""
        return [f"{path}: {why}" for path, why in manifest.missing.items()], let_go

    def _problems(self, run: Run) -> list[str]:
        """Return why its results are not safe; empty if they are, or if there are none."""
        if _odd(run):
            return [f"its name is not allowed on this machine: {shown(run.name)}"]
        box = self._box
        known, name = box.known, run.path
        file = receipt_file(known.folder, run.repo_key, run.name)
        fallback = self._fallback if run.repo_key == box.own else ()
        tree = box.state.repo_dir
        with Transfer(box.wire, box.workdir) as transfer:
            source = BoxResults(transfer, box.label, name, tree, fallback, stood_s=0.0)
            look = source.look(live=False)
            self._let_go[name] = look.without
            files = look.files.values()
            problems = [
                f"{shown(p)} {REASONS[w]}" for p, w in look.left.items() if w not in NOTHING
            ]
            problems += [f"{shown(one.path)}: {REASONS[one.why]}" for one in files if one.why]
            problems += [
                f"{shown(p)}: {lost_words(one)}, and no pull brings it (scp does)"
                for p, one in look.lost.items()
                if one.why == "changed"
            ]
            lost = {} if look.given_up else look.lost
            if not (files or lost):
                return problems
            if not file.is_file():
                problems += [f"{shown(p)}: {lost_words(one)}" for p, one in lost.items()]
                all_of = f"{file_count(len(files))}, {size(sum(one.size for one in files))}"
                return problems + [f"never pulled to the end: {all_of}"] * bool(files)
            present = dict[str, tuple[int, str]]()
            for one, given in source.digests(list(files)):
                if given.problem:
                    problems.append(f"{shown(one.path)}: {REASONS[given.problem]}")
                present[one.path] = (one.size, given.sha256)
        names, kept = (known.name, run.repo_key, run.name), find_kept(known, run)
        checked = check_receipt(file, names, present, lost, kept.key if kept else "")
        return problems + [shown(problem) for problem in checked]


def _odd(run: Run) -> bool:
    return any(map(why_refused, (run.repo_key, run.name)))


def find_unsafe_logs(box: BoxLogin, screen: Screen, most: int | None = None) -> list[Loss]:
    """Return runs that are over and whose log is not here, of all repositories on the box. `most`:
    bring so many bytes of each first. Raises UnreachableError."""
    runs = box.state.runs
    names = repository_names({run.repo_key for run in runs})
    found = []
    for run in runs:
        if not run.is_over:
            continue
        kept = find_kept(box.known, run)
        if kept and kept.is_here() and kept.is_whole(run):
            continue
        name = qualified(run, names)
        if most is None:
            what = f"its log ({size(run.log_bytes)}) and record are not at home"
            found.append(Loss("log", name, what))
            continue
        try:
            kept = bring_home(box, run, most)
        except (NotSafeError, BusyError) as error:
            found.append(Loss("log", name, error.what))
            continue
        screen.note("home", f"{name}: {kept.lines()[0].strip()}")
    return found
