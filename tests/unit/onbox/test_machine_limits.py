"""Limits of a container, read from files as kernels and container engines lay them out."""

from pathlib import Path

import pytest

from bootstrap.onbox import machine_limits

GIB = 1024**3
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
