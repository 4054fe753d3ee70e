"""Make the verdict's document from facts and the expected hardware. Pure: reads, runs nothing.

The table of checks has the weightiest first in each of its parts: `WHOLE_CHECKS` concern all GPUs
together, `GPU_CHECKS` each of them, `BOX_CHECKS` the machine and network around them. A profile
weighs each by its name.

The document, version 1: `verdict` keep | warn | return; `reasons`, the weightiest
first, each {check, code, outcome, gpus, says, advice}; `driver`, `cuda` (the
newest that the driver runs); `gpus`, each {index, name, uuid, memory_mib,
capability}, or one for each slice of a card that is cut (MIG), with the card's
index; `checks`, each {check, gpu, outcome, read, expected, says}; `seconds`.
Null is a value that isn't known, and the GPU of a check of the whole box.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import gpu_errors
from .box_checks import MACHINE_CHECKS, NETWORK_CHECKS
from .check import ADVICE_WARN, NA, OVERRIDES, PASS, RETURN, WARN, Check, Judgement, Reading
from .expected_hardware import ExpectedHardware
from .gpu_checks import (
    PERFORMANCE_CHECKS,
    SOUND_CHECKS,
    WHOLE_CHECKS,
    cuda_version,
)
from .gpu_errors import GpuProblem
from .readers import LATE, Facts

GPU_CHECKS: tuple[Check, ...] = (*SOUND_CHECKS, *PERFORMANCE_CHECKS)
BOX_CHECKS: tuple[Check, ...] = (*MACHINE_CHECKS, *NETWORK_CHECKS)
OF_GPUS = (*WHOLE_CHECKS, *GPU_CHECKS)
# Whether there are GPUs that can be read, and whether each answers: judged before any check.
ALWAYS = ("gpu", "answers")
# What `smoke.py` tests, judged by `smoke/judge.py`; the first is the test itself.
SMOKE = (
    *("smoke", "smoke-memory", "smoke-product", "smoke-stable"),
    *("smoke-speed", "smoke-memory-speed", "smoke-bus", "smoke-throttling"),
    *("smoke-together", "smoke-together-speed"),
)
NAMES = (*ALWAYS, *(check.name for check in (*OF_GPUS, *BOX_CHECKS)), *SMOKE)

# NVML: the card or the driver doesn't have it, or this user may not see it. Not a fault.
UNSUPPORTED = {3, 4, 6, 13, 22, 25, 26}
SICK = {8, 11, 14, 15, 16}  # whatever call returns them
VITAL = ("name", "memory")  # a GPU without these can't be used
OF_GPUS_NAMES = {"gpu", "answers", *(check.name for check in OF_GPUS)}

NOT_REQUIRED = "The profile requires no GPU, so the box may be kept: see whether this one matters."


class CheckResult(NamedTuple):
    """What one check found for one GPU, or for the box if `gpu` is None.

    `advice` is for a box that is returned for it, `kept` for one that is kept anyway.
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

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self._fields[:6], self[:6]))  # noqa: B905


def judge(facts: Facts, wanted: ExpectedHardware, seconds: float) -> dict[str, Any]:
    problem = blocked(facts)
    found = [blocked_result(problem, facts, wanted)] if problem else judge_gpus(facts, wanted)
    # A check of the box that no reader was asked for is left out.
    found += [apply(check, None, facts, wanted) for check in BOX_CHECKS if check.reads[0] in facts]
    results = [with_profile_outcome(result, wanted) for result in found]
    reasons = merged(results)
    return {
        "version": 1,
        "verdict": verdict_of(reasons),
        "reasons": reasons,
        "driver": known(facts.get("driver")),
        "cuda": cuda_version(facts["cuda"]) if known(facts.get("cuda")) else None,
        "gpus": [
            gpu_facts(index, one)
            for index, gpu in facts["gpus"].items()
            for one in parts(gpu) or [gpu]
        ],
        "checks": [result.as_dict() for result in results],
        "seconds": round(seconds, 3),
    }


def verdict_of(reasons: list[dict[str, Any]]) -> str:
    """Return the outcome of the weightiest reason, "keep" if there is none."""
    return reasons[0]["outcome"] if reasons else "keep"


