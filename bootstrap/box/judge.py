"""Facts and an order in, the result document out. Pure: reads nothing, runs nothing.

The result, version 1: `verdict` keep | warn | return; `reasons`, the weightiest
first, each {check, code, outcome, gpus, says, advice}; `driver`, `cuda` (the
newest that the driver runs); `gpus`, each {index, name, uuid, memory_mib,
capability}; `checks`, each {check, gpu, outcome, read, expected, says}; `seconds`.
What isn't known, and the GPU of what concerns the whole box, is null.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import problems
from .check import MIND, NA, OVERRIDES, PASS, RETURN, WARN, Check, Found, Reading
from .checks import BOX_CHECKS, GPU_CHECKS, OF_GPUS, WHOLE_CHECKS
from .gpu_checks import cuda_version
from .order import Order
from .readers import LATE, Facts

# The card or the driver doesn't have it, or this user may not see it: neither good nor bad.
UNSUPPORTED = {3, 4, 6, 13, 22, 25, 26}
SICK = {8, 11, 14, 15, 16}  # wherever they come from
VITAL = ("name", "memory")  # a GPU that fails to tell these can't be used
OF_GPUS_NAMES = {"gpu", "answers", *(check.name for check in OF_GPUS)}

NOT_REQUIRED = "The profile requires no GPU, so the box may be kept: see whether this one matters."


class Row(NamedTuple):
    """What one check found of one GPU, or of the box where `gpu` is None.

    `advice` is for a box that is returned for it, `kept` for one that is kept all the same.
    """

    check: str
    gpu: int | None
    outcome: str
    read: str
    expected: str = ""
    says: str = ""
    code: str = ""
    advice: str = ""
    kept: str = ""


def judge(facts: Facts, order: Order, seconds: float) -> dict[str, Any]:
    """The result document."""
    problem = blocked(facts)
    found = [blocked_row(problem, facts, order)] if problem else judge_gpus(facts, order)
    found += [apply(check, None, facts, order) for check in BOX_CHECKS if asked(check, facts)]
    rows = [weighed(row, order) for row in found]
    reasons = merged(rows)
    return {
        "version": 1,
        "verdict": reasons[0]["outcome"] if reasons else "keep",
        "reasons": reasons,
        "driver": known(facts.get("driver")),
        "cuda": cuda_version(facts["cuda"]) if known(facts.get("cuda")) else None,
        "gpus": [gpu_facts(index, gpu) for index, gpu in facts["gpus"].items()],
        "checks": [dict(zip(Row._fields[:6], row[:6])) for row in rows],  # noqa: B905
        "seconds": round(seconds, 3),
    }


def blocked(facts: Facts) -> problems.Problem | None:
    """What stands in the way of reading any GPU that is ours."""
    if "stopped" in facts:
        return problems.Problem(*facts["stopped"])
    init = error(facts["init"])
    if init == 12:
        return missing(facts)
    if init:
        locked = init in (4, 9, 999) and facts["locked"]
        unseen = problems.NO_DEVICE if init == 9 and facts["kernel"] else problems.of_code(init)
        return problems.LOCKED if locked else unseen
    if error(facts["count"]):
        return problems.of_code(error(facts["count"]))
    if not facts["count"]:
        return problems.NO_GPU
    theirs = all(error(gpu["handle"]) == 4 for gpu in facts["gpus"].values())
    return problems.LOCKED if theirs else None


def missing(facts: Facts) -> problems.Problem:
    """The library can't be had: what does the kernel show?"""
    if facts["library"] == "broken":
        return problems.BROKEN
    if facts["devices"]:
        return problems.MISSING
    if facts["kernel"]:
        return problems.NO_DEVICE
    return problems.NO_DRIVER if facts["cards"] else problems.ABSENT


def blocked_row(problem: problems.Problem, facts: Facts, order: Order) -> Row:
    """The only row of the GPUs there is when none can be read."""
    traces = any(facts.get(key) for key in ("devices", "kernel", "cards"))
    if not order.require and not traces and problem.code in ("no-gpu", "no-driver"):
        return Row("gpu", None, PASS, "no GPU", "none required")
    expected = "a GPU" if order.require else ""
    advice = (problem.advice, NOT_REQUIRED)
    return Row(
        "gpu", None, RETURN, "none to be read", expected, problem.says, problem.code, *advice
    )


def judge_gpus(facts: Facts, order: Order) -> list[Row]:
    """Every check of the GPUs that are ours: those that this user may open."""
    ours = {i: gpu for i, gpu in facts["gpus"].items() if error(gpu["handle"]) != 4}
    ills = {i: ill(gpu) for i, gpu in ours.items()}
    box = {**facts, "usable": sum(not code for code in ills.values())}
    rows = [answers(i, code) for i, code in ills.items()]
    rows += [apply(check, None, box, order) for check in WHOLE_CHECKS]
    for check in GPU_CHECKS:
        rows += [apply(check, i, gpu, order) for i, gpu in ours.items() if "name" in gpu]
    return rows


