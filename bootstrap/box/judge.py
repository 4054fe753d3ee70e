"""Facts and an order in, the result document out. Pure: reads nothing, runs nothing.

The result, version 1: `verdict` keep | warn | return; `reasons`, the weightiest
first, each {check, code, outcome, gpus, says, advice}; `driver`, `cuda` (the
newest that the driver runs); `gpus`, each {index, name, uuid, memory_mib,
capability}; `checks`, each {check, gpu, outcome, says}; `seconds`. What isn't
known, and the GPU of what concerns the whole box, is null.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import problems
from .checks import (
    BOX_CHECKS,
    GPU_CHECKS,
    HOST,
    MIND,
    NA,
    PASS,
    RETURN,
    WARN,
    WRONG,
    Check,
    Order,
    cuda_version,
)

Reading = Any  # what NVML answered, or {"error": its code}
Facts = Any  # readings by key, and `gpus`: such readings by index

# The card or the driver doesn't have it, or this user may not see it: neither good nor bad.
UNSUPPORTED = {3, 4, 6, 13, 22, 25, 26}
SICK = {8, 11, 14, 15, 16}  # wherever they come from
VITAL = ("name", "memory")  # a GPU that fails to tell these can't be used


class Row(NamedTuple):
    """What one check found of one GPU, or of the box where `gpu` is None."""

    check: str
    gpu: int | None
    outcome: str
    says: str
    code: str = ""
    advice: str = ""


def judge(facts: Facts, order: Order, seconds: float) -> dict[str, Any]:
    """The result document."""
    problem = blocked(facts)
    found = [blocked_row(problem, facts, order)] if problem else judge_all(facts, order)
    rows = [weighed(row, order) for row in found]
    reasons = merged(rows)
    return {
        "version": 1,
        "verdict": reasons[0]["outcome"] if reasons else "keep",
        "reasons": reasons,
        "driver": known(facts.get("driver")),
        "cuda": cuda_version(facts["cuda"]) if known(facts.get("cuda")) else None,
        "gpus": [gpu_facts(index, gpu) for index, gpu in facts["gpus"].items()],
        "checks": [dict(zip(Row._fields[:4], row[:4])) for row in rows],  # noqa: B905
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
    """The only row there is when no GPU can be read."""
    traces = any(facts.get(key) for key in ("devices", "kernel", "cards"))
    if not order.require and not traces and problem.code in ("no-gpu", "no-driver"):
        return Row("gpu", None, PASS, "no GPU, none required")
    return Row("gpu", None, RETURN, problem.says, problem.code, problem.advice)


def judge_all(facts: Facts, order: Order) -> list[Row]:
    """Every check, the weightiest first. GPUs that this user may not open aren't ours."""
    ours = {i: gpu for i, gpu in facts["gpus"].items() if error(gpu["handle"]) != 4}
    ills = {i: ill(gpu) for i, gpu in ours.items()}
    box = {**facts, "usable": sum(not code for code in ills.values())}
    rows = [answers(i, code) for i, code in ills.items()]
    rows += [apply(check, None, box, order) for check in BOX_CHECKS]
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
        return Row("answers", gpu, PASS, "yes")
    problem = problems.of_code(code)
    return Row("answers", gpu, RETURN, problem.says, "gpu-sick", problem.advice)


def apply(check: Check, gpu: int | None, facts: Facts, order: Order) -> Row:
    """One check of one GPU, or of the box."""
    readings = [facts.get(key, {"error": 3}) for key in check.reads]
    codes = [error(reading) for reading in readings]
    failed = [code for code in codes if code and code not in UNSUPPORTED]
    if check.idle and order.run_alive:
        return Row(check.name, gpu, NA, "a run is alive")
    if codes[0] in UNSUPPORTED:
        return Row(check.name, gpu, NA, "not told by this card")
    if SICK.intersection(failed) or (failed and check.reads[0] in VITAL):
        return Row(check.name, gpu, NA, "the card doesn't answer")
    if failed:
        says = f"its {check.name} can't be read: NVML error {failed[0]}"
        return Row(check.name, gpu, WARN, says, "gpu-unread", MIND)
    outcome, says = check.judge(order, *map(known, readings))
    advice = MIND if outcome == WARN and check.advice in (HOST, WRONG) else check.advice
    return Row(check.name, gpu, outcome, says, check.code, advice)


def weighed(row: Row, order: Order) -> Row:
    """A row that doesn't pass, as heavy as the order lets it be."""
    if row.outcome not in (WARN, RETURN):
        return row
    outcome = order.checks.get(row.check, row.outcome)
    return row._replace(outcome=outcome if order.require or outcome != RETURN else WARN)


def merged(rows: list[Row]) -> list[dict[str, Any]]:
    """The rows that don't pass, heaviest first; one for all GPUs of which the same is said."""
    reasons: dict[Row, list[int | None]] = {}
    for heavy in (RETURN, WARN):
        for row in rows:
            if row.outcome == heavy:
                reasons.setdefault(row._replace(gpu=None), []).append(row.gpu)
    return [reason(row, gpus) for row, gpus in reasons.items()]


def reason(row: Row, gpus: list[int | None]) -> dict[str, Any]:
    """A row as a reason of the verdict."""
    of_all = {key: value for key, value in row._asdict().items() if key != "gpu"}
    return {**of_all, "gpus": [index for index in gpus if index is not None]}


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
    return int(value.get("error", 0)) if isinstance(value, dict) else 0


def known(value: Reading) -> Reading:
    """A reading, or None where it failed."""
    return None if error(value) else value
