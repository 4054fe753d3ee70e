"""Find results of a box's runs that are missing here, by checking each file on both sides."""

from __future__ import annotations

from bootstrap.errors import BusyError, NotSafeError
from bootstrap.link.handle import BoxOptions
from bootstrap.protocol.made_there import BoxContent
from bootstrap.protocol.results import BoxResults
from bootstrap.protocol.run import Run
from bootstrap.protocol.transfer import Transfer
from bootstrap.renting.unsafe import Unsafe
from bootstrap.repo.names import shown
from bootstrap.runs.connection import BoxConnection
from bootstrap.runs.pull import PullWish, pull_run, results_of_profile
from bootstrap.runs.selection import qualified, repository_names
from bootstrap.text.sizes import number, size
from bootstrap.transfer.names import why_refused
from bootstrap.transfer.puller import NOTHING, REASONS
from bootstrap.transfer.receipt import check_receipt, receipt_file
from bootstrap.ui.screen import Screen

_NAMED = 10
_OVER = ("finished", "died")


class BoxResultsCheck:
    """The results of all runs of a box that are over.

    Runs with results in the same place share them: the newest run's receipt counts.
    """

    def __init__(
        self, options: BoxOptions, connection: BoxConnection, made: BoxContent, screen: Screen
    ) -> None:
        self._options, self._connection, self._screen = options, connection, screen
        self._names = repository_names({run.repo_key for run in connection.box_state.runs})
        self._fallback = results_of_profile(options)
        seen: dict[str, Run] = {}
        for run in sorted(
            connection.box_state.runs, key=lambda run: run.begun or run.started, reverse=True
        ):
            if run.state in _OVER:
                own = (run.repo_key, run.name)
                seen.setdefault(made.places.get(own, "/".join(own)), run)
        self._runs = list(seen.values())

    def find_unsafe(self, most: int | None = None) -> list[Unsafe]:
        """Return results that are not here. `most`: pull up to so many bytes for each run first.

        Raises as `pull_run`, except that results which were not pulled are returned as unsafe.
        """
        found = []
        for run in self._runs:
            problems = self._problems(run)
            if problems and most is not None and self._is_own(run) and not _odd(run):
                problems = self._pull(run, most) or self._problems(run)
            name = qualified(run, self._names)
            found += [Unsafe("results", name, what) for what in problems[:_NAMED]]
            if len(problems) > _NAMED:
                found.append(Unsafe("results", name, f"and {number(len(problems) - _NAMED)} more"))
        return found

    def _is_own(self, run: Run) -> bool:
        return self._connection.own in ("", run.repo_key)

    def _pull(self, run: Run, most: int) -> list[str]:
        """Pull the run's results; return what was not pulled, and why."""
        wish = PullWish(most, run.name)
        try:
            pulled = pull_run(self._options, self._screen, wish, self._connection, run)
            self._screen.note("pull", "; ".join(line.strip() for line in pulled.lines()))
        except (NotSafeError, BusyError) as error:
            self._screen.warn(error.text())
            return []
        return [f"{path}: {why}" for path, why in pulled.manifest.missing.items()]

    def _problems(self, run: Run) -> list[str]:
        """Return why its results are not safe; empty if they are, or if there are none."""
        if _odd(run):
            return [f"its name is not allowed on this machine: {shown(run.name)}"]
        connection = self._connection
        known, name = connection.box.known, f"{run.repo_key}/{run.name}"
        file = receipt_file(known.folder, run.repo_key, run.name)
        fallback = self._fallback if run.repo_key == connection.own else ()
        tree = connection.box_state.repo_dir
        with Transfer(connection.link.wire, connection.workdir) as transfer:
            source = BoxResults(transfer, connection.link.label, name, tree, fallback, stood_s=0.0)
            look = source.look(live=False)
            files = look.files.values()
            problems = [
                f"{shown(p)} {REASONS[w]}" for p, w in look.left.items() if w not in NOTHING
            ]
            problems += [f"{shown(one.path)}: {REASONS[one.why]}" for one in files if one.why]
            if not files:
                return problems
            if not file.is_file():
                total = size(sum(one.size for one in files))
                return [*problems, f"never pulled: {_files(len(files))}, {total}"]
            present = dict[str, tuple[int, str]]()
            for one, given in source.digests(list(files)):
                if given.problem:
                    problems.append(f"{shown(one.path)}: {REASONS[given.problem]}")
                present[one.path] = (one.size, given.sha256)
        checked = check_receipt(file, known.name, run.repo_key, run.name, present)
        return problems + [shown(problem) for problem in checked]


def _odd(run: Run) -> bool:
    return any(map(why_refused, (run.repo_key, run.name)))


def _files(count: int) -> str:
    return f"{number(count)} file{'' if count == 1 else 's'}"
