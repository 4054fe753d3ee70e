"""What uv prints while it installs becomes progress and warnings."""

import subprocess
import sys

import pytest

from bootstrap.onbox.python import uv_progress
from bootstrap.onbox.python.uv_progress import UvProgress, follow


@pytest.mark.parametrize(
    ("seconds", "slow", "warnings"),
    [(20, "slow", 1), (19, "slow", 0), (0, "flash-attn", 1), (0, "vllm @ git+x", 1)],
)
def test_setup_warns_once_that_a_package_is_compiling_if_its_build_takes_long(
    monkeypatch: pytest.MonkeyPatch, seconds: int, slow: str, warnings: int
) -> None:
    now = 0.0
    monkeypatch.setattr(uv_progress.time, "monotonic", lambda: now)
    progress, events = UvProgress(), list[str]()
    for line in ("   Building quick==1", "      Built quick==1", f"   Building {slow}==1"):
        events += progress.take(line)
    now = float(seconds)
    for _ in range(2):
        events += progress.look()
    events += [*progress.take(f"      Built {slow}==1"), *progress.take("Installed 2 packages")]
    assert events.count("warn code=compiling") == warnings
    assert events[-1] == "progress done=0 total=0 unit=packages"


def test_the_total_of_an_installs_progress_is_the_sum_of_the_sizes_uv_prints() -> None:
    progress = UvProgress()
    assert [*progress.take("Resolved 3 packages in 1ms")] == [
        "progress done=0 total=3 unit=packages"
    ]
    for size in ("803.2MiB", "1.5GiB", "512B"):
        assert [*progress.take(f"Downloading torch ({size})")] == []
    (event,) = progress.look()
    total = int(803.2 * 2**20) + int(1.5 * 2**30) + 512
    assert event.endswith(f" total={total} unit=bytes")


def test_install_progress_does_not_shrink_when_a_network_interface_disappears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A VPN's card may disappear: the bytes received through it still count."""
    counts = iter([5000, 5300, 90, 190])
    monkeypatch.setattr(uv_progress, "bytes_received", lambda: next(counts))
    progress = UvProgress()
    done = [event.split()[1] for _ in range(3) for event in progress.look()]
    assert done == ["done=300", "done=300", "done=400"]


def test_the_log_of_a_step_gets_all_output_of_uv_also_without_a_last_newline(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wait = (
        "import time; print('Resolved 2 packages', flush=True); time.sleep(1.2); print(end='end')"
    )
    with subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE) as uv:
        assert uv.stdout
        follow(uv.stdout.fileno())
    said = capfd.readouterr()
    assert said.err.splitlines() == ["Resolved 2 packages", "end"]
    first, *bytes_ = said.out.splitlines()
    assert first == "progress done=0 total=2 unit=packages"
    assert bytes_
    assert all(line.endswith(" total= unit=bytes") for line in bytes_)