def ill(gpu: Facts) -> int:
    """NVML's code that says that a GPU can't be used, else 0."""
    for key, value in gpu.items():
        code = error(value)
        lame = key in VITAL and code and code not in UNSUPPORTED
        if code in SICK or lame or (code and key == "handle"):
            return code
    return 0


def answers(gpu: int, code: int) -> Row:
    """Whether a GPU answers at all."""
    if not code:
        return Row("answers", gpu, PASS, "yes", "yes")
    problem = problems.of_code(code)
    advice = (problem.advice, NOT_REQUIRED)
    return Row(
        "answers", gpu, RETURN, f"NVML error {code}", "yes", problem.says, "gpu-sick", *advice
    )


def asked(check: Check, facts: Facts) -> bool:
    """Whether a reader was there for it; what it did not come to is told as late."""
    return check.reads[0] in facts


def apply(check: Check, gpu: int | None, facts: Facts, order: Order) -> Row:
    """One check of one GPU, or of the box."""
    readings = [facts.get(key, {"error": 3}) for key in check.reads]
    failure = unread(check, readings, order)
    if failure:
        code = "" if failure.outcome == NA else unread_code(check)
        return Row(check.name, gpu, *failure, code, MIND, MIND)
    found = Found(*check.judge(order, *map(known, readings)))
    return Row(check.name, gpu, *found, check.code, check.advice, check.kept)


def unread(check: Check, readings: list[Reading], order: Order) -> Found | None:
    """What to find where what a check reads can't be had, or may not be judged now."""
    if check.idle and order.run_alive:
        return Found(NA, "a run is alive")
    if readings[0] is None:
        return Found(NA, "not told by this box")
    if LATE in readings:
        return Found(WARN, "no answer", "", f"its {check.name} can't be read: no answer in time")
    codes = [error(reading) for reading in readings]
    if codes[0] in UNSUPPORTED:
        return untold(check, order)
    failed = [code for code in codes if code and code not in UNSUPPORTED]
    return failed_reading(check, failed) if failed else None


def untold(check: Check, order: Order) -> Found:
    """The card doesn't have it: n/a, unless the order names it."""
    wanted = [str(getattr(order, key)) for key in check.asks if getattr(order, key)]
    if not wanted:
        return Found(NA, "not told by this card")
    says = f"this card doesn't tell its {check.name}, which the order names"
    return Found(WARN, "not told by this card", wanted[0], says)


def failed_reading(check: Check, failed: list[int]) -> Found:
    """NVML failed: a card that is sick is judged by `answers` alone."""
    if SICK.intersection(failed) or check.reads[0] in VITAL:
        return Found(NA, "the card doesn't answer")
    says = f"its {check.name} can't be read: NVML error {failed[0]}"
    return Found(WARN, f"NVML error {failed[0]}", "", says)


def unread_code(check: Check) -> str:
    """What to call a reading that can't be had."""
    return "gpu-unread" if check.name in OF_GPUS_NAMES else "box-unread"


def weighed(row: Row, order: Order) -> Row:
    """A row that doesn't pass, as heavy as the order lets it be, with the advice for that."""
    if row.outcome not in (WARN, RETURN):
        return row
    outcome, kept = row.outcome, row.kept
    spared = outcome == RETURN and not order.require and row.check in OF_GPUS_NAMES
    if spared:
        outcome, kept = WARN, NOT_REQUIRED
    if row.check in order.checks:
        outcome = OVERRIDES[order.checks[row.check]]
    if order.strict and outcome == WARN:
        outcome = RETURN
    says = row.says or row.read
    return row._replace(
        outcome=outcome, says=says, advice=row.advice if outcome == RETURN else kept
    )


def merged(rows: list[Row]) -> list[dict[str, Any]]:
    """What speaks against the box, heaviest first; said once for all GPUs that it is true of."""
    reasons: dict[Row, list[int | None]] = {}
    for heavy in (RETURN, WARN):
        for row in rows:
            if row.outcome == heavy:
                reasons.setdefault(row._replace(gpu=None), []).append(row.gpu)
    return [reason(row, gpus) for row, gpus in reasons.items()]


def reason(row: Row, gpus: list[int | None]) -> dict[str, Any]:
    """A row as a reason of the verdict."""
    return {
        "check": row.check,
        "code": row.code,
        "outcome": row.outcome,
        "gpus": [index for index in gpus if index is not None],
        "says": row.says,
        "advice": row.advice,
    }


def gpu_facts(index: int, gpu: Facts) -> dict[str, Any]:
    """What the result tells of one GPU."""
    memory, capability = known(gpu.get("memory")), known(gpu.get("capability"))
    return {
        "index": index,
        "name": known(gpu.get("name")),
        "uuid": known(gpu.get("uuid")),
        "memory_mib": memory["total"] // 1024**2 if memory else None,
        "capability": "{}.{}".format(*capability) if capability else None,
    }


def error(value: Reading) -> int:
    """NVML's code of a reading that failed, else 0."""
    code = value.get("error", 0) if isinstance(value, dict) else 0
    return code if isinstance(code, int) else 0


def known(value: Reading) -> Reading:
    """A reading, or None where it failed."""
    return None if error(value) or value == LATE else value