def blocked(facts: Facts) -> GpuProblem | None:
    """Return the problem because of which none of our GPUs can be read, if there is one."""
    if "stopped" in facts:
        return GpuProblem(*facts["stopped"])
    init = error(facts["init"])
    if init == 12:
        return missing(facts)
    if init:
        locked = init in (4, 9, 999) and facts["locked"]
        unseen = init == 9 and facts["kernel"]
        problem = gpu_errors.NO_DEVICE if unseen else gpu_errors.of_code(init)
        return gpu_errors.LOCKED if locked else problem
    if error(facts["count"]):
        return gpu_errors.of_code(error(facts["count"]))
    if not facts["count"]:
        return gpu_errors.NO_GPU
    theirs = all(error(gpu["handle"]) == 4 for gpu in facts["gpus"].values())
    return gpu_errors.LOCKED if theirs else None


def missing(facts: Facts) -> GpuProblem:
    """Return the problem if the library can't be loaded, by what the kernel shows."""
    if facts["library"] == "broken":
        return gpu_errors.BROKEN
    if facts["devices"]:
        return gpu_errors.MISSING
    if facts["kernel"]:
        return gpu_errors.NO_DEVICE
    return gpu_errors.NO_DRIVER if facts["cards"] else gpu_errors.ABSENT


def blocked_result(problem: GpuProblem, facts: Facts, wanted: ExpectedHardware) -> CheckResult:
    """Return the only GPU result if no GPU can be read."""
    traces = any(facts.get(key) for key in ("devices", "kernel", "cards"))
    if not wanted.require and not traces and problem.code in ("no-gpu", "no-driver"):
        return CheckResult("gpu", None, PASS, "no GPU", "none required")
    expected = "a GPU" if wanted.require else ""
    return problem_of("gpu", None, "none to be read", expected, problem)


def problem_of(
    check: str, gpu: int | None, read: str, expected: str, problem: GpuProblem
) -> CheckResult:
    """Make the result for a GPU, or for all of them, that can't be used."""
    says = (problem.says, problem.code, problem.advice, NOT_REQUIRED)
    return CheckResult(check, gpu, RETURN, read, expected, *says)


def judge_gpus(facts: Facts, wanted: ExpectedHardware) -> list[CheckResult]:
    """Apply every check to the GPUs that are ours: those that this user may open."""
    ours = {i: gpu for i, gpu in facts["gpus"].items() if error(gpu["handle"]) != 4}
    failures = {i: max(map(unusable, [gpu, *parts(gpu)])) for i, gpu in ours.items()}
    box = {**facts, "usable": usable([ours[i] for i, code in failures.items() if not code])}
    results = [answers(i, code) for i, code in failures.items()]
    results += [apply(check, None, box, wanted) for check in WHOLE_CHECKS]
    for check in GPU_CHECKS:
        for i, gpu in ours.items():
            each = parts(gpu) if check.reads[0] in VITAL else [gpu]
            results += [apply(check, i, one, wanted) for one in each if "name" in one]
    return results


def is_cut(gpu: Facts) -> bool:
    """Return whether the card is cut into slices (MIG)."""
    mode = known(gpu.get("mig"))
    return bool(mode and mode[0])


def parts(gpu: Facts) -> list[Facts]:
    """Return what programs can compute on: the card, or each slice of one that is cut (MIG)."""
    if not is_cut(gpu):
        return [gpu]
    slices = known(gpu.get("slices"))
    # Which part of the card is ours isn't known then: its whole memory says nothing.
    whole = [{**gpu, "memory": {"error": 3}}]
    return whole if slices is None else [{**gpu, **one, "slice": True} for one in slices]


def usable(gpus: list[Facts]) -> Reading:
    """Return how many GPUs and slices can be used."""
    uncounted = any(is_cut(gpu) and known(gpu.get("slices")) is None for gpu in gpus)
    return {"error": 3} if uncounted else sum(len(parts(gpu)) for gpu in gpus)


def unusable(gpu: Facts) -> int:
    """Return the NVML code because of which a GPU can't be used, else 0."""
    for key, value in gpu.items():
        code = error(value)
        vital = key in VITAL and code and code not in UNSUPPORTED
        if code in SICK or vital or (code and key == "handle"):
            return code
    return 0


def answers(gpu: int, code: int) -> CheckResult:
    """Judge whether a GPU answers at all."""
    if not code:
        return CheckResult("answers", gpu, PASS, "yes", "yes")
    problem = gpu_errors.of_code(code)._replace(code="gpu-sick")
    return problem_of("answers", gpu, f"NVML error {code}", "yes", problem)


