"""The machine around the GPUs: what is read from this one, and how each threshold is judged."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bootstrap.onbox import machine_limits
from bootstrap.onbox.verdict import check, judge, machine_reader, readers
from bootstrap.onbox.verdict.expected_hardware import ExpectedHardware, parse_expected
from bootstrap.onbox.verdict.judge import BOX_CHECKS

GIB = 1024**3
# A good reading for each check of the machine.
WELL: dict[str, Any] = {
    "cpus": {"granted": 8, "machine": 64},
    "ram": {"granted": 64 * GIB, "machine": 64 * GIB},
    "shm": 8 * GIB,
    "disk": 100 * GIB,
    "disk_speed": 900.0,
    "index": {"host": "index.example", "mb_s": 80.0},
    "git": {"host": "git.example", "seconds": 0.05},
    "clock": {"client": 0.4},
}
NO_GPU = {"devices": 0, "locked": 0, "kernel": False, "cards": 0, "library": "missing"}


def judged(readings: dict[str, Any], **ordered: object) -> dict[str, Any]:
    """The verdict on a box that needs no GPU."""
    facts = {**NO_GPU, "init": {"error": 12}, "gpus": {}, **WELL, **readings}
    return judge.judge(facts, parse_expected(json.dumps({"require": False, **ordered})), 0.1)


def reasons(readings: dict[str, Any], ordered: dict[str, float]) -> list[tuple[str, str]]:
    whole = judged(readings, box=ordered)
    return [(each["outcome"], each["code"]) for each in whole["reasons"]]


FAULTS: dict[str, tuple[str, Any, Any, dict[str, float], str]] = {
    # reading, a wrong value, a value just right, what is ordered, the code of the wrong one
    "cpus": (
        "cpus",
        *({"granted": n, "machine": 64} for n in (3.5, 4)),
        {"min_cpus": 4},
        "box-cpus",
    ),
    "memory": (
        "ram",
        *({"granted": n * GIB // 2} for n in (122, 123)),
        {"min_memory_gib": 64},
        "box-memory",
    ),
    "shm of a container": ("shm", 64 << 20, GIB, {}, "box-shm"),
    "no shm": ("shm", 0, GIB, {}, "box-shm"),
    "shm ordered": ("shm", 2 * GIB, 8 * GIB, {"min_shm_gib": 8}, "box-shm"),
    "disk": ("disk", 9 * GIB, 10 * GIB, {}, "box-disk"),
    "disk ordered": ("disk", 49 * GIB, 50 * GIB, {"min_disk_gib": 50}, "box-disk"),
    "slow disk": ("disk_speed", 19.9, 20.0, {}, "disk-slow"),
    "slow index": (
        "index",
        *({"host": "i", "mb_s": speed} for speed in (1.9, 2.0)),
        {},
        "index-slow",
    ),
    "no index": (
        "index",
        {"host": "i", "error": "it answers 503"},
        WELL["index"],
        {},
        "index-slow",
    ),
    "slow git": ("git", *({"host": "g", "seconds": late} for late in (1.1, 1.0)), {}, "git-slow"),
    "no git": ("git", {"host": "g", "error": "x"}, WELL["git"], {}, "git-slow"),
    "clock ahead": ("clock", {"index": 3600.0}, {"index": 60.0}, {}, "clock-wrong"),
    "clock behind": (
        "clock",
        *({"index": -3600.0, "client": by} for by in (-61.0, -60.0)),
        {},
        "clock-wrong",
    ),
    "a disk that hangs": ("disk_speed", readers.LATE, 20.0, {}, "box-unread"),
    "a name server that hangs": ("index", readers.LATE, WELL["index"], {}, "box-unread"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_machine_value_beyond_its_limit_is_a_reason_to_return_if_ordered_or_else_a_warning(
    name: str,
) -> None:
    key, wrong, right, ordered, code = FAULTS[name]
    assert reasons({key: wrong}, ordered) == [("return" if ordered else "warn", code)]
    assert reasons({key: right}, ordered) == []


def test_a_box_whose_values_are_all_fine_gets_verdict_keep_with_all_checks_passed() -> None:
    result = judged({})
    assert result["verdict"] == "keep"
    assert [row["outcome"] for row in result["checks"]] == ["pass"] * (len(BOX_CHECKS) + 1)
    assert all(row["read"] for row in result["checks"])


def test_verdict_checks_of_what_a_box_does_not_have_are_not_applicable() -> None:
    lacking = {"shm": None, "disk_speed": None, "index": None, "git": None, "clock": {}}
    result = judged(lacking)
    outcomes = {row["check"]: row["outcome"] for row in result["checks"]}
    na = ("shm", "disk-speed", "index", "git-host", "clock")
    assert {outcomes[name] for name in na} == {"n/a"}
    assert result["reasons"] == []


def test_a_verdict_lists_no_check_whose_value_could_not_be_read() -> None:
    facts = {**NO_GPU, "init": {"error": 12}, "gpus": {}}
    assert [row["check"] for row in judge.judge(facts, ExpectedHardware(), 0.1)["checks"]] == [
        "gpu"
    ]


def test_a_missing_gpu_does_not_hide_other_reasons_of_the_verdict() -> None:
    facts = {**NO_GPU, "init": {"error": 12}, "gpus": {}, **WELL, "shm": 64 << 20}
    result = judge.judge(facts, ExpectedHardware(), 0.1)
    assert [each["code"] for each in result["reasons"]] == ["no-gpu", "box-shm"]


@pytest.mark.parametrize(
    ("checks", "strict", "outcome", "verdict"),
    [
        ({}, False, "warn", "warn"),
        ({}, True, "return", "return"),
        ({"shm": "return"}, False, "return", "return"),
        ({"shm": "ignore"}, True, "ignored", "keep"),
        ({"shm": "warn"}, True, "return", "return"),
    ],
)
def test_a_profile_can_turn_a_verdict_check_into_ignore_warn_or_return(
    checks: dict[str, str], strict: bool, outcome: str, verdict: str
) -> None:
    result = judged({"shm": 64 << 20}, checks=checks, strict=strict)
    (row,) = (row for row in result["checks"] if row["check"] == "shm")
    assert (row["outcome"], result["verdict"]) == (outcome, verdict)


def test_the_verdict_does_not_judge_disk_speed_during_a_run() -> None:
    facts = {**NO_GPU, "init": {"error": 12}, "gpus": {}, **WELL, "disk_speed": 1.0}
    result = judge.judge(facts, ExpectedHardware(require=False, run_alive=True), 0.1)
    assert result["verdict"] == "keep"
    (row,) = (row for row in result["checks"] if row["check"] == "disk-speed")
    assert (row["outcome"], row["read"]) == ("n/a", "a run is alive")


# -- reading

linux = pytest.mark.skipif(sys.platform != "linux", reason="a box is a Linux machine")


READS = "import sys; from bootstrap.onbox.verdict.machine_reader import main; main(*sys.argv[1:])"


def told(folder: Path, writes: bool = False, **more: Any) -> dict[str, Any]:
    """Return what the reader reports about this machine."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", READS, str(folder), "yes" * writes],
        capture_output=True,
        check=True,
        **more,
    )
    facts = readers.assemble(done.stdout.splitlines(keepends=True))
    assert facts.whole
    return facts.facts


