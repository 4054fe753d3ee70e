"""setup, plan, verify: set up a box, show what a setup would do, and check the box."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bootstrap.errors import ReturnBoxError
from bootstrap.tasks.command import BOX, Call, Option, command

if TYPE_CHECKING:
    from bootstrap.setup.request import SetupRequest
    from bootstrap.verdict import Verdict

COMMITTED = Option(
    "committed_only", "Take the commit alone; what is not committed stays here.", False
)
_RESTART = Option("restart", "Start the training again, also where a run is alive.", False)
_ADOPT = Option("adopt", "Take a clone of yours on the box as the repository's folder.", False)
_STRICT = Option("strict", "A warning of the verdict is a reason to return the box.", False)
WAIT = Option("wait", "Seconds to wait for another setup on this box.", 60)
_AGAIN = "Run the same command again to follow it, or: boxstrap stop --setup"


@command(*BOX, COMMITTED, _RESTART, _ADOPT, _STRICT, WAIT, changes=(), interrupted=_AGAIN)
def setup(call: Call) -> None:
    """Take a box to its first training step; running it again continues, or changes nothing.

    Example: boxstrap setup --host root@203.0.113.7:46769 --set train.command="python train.py"
    """
    if call.given["host"]:
        call.screen.note("host", call.given["host"])  # before anything heavy is imported
    if call.dry:
        _show_plan(call, call.request())
        return
    from bootstrap.setup.sequence import run_setup
    from bootstrap.tasks.setup_report import show_result

    try:
        result = run_setup(call.request(), call.screen)
    except ReturnBoxError as error:
        _show_verdict(call, cast("Verdict", error.verdict), refused=True)
        raise
    show_result(result, call.screen)
    result.raise_for_status()


@command(
    *BOX,
    COMMITTED,
    Option("show_origin", "Where each value of the profile comes from.", False),
    changes=(),
)
def plan(call: Call) -> None:
    """Show which steps would run on a box, which would not, and why. Changes nothing.

    Example: boxstrap plan --host my-box --show-origin
    """
    _show_plan(call, call.request())


def _show_plan(call: Call, request: SetupRequest) -> None:
    from bootstrap.setup.sequence import plan_setup
    from bootstrap.tasks.setup_report import plan_line

    found = plan_setup(request, call.screen)
    text = list(map(plan_line, found.rows))
    if found.reused:
        text.append(f"{'':<5} {'python':<10} {found.reused}")
    if call.given.get("show_origin"):
        from bootstrap.ui.origins import lines as origin_lines

        text += ["", *origin_lines(found.loaded.profile, found.loaded.origins)]
    steps = [{"step": row.step.name, "runs": row.runs, "why": row.why} for row in found.rows]
    data = {
        "box": found.box,
        "commit": found.commit,
        "snapshot": found.snapshot,
        "changes": found.changes._asdict(),
        "steps": steps,
        **({"reused": found.reused} if found.reused else {}),
    }
    call.screen.result(data, "\n".join(text))


@command(
    *BOX,
    _STRICT,
    Option("report", "Write the verdict as a page of HTML, for the host's owner."),
    Option("environment", "Prove the profile's variables in each kind of shell instead.", False),
    WAIT,
    interrupted=_AGAIN,
)
def verify(call: Call) -> None:
    """Keep this box, or return it? Its GPUs, what its container grants, its disk and network.

    Example: boxstrap verify --host my-box --set gpu.name=A100 --set gpu.count=8
    """
    if call.given["environment"]:
        _verify_environment(call)
        return
    from bootstrap.paths import expanded
    from bootstrap.setup.verify_box import verify_box

    report = expanded(call.given["report"]) if call.given["report"] else None
    if report:
        from bootstrap.ui.page import check_place

        check_place(report, "--report")
    found = verify_box(call.request(), call.screen)
    _show_verdict(call, found.verdict, refused=found.error is not None)
    if report:
        from datetime import datetime, timezone

        from bootstrap.ui.page import write_page
        from bootstrap.verdict_page import Subject, page

        subject = Subject(found.where, found.provider, datetime.now(timezone.utc))
        write_page(report, page(found.verdict, subject), "--report")
        call.screen.result({"report": str(report)}, f"\nreport: {report}")
    if found.error:
        raise found.error


def _verify_environment(call: Call) -> None:
    from bootstrap.errors import StepFailedError, UsageError
    from bootstrap.setup.prove_environment import verify_environment
    from bootstrap.tasks.setup_report import environment_lines

    if call.given["report"] or call.given["strict"]:
        raise UsageError("--report and --strict are about the verdict, not about --environment.")
    proof = verify_environment(call.request(), call.screen)
    data = {"box": proof.box, "environment": proof.as_dict()}
    call.screen.result(data, "\n".join(environment_lines(proof)))
    if proof.wrong:
        names = ", ".join(variable.name for variable in proof.wrong)
        raise StepFailedError(
            f"not proved everywhere: {names}.", where=proof.box, hint="\n".join(proof.advice())
        )


def _show_verdict(call: Call, verdict: Verdict, *, refused: bool) -> None:
    from bootstrap.ui.verdict_table import lines, painted

    text = "\n".join(lines(verdict, refused=refused))
    call.screen.result({"verdict": verdict.model_dump()}, text, painted)
