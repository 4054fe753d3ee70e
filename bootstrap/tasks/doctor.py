"""doctor: does this machine have what boxstrap needs, and does it reach the box?"""

from __future__ import annotations

from bootstrap.tasks.command import HOST, JSON, Call, Option, command


@command(HOST, JSON, Option("identity", "The private key to log in with."), changes=())
def doctor(call: Call) -> None:
    """Check this machine, and with --host the way to a box; a line for each check.

    Example: boxstrap doctor --host my-box
    """
    from bootstrap.doctor import examine

    findings = examine(call.options(), call.screen)
    marks = {True: "ok", False: "no"}
    lines = [f"{marks[f.passed]:<3} {f.name:<12} {f.says}" for f in findings]
    data = [{"check": f.name, "ok": f.passed, "says": f.says} for f in findings]
    call.screen.result({"checks": data}, "\n".join(lines))
    failed = [f for f in findings if not f.passed]
    if failed:
        raise failed[-1].error(
            f"{len(failed)} of {len(findings)} checks failed.", hint=failed[0].advice
        )
