"""The text at the end of a setup: what happened, what runs, and what to do next."""

from __future__ import annotations

import posixpath
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from bootstrap.boxes.at_home import note_seen
from bootstrap.events import WHY
from bootstrap.ui.layout import NextCommands, what_next

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bootstrap.plan import PlanRow
    from bootstrap.protocol.run import Run
    from bootstrap.setup.result import SetupResult
    from bootstrap.sync.new_run import StartedRun
    from bootstrap.ui.screen import Screen


_NOTHING = "nothing to do: the box is as the profile says"


def show_result(result: SetupResult, screen: Screen) -> None:
    """Print the result, and note its run for `runs`."""
    if result.run:
        note_seen(result.login.known, [result.run], screen.redact)
    text = [] if result.waits_for else _happened(result, screen)
    if result.own_folder:
        where = result.box_state.repo_dir
        text.append(f"another repository on this box has the same name, so this one is in {where}")
    if result.box_state.lease:
        text += result.box_state.lease.lines()
    screen.result(result, "\n".join([*text, "", next_steps(result)]))


def plan_line(row: PlanRow) -> str:
    """Return the line for a step of a plan."""
    mark = "runs" if row.runs else "-"
    return f"{mark:<5} {row.step.name:<10} {WHY.get(row.why, row.why):<30} {row.step.does}"


def _happened(result: SetupResult, screen: Screen) -> list[str]:
    run = result.run
    # The error that follows says what became of a run that failed.
    lines = [] if result.setup or result.failed_before else [_NOTHING]
    lines += [f"  | {screen.safe_text(line)}" for line in result.last_lines]
    if result.first_lines is not None:
        lines += [f"  {screen.safe_text(line)}" for line in result.first_lines]
    elif run and not run.failed:
        lines.append(f"{run.name} {run.outcome()}; to start it again: --restart")
    if run and run.state == "running" and result.differs == ("secrets",):
        lines.append("it still uses the earlier secrets; --restart starts it with the current ones")
    return lines


def next_steps(result: SetupResult) -> str:
    """Return the block of text that ends a setup."""
    run, box, name = result.run or result.waits_for, result.login, result.box
    program, local, repo = program_name(sys.argv[0]), box.is_local, box.options.repo
    can_attach = run and run.state == "running" and result.box_state.has_tmux
    there = _there(name, repo)
    return what_next(
        NextCommands(
            box=name,
            run=run.name if run else "",
            state=run.outcome() if run else "",
            attach=f"{program} attach {there}" if can_attach else "",
            follow=f"{program} logs -f {there}" if run else "",
            shell="" if local else f"{program} shell {there}",
            ssh=_ssh(result) if result.alias else "",
            code="" if local else f"{program} code {there}",
            pull="" if local else _pull(program, there, run, _results(result)),
            fetch=_fetch(result),
            status=f"{program} status --host {name}",
            down=f"{program} down {there}" if box.known.is_billed else "",
            destroy_at=result.profile.provider.console or "",
            price=result.price,
        )
    )


def _there(name: str, repo: Path | None) -> str:
    """Return --host, and --repo if the user gave one: else the current folder's runs are meant."""
    return f"--host {name}" + (f" --repo {shlex.quote(str(repo.absolute()))}" if repo else "")


def after_run(begun: StartedRun) -> str:
    """Return the block of text that ends `run`."""
    run, box = begun.run, begun.login
    program, name = program_name(sys.argv[0]), begun.box
    there = _there(name, box.options.repo)
    alive = run.goes_on
    return what_next(
        NextCommands(
            box=name,
            run=run.name,
            state=run.outcome(),
            follow=f"{program} logs -f {there} --run {run.name}",
            stop=f"{program} stop {there} --run {run.name}" if alive else "",
            pull="" if box.is_local else _pull(program, there, run, _results(begun)),
            status=f"{program} status --host {name}",
            down=f"{program} down {there}" if box.known.is_billed else "",
            destroy_at=begun.profile.provider.console or "",
            price=box.known.price or None,
        )
    )


def _results(of: SetupResult | StartedRun) -> Sequence[str]:
    """Return what the profile names of its run's results, unless this run has none."""
    run, train = of.run, of.profile.train
    is_later_node = bool(run and run.node and run.node.rank)
    if of.made_nothing or not train or (is_later_node and train.results_of != "all"):
        return ()
    return train.results


def _pull(program: str, there: str, run: Run | None, results: Sequence[str]) -> str:
    """Return the command that pulls a run's results; "" if it has none."""
    if run is None or not results:
        return ""
    return f"{program} pull {there} --run {run.name}{' --watch' if run.goes_on else ''}"


def _ssh(result: SetupResult) -> str:
    """Return the ssh command into the repository's folder and environment, by `enter.sh` there."""
    home, folder = result.box_state.home, result.repo_dir
    name = posixpath.relpath(folder, posixpath.dirname(home)) if home else folder
    words = ("bash", posixpath.join(home, "box/current/enter.sh"), name)
    # Quoted twice, for the local and the remote shell: the box chose its folders' names.
    return f"ssh -t {result.alias} {' '.join(shlex.quote(shlex.quote(word)) for word in words)}"


def program_name(typed: str) -> str:
    """Return how to call this program again: `inv`, `boxstrap`, or its path if not on PATH."""
    name = posixpath.basename(typed)
    if name not in {"boxstrap", "inv", "invoke"}:
        return "boxstrap"
    return name if shutil.which(name) else shlex.quote(typed)


def _fetch(result: SetupResult) -> list[str]:
    endpoint, alias = result.login.endpoint, result.alias
    run = result.run
    if endpoint is None or run is None or not run.has_begun:
        return []
    if not alias and endpoint.alias != endpoint.hostname:
        alias = endpoint.alias
    address = f"[{endpoint.hostname}]" if ":" in endpoint.hostname else endpoint.hostname
    host = alias or f"{endpoint.user}@{address}"
    port = "" if alias or endpoint.port == 22 else f"-P {endpoint.port} "
    tree = result.repo_dir
    if run.tree:
        tree = posixpath.join(posixpath.dirname(tree), run.tree)
    places = [posixpath.join(tree, name) for name in _results(result)]
    return [f"scp -r {port}{shlex.quote(f'{host}:{place}')} ." for place in places]