@linux
def test_verify_reads_the_same_cpus_memory_and_free_disk_as_python_does(tmp_path: Path) -> None:
    facts = told(tmp_path / "not" / "there" / "yet")
    assert facts["cpus"]["machine"] == os.cpu_count()
    assert 0 < facts["cpus"]["granted"] <= len(os.sched_getaffinity(0))
    assert 0 < facts["ram"]["granted"] <= psutil.virtual_memory().total
    free = os.statvfs(tmp_path)
    assert facts["disk"] == pytest.approx(free.f_bavail * free.f_frsize, rel=0.1)
    assert "disk_speed" not in facts


@linux
def test_verify_counts_only_cpus_that_the_affinity_allows(tmp_path: Path) -> None:
    first = min(os.sched_getaffinity(0))
    facts = told(tmp_path, preexec_fn=lambda: os.sched_setaffinity(0, {first}))
    assert facts["cpus"]["granted"] <= 1


@pytest.fixture
def limits() -> Iterator[list[Path]]:
    """A real cgroup that grants 1.5 cores and 512 MiB; yields the files that take a pid."""
    name = f"boxstrap-test-{os.getpid()}"
    v1 = {
        "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"},
        "memory": {"memory.limit_in_bytes": str(512 << 20)},
    }
    v2 = {"": {"cpu.max": "150000 100000", "memory.max": str(512 << 20)}}
    made: list[Path] = []
    try:
        for controller, files in (v1 if Path("/sys/fs/cgroup/cpu").is_dir() else v2).items():
            folder = Path("/sys/fs/cgroup", controller, name)
            folder.mkdir()
            made.append(folder)
            for file, text in files.items():
                (folder / file).write_text(text)
        yield [folder / "cgroup.procs" for folder in made]
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    finally:
        for folder in made:
            folder.rmdir()


