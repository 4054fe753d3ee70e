"""The text at the end of a setup: what happened, what runs, and what to do next."""

from __future__ import annotations

import posixpath
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.boxes.at_home import note_seen
from bootstrap.boxes.run import Run
from bootstrap.steps.events import WHY
from bootstrap.steps.plan import PlanRow
from bootstrap.ui.layout import still_billing, what_next

if TYPE_CHECKING:
    from bootstrap.setup.new_run import StartedRun
    from bootstrap.setup.result import SetupResult
    from bootstrap.ui.screen import Screen


_NOTHING = "nothing to do: the box is as the profile says"


def show_result(result: SetupResult, screen: Screen) -> None:
    """Print the result, and note its run for `runs`, with what became of the others."""
    if result.run:
        note_seen(result.login.known, [*result.box_state.runs, result.run], screen.redact)
    text = [] if result.waits_for else _happened(result, screen)
    if result.own_folder:
        where = result.box_state.repo_dir
        text.append(f"another repository on this box has the same name, so this one is in {where}")
    if result.box_state.lease:
        text += result.box_state.lease.lines()
    screen.result(result, "\n".join([*text, "", next_steps(result)]))


def plan_lines(rows: Sequence[PlanRow]) -> list[str]:
    width = max(30, *(len(WHY.get(row.why, row.why)) for row in rows))
    return [
        f"{'maybe' if row.why == 'after' else 'runs' if row.runs else '-':<5} {row.step.name:<10} "
        f"{WHY.get(row.why, row.why):<{width}} {row.step.does}"
        for row in rows
    ]


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
    run, is_local = result.run or result.waits_for, result.login.is_local
    can_attach = run and run.state == "running" and result.box_state.has_tmux
    program, there = program_name(sys.argv[0]), _there(result)
    commands = [
        ("attach", f"{program} attach {there}" if can_attach else ""),
        ("follow", f"{program} logs -f {there}" if run else ""),
        ("shell", "" if is_local else f"{program} shell {there}"),
        ("ssh", _ssh(result) if result.alias else ""),
        ("VS Code", "" if is_local else f"{program} code {there}"),
        ("pull", _pull(result, run)),
        *(("fetch", command) for command in _fetch(result)),
    ]
    return _ended(result, run, commands, result.price)


def _ended(
    of: SetupResult | StartedRun,
    run: Run | None,
    commands: list[tuple[str, str]],
    price: float | None,
) -> str:
    program, known = program_name(sys.argv[0]), of.login.known
    beside = f" in {run.tree}" if run and run.tree else ""
    head = f"{of.box}: run {run.name}{beside}: {run.outcome()}" if run else f"{of.box}: set up"
    if run and run.state == "queued" and run.queue.startswith("after"):
        head += f"; for its command $BOXSTRAP_AFTER is the folder of {run.queue.partition(' ')[2]}"
    commands += [("status", f"{program} status {_there(of)}")]
    down, destroy_at = f"{program} down {_there(of)}", of.profile.provider.console or ""
    billing = still_billing(down, destroy_at, price) if known.is_billed else ""
    return what_next(head, commands, billing)


def _there(of: SetupResult | StartedRun) -> str:
    """Return --host, and --repo if the user gave one: else the current folder's runs are meant."""
    repo = of.login.options.repo
    return f"--host {of.box}" + (f" --repo {shlex.quote(str(repo.absolute()))}" if repo else "")


def after_run(begun: StartedRun) -> str:
    run, program, there = begun.run, program_name(sys.argv[0]), _there(begun)
    commands = [
        ("follow", f"{program} logs -f {there} --run {run.name}"),
        ("stop", f"{program} stop {there} --run {run.name}" if run.goes_on else ""),
        ("pull", _pull(begun, run)),
    ]
    return _ended(begun, run, commands, begun.login.known.price or None)


def _results(of: SetupResult | StartedRun) -> Sequence[str]:
    """Return what the profile names of its run's results, unless this run has none."""
    run, train = of.run, of.profile.train
    is_later_node = bool(run and run.node and run.node.rank)
    if of.made_nothing or not train or (is_later_node and train.results_of != "all"):
        return ()
    return train.results


def _pull(of: SetupResult | StartedRun, run: Run | None) -> str:
    """Return the command that pulls a run's results; "" if it has none."""
    if of.login.is_local or run is None or not _results(of):
        return ""
    watch = " --watch" if run.goes_on else ""
    return f"{program_name(sys.argv[0])} pull {_there(of)} --run {run.name}{watch}"


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
    """Return the scp commands for its results, by a name for which ssh has key and host key; none
    where scp would take what the box's shell prints for an answer."""
    endpoint, run = result.login.endpoint, result.run
    if endpoint is None or run is None or not run.has_begun or result.box_state.is_noisy:
        return []
    host = result.alias or (endpoint.alias if endpoint.alias != endpoint.hostname else "")
    tree = result.repo_dir
    if run.tree:
        tree = posixpath.join(posixpath.dirname(tree), run.tree)
    places = [posixpath.join(tree, name) for name in _results(result)] if host else []
    return [f"scp -r {shlex.quote(f'{host}:{place}')} ." for place in places]
