"""setup, plan, verify: set up a box, or look at one; doctor, demo: the same of this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bootstrap.errors import ReturnBoxError, UsageError, WhichBoxError
from bootstrap.paths import shipped, state_dir
from bootstrap.tasks.command import BOXES, EVENTS, HOST, JSON, Call, command
from bootstrap.tasks.options import COMMITTED, IDENTITY, OVERWRITE, WAIT, Option
from bootstrap.value import replace

if TYPE_CHECKING:
    from bootstrap.boxes.verdict import Verdict
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.sequence import SetupPlan


_RESTART = Option("restart", "Start the training again, also where a run is alive.", False)
_REDO = Option(
    "redo", "Do that step again although it is right, as in prepare. Repeatable.", many=True
)
_ADOPT = Option("adopt", "Take a clone of yours on the box as the repository's folder.", False)
_STRICT = Option("strict", "A warning of the verdict is a reason to return the box.", False)
_COMMIT_OPTIONS = ("--quiet", "--no-verify", "--no-gpg-sign")
_COMMITTER = ("-c", "user.name=boxstrap demo", "-c", "user.email=demo@example.org")
_AGAIN = "To follow it: {again}; to cancel it: boxstrap stop --setup{host}"


@command(
    *(*BOXES, EVENTS, COMMITTED, _RESTART, OVERWRITE, _REDO, _ADOPT, _STRICT, WAIT),
    changes=(),
    interrupted=_AGAIN,
    brief=True,
)
def setup(call: Call) -> None:
    """Take a box to its first training step; running it again continues, or changes nothing.
    Example: boxstrap setup --host root@203.0.113.7:46769 --set train.command="python train.py"
    """
    call.screen.has_begun = bool(call.among)
    if call.given["host"] and not call.among:
        call.screen.note("host", call.given["host"])  # before anything heavy is imported
    if call.dry:
        _show_plan(call, call.request())
        return
    from bootstrap.setup.sequence import run_setup
    from bootstrap.steps.plan import NAMES
    from bootstrap.tasks.setup_report import show_result

    names = [name for name in NAMES if name != "train"]
    for name in call.given["redo"]:
        if name not in names:
            hint = (
                "To train again: --restart" if name == "train" else f"They are: {', '.join(names)}"
            )
            raise UsageError(f"--redo {name}: there is no such step to do again.", hint=hint)
    request = replace(call.request(), redo=",".join(call.given["redo"]))
    try:
        try:
            if call.among:
                from bootstrap.fleet.nodes import set_up_node

                result = set_up_node(request, call.screen, call.among)
            else:
                result = run_setup(request, call.screen)
        except WhichBoxError as error:  # nothing was sent yet
            result = run_setup(replace(request, host=_ask_for_host(error)), call.screen)
    except ReturnBoxError as error:
        _show_verdict(call, cast("Verdict", error.verdict), refused=True)
        raise
    show_result(result, call.screen)
    result.raise_for_status()


def _ask_for_host(error: WhichBoxError) -> str:
    """Ask which of the known boxes is meant, or how a new one is reached. Raises `error` if there
    is nobody to ask, or if the repository has boxes of its own, and so one must be named."""
    from bootstrap.link.prompt import Prompt

    prompt = Prompt(print)
    if error.has_several or not prompt.has_terminal():
        raise error
    wanted = "a box's name, or how a new one is reached, as in: ssh -p PORT root@ADDRESS"
    host = prompt.ask(f"{error.what}\nType {wanted}\n> ", bool, wanted)
    if not host:
        raise error
    return host


@command(
    *BOXES,
    COMMITTED,
    Option("show_origin", "Where each value of the profile comes from.", False),
    changes=(),
)
def plan(call: Call) -> None:
    """Show which steps would run on a box, which would not, and why. Changes nothing.
    Example: boxstrap plan --host my-box --show-origin"""
    _show_plan(call, call.request())


def _show_plan(call: Call, request: SetupRequest) -> None:
    from bootstrap.setup.sequence import plan_setup
    from bootstrap.tasks.setup_report import plan_lines

    found = plan_setup(request, call.screen)
    text = [f"{found.box}: what a setup would do", *plan_lines(found.rows)]
    if found.reused:
        text.append(f"{'':<5} {'python':<10} {found.reused}")
    text += _cost(found)
    if call.given.get("show_origin"):
        from bootstrap.profile.load import origin_lines

        text += ["", *origin_lines(found.loaded.profile, found.loaded.origins)]
    call.screen.result(found, "\n".join(text))


def _cost(found: SetupPlan) -> list[str]:
    """Return what the box costs for as long as its lease allows, and what it cost so far."""
    from bootstrap.link.registry import box_by_name
    from bootstrap.providers.estimate import spending

    box, lease = box_by_name(found.box), found.loaded.profile.lease
    if box is None or not box.price:
        return []
    hours = float((lease.hours if lease else None) or 0.0)
    spent = spending(box.price, hours, max(0.0, time.time() - box.costs_since))
    return [f"{'':<5} {'cost':<10} {spent.line(is_over=False)}"]


@command(
    *BOXES,
    _STRICT,
    Option("report", "Write the verdict as a page of HTML, for the host's owner."),
    WAIT,
    interrupted=_AGAIN,
)
def verify(call: Call) -> None:
    """Keep this box, or return it? Its GPUs, what its container grants, its disk and network.
    Example: boxstrap verify --host my-box --set gpu.name=A100 --set gpu.count=8"""
    from bootstrap.setup.sequence import verify_box

    report = None
    if call.given["report"]:
        from bootstrap.runs.page import named_page

        report = named_page(call.given["report"], "--report")
    found = verify_box(call.request(), call.screen)
    _show_verdict(call, found.verdict, refused=found.error is not None)
    if report:
        from datetime import datetime, timezone

        from bootstrap.runs.page import Subject, verdict_page, write_page

        subject = Subject(found.where, found.provider, datetime.now(timezone.utc))
        write_page(report, verdict_page(found.verdict, subject), "--report")
        call.screen.result({"report": str(report)}, f"\nreport: {report}")
    if found.error:
        raise found.error


def _show_verdict(call: Call, verdict: Verdict, *, refused: bool) -> None:
    from bootstrap.runs.page import painted, verdict_lines

    text = "\n".join(verdict_lines(verdict, refused=refused))
    call.screen.result({"verdict": verdict.model_dump()}, text, painted)


@command(HOST, JSON, IDENTITY, changes=())
def doctor(call: Call) -> None:
    """Check this machine, and with --host the way to a box; a line for each check.
    Example: boxstrap doctor --host my-box"""
    from bootstrap.tasks.doctor import examine

    findings = examine(call.options(), call.screen)
    marks = {True: "ok", False: "no"}
    lines = [f"{marks[f.passed]:<3} {f.name:<12} {f.says}" for f in findings]
    call.screen.result({"checks": findings}, "\n".join(lines))
    if failed := [f for f in findings if not f.passed]:
        raise failed[-1].error(
            f"{len(failed)} of {len(findings)} checks failed.", hint=failed[0].advice
        )


@command(JSON)
def demo(call: Call) -> None:
    """Set this machine up for a small training and start it: no account, no GPU, nothing rented.
    Example: boxstrap demo"""
    from bootstrap.link.record import LOCAL
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.sequence import run_setup
    from bootstrap.tasks.setup_report import show_result

    # None of the user's git settings (signing, templates, another repository) count, or the box's.
    for name in [name for name in os.environ if name.startswith(("GIT_", "BASH_ENV"))]:
        del os.environ[name]
    os.environ.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
    folder = state_dir() / "demo"
    repository = _demo_repository(folder / "repository")
    call.screen.note("demo", f"everything is in {folder}; delete it when you like")
    request = SetupRequest(
        host=LOCAL,
        profile="demo",
        sets=(f"box.workdir={folder / 'box'}",),
        repo=repository,
        restart=True,
    )
    result = run_setup(request, call.screen)
    show_result(result, call.screen)
    result.raise_for_status()


def _demo_repository(folder: Path) -> Path:
    """Make a git repository with the demo's training, or keep it: the commit stays the same."""
    import shutil

    from bootstrap.repo.git import Folders, GitError, git_error, run_git

    shutil.copytree(shipped("templates") / "demo", folder, dirs_exist_ok=True)
    own = Folders(folder / ".git", folder)
    try:
        if not own.git_dir.is_dir():
            run_git(own, "init", "--quiet", "--template=", "--initial-branch=main")
        run_git(own, "add", "--all")
        if run_git(own, "status", "--porcelain"):
            run_git(own, *_COMMITTER, "commit", *_COMMIT_OPTIONS, "-m", "Fit a straight line")
    except GitError as failure:
        raise git_error(folder, failure) from failure
    return folder