@linux
def test_verify_reports_the_cpus_and_memory_of_its_cgroup(
    tmp_path: Path, limits: list[Path]
) -> None:
    def join() -> None:
        for file in limits:
            file.write_text(str(os.getpid()))

    facts = told(tmp_path, preexec_fn=join)
    assert facts["cpus"]["granted"] == min(1.5, len(os.sched_getaffinity(0)))
    assert facts["ram"]["granted"] == 512 << 20


def test_verify_leaves_no_file_after_measuring_the_disk_speed(tmp_path: Path) -> None:
    facts = told(tmp_path, writes=True)
    assert facts["disk_speed"] > 0
    assert list(tmp_path.iterdir()) == []


def test_verify_does_not_measure_the_speed_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_reader, "disk", lambda workdir: 1 << 20)
    assert machine_reader.disk_speed(tmp_path) is None


@linux
def test_verify_reads_a_missing_dev_shm_as_zero_shared_memory(tmp_path: Path) -> None:
    assert machine_reader.shm(tmp_path) == 0
    assert check.OVERRIDES.keys() == {"return", "warn", "ignore"}


V1_UNLIMITED = "9223372036854771712"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Make a root: `self` is /proc/self/cgroup, other files are in /sys/fs/cgroup."""
    for name, text in files.items():
        file = root / ("proc/self/cgroup" if name == "self" else f"sys/fs/cgroup/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


V2_OWN = {"self": "0::/", "cpu.max": "750000 100000", "memory.max": str(16 * GIB)}
V2_BELOW = {
    "self": "0::/kubepods/pod1/box",
    "kubepods/pod1/cpu.max": "200000 100000",
    "kubepods/pod1/box/cpu.max": "max 100000",
    "kubepods/pod1/box/memory.max": str(8 * GIB),
    "kubepods/memory.max": str(32 * GIB),
    "kubepods/pod1/box/cpuset.cpus.effective": "0-3,8,10-11",
}
# The container sees its own cgroup at the top, but the path in `self` is the host's.
V1_DOCKER = {
    "self": "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc",
    "cpu,cpuacct/cpu.cfs_quota_us": "50000",
    "cpu,cpuacct/cpu.cfs_period_us": "100000",
    "memory/memory.limit_in_bytes": str(4 * GIB),
    "cpuset/cpuset.cpus": "2",
}
V1_FREE = {
    "self": "4:cpu:/\n9:memory:/\n0::/",
    "cpu/cpu.cfs_quota_us": "-1",
    "cpu/cpu.cfs_period_us": "100000",
    "memory/memory.limit_in_bytes": V1_UNLIMITED,
}
HYBRID = {
    "self": "4:cpu:/\n0::/user.slice",
    "unified/user.slice/memory.max": str(2 * GIB),
    "cpu/cpu.cfs_quota_us": "150000",
    "cpu/cpu.cfs_period_us": "50000",
}


@pytest.mark.parametrize(
    ("files", "quota", "cores", "memory"),
    [
        (V2_OWN, 7.5, None, 16 * GIB),
        (V2_BELOW, 2.0, 7, 8 * GIB),
        (V1_DOCKER, 0.5, 1, 4 * GIB),
        (V1_FREE, None, None, None),
        (HYBRID, 3.0, None, 2 * GIB),
        ({"self": "0::/", "cpu.max": "max 100000", "memory.max": "max"}, None, None, None),
        ({}, None, None, None),
        ({"self": "nonsense\n::\n0::/../../etc"}, None, None, None),
        ({"self": "0::/", "cpu.max": "x", "memory.max": "", "cpuset.cpus.effective": "a-b"},)
        + (None,) * 3,
    ],
    ids=["v2", "v2 below", "v1 docker", "v1 free", "hybrid", "v2 free", "none", "odd", "garbled"],
)
def test_verify_reads_cpu_and_memory_limits_from_cgroups_of_version_1_and_2(
    tmp_path: Path,
    files: dict[str, str],
    quota: float | None,
    cores: int | None,
    memory: int | None,
) -> None:
    root = tree(tmp_path, files)
    assert machine_limits.cpu_quota(root) == quota
    assert machine_limits.cpuset(root) == cores
    assert machine_limits.memory_limit(root) == memory