def apply(check: Check, gpu: int | None, facts: Facts, wanted: ExpectedHardware) -> CheckResult:
    readings = [facts.get(key, {"error": 3}) for key in check.reads]
    failure = unread(check, readings, wanted)
    if failure:
        unread_code = "gpu-unread" if check.name in OF_GPUS_NAMES else "box-unread"
        code = "" if failure.outcome == NA else unread_code
        return CheckResult(check.name, gpu, *failure, code, ADVICE_WARN, ADVICE_WARN)
    found = check.judge(wanted, *map(known, readings))
    if found.says and "slice" in facts:
        found = found._replace(says=f"a slice of it: {found.says}")
    return CheckResult(check.name, gpu, *found, check.code, check.advice, check.kept)


def unread(check: Check, readings: list[Reading], wanted: ExpectedHardware) -> Judgement | None:
    """Judge a check whose readings are missing, or may not be judged now; else return None."""
    if check.idle and wanted.run_alive:
        return Judgement(NA, "a run is alive")
    if readings[0] is None:
        return Judgement(NA, "not reported by this box")
    if LATE in readings:
        says = f"its {check.name} can't be read: no answer in time"
        return Judgement(WARN, "no answer", "", says)
    codes = [error(reading) for reading in readings]
    if codes[0] in UNSUPPORTED:
        return unsupported(check, wanted)
    failed = [code for code in codes if code and code not in UNSUPPORTED]
    return failed_reading(check, failed) if failed else None


def unsupported(check: Check, wanted: ExpectedHardware) -> Judgement:
    """Judge a value that the card doesn't have: n/a, unless it was ordered."""
    asked = [str(getattr(wanted, key)) for key in check.asks if getattr(wanted, key)]
    if not asked:
        return Judgement(NA, "not reported by this card")
    says = f"this card doesn't report its {check.name}, which the profile requires"
    return Judgement(WARN, "not reported by this card", asked[0], says)


def failed_reading(check: Check, failed: list[int]) -> Judgement:
    """Judge a reading for which NVML failed; a sick card is judged only by `answers`."""
    if SICK.intersection(failed) or check.reads[0] in VITAL:
        return Judgement(NA, "the card doesn't answer")
    says = f"its {check.name} can't be read: NVML error {failed[0]}"
    return Judgement(WARN, f"NVML error {failed[0]}", "", says)


def with_profile_outcome(result: CheckResult, wanted: ExpectedHardware) -> CheckResult:
    """Give a result that doesn't pass the outcome that the profile sets, with fitting advice."""
    if result.outcome not in (WARN, RETURN):
        return result
    outcome, kept = result.outcome, result.kept
    if outcome == RETURN and not wanted.require and result.check in OF_GPUS_NAMES:
        outcome, kept = WARN, NOT_REQUIRED
    if result.check in wanted.checks:
        outcome = OVERRIDES[wanted.checks[result.check]]
    if wanted.strict and outcome == WARN:
        outcome = RETURN
    advice = result.advice if outcome == RETURN else kept
    return result._replace(outcome=outcome, says=result.says or result.read, advice=advice)


def merged(results: list[CheckResult]) -> list[dict[str, Any]]:
    """Return the reasons against the box, heaviest first, each once for all of its GPUs."""
    reasons: dict[CheckResult, list[int]] = {}
    for heavy in (RETURN, WARN):
        for result in results:
            if result.outcome == heavy:
                gpus = reasons.setdefault(result._replace(gpu=None), [])
                if result.gpu is not None and result.gpu not in gpus:
                    gpus.append(result.gpu)
    return [
        {
            "check": result.check,
            "code": result.code,
            "outcome": result.outcome,
            "gpus": gpus,
            "says": result.says,
            "advice": result.advice,
        }
        for result, gpus in reasons.items()
    ]


def gpu_facts(index: int, gpu: Facts) -> dict[str, Any]:
    memory, capability = known(gpu.get("memory")), known(gpu.get("capability"))
    return {
        "index": index,
        "name": known(gpu.get("name")),
        "uuid": known(gpu.get("uuid")),
        "memory_mib": memory["total"] // 1024**2 if memory else None,
        "capability": "{}.{}".format(*capability) if capability else None,
    }


def error(value: Reading) -> int:
    """Return NVML's code of a reading that failed, else 0."""
    code = value.get("error", 0) if isinstance(value, dict) else 0
    return code if isinstance(code, int) else 0


def known(value: Reading) -> Reading:
    """Return a reading, or None if it failed."""
    return None if error(value) or value == LATE else value
