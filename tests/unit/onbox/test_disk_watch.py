"""A disk that fills is told of before it is full; the disk and the clock are simulated."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bootstrap.boxes.disk import LowDisk, is_low, parse_low_disk
from bootstrap.onbox.runs import disk_watch
from bootstrap.onbox.runs.disk_watch import DiskWatch
from bootstrap.onbox.runs.status import BoxRuns, details

GB = 1 << 30


class Disk:
    """A disk with a run on it, looked at every ten seconds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.total, self.now = 100 * GB, 200 * GB, 1000.0
        self.run, self.tree = folder / "run", folder / "tree"
        self.run.mkdir()
        self.tree.mkdir()
        (self.run / "dir").write_text(f"{self.tree}\n")
        self._watch = DiskWatch()
        monkeypatch.setattr(os, "statvfs", self._statvfs)

    def _statvfs(self, _path: object) -> SimpleNamespace:
        blocks = {"f_bavail": self.free // 4096, "f_blocks": self.total // 4096}
        return SimpleNamespace(f_frsize=4096, **blocks)

    def after(self, seconds: int, written: int = 0) -> LowDisk | None:
        """Let time pass while so many bytes are written; return what the run is told then."""
        for _ in range(seconds // 10):
            self.now += 10
            self.free -= written // (seconds // 10)
            self._watch.turn([self.run], self.now)
        file = self.run / disk_watch.NAME
        return parse_low_disk(file.read_bytes()) if file.exists() else None


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_a_box_disk_with_a_tenth_free_is_reported_low_until_there_is_room_again(disk: Disk) -> None:
    assert disk.after(10) is None
    disk.free = 19 * GB
    low = disk.after(10)
    assert low
    assert (low.free, low.total, low.full_in) == (19 * GB, 200 * GB, None)
    assert low.words() == "low disk: 20 GB of 215 GB free"
    disk.free = 30 * GB
    assert disk.after(10) is None


def test_a_box_disk_that_fills_within_an_hour_is_reported_low_with_time_left(disk: Disk) -> None:
    # 1 GB a minute; of 100 GB that is full in less than an hour only at the end.
    assert disk.after(1800, 30 * GB) is None
    low = disk.after(900, 15 * GB)
    assert low
    assert low.full_in is not None
    assert abs(low.full_in - 55 * 60) < 60
    assert "full in about 55 min" in low.words()


def test_a_burst_of_writes_on_a_box_is_not_reported_as_a_filling_disk(disk: Disk) -> None:
    assert disk.after(10) is None
    assert disk.after(60, 40 * GB) is None  # data is unpacked
    assert disk.after(1740) is None
    assert disk.after(3600) is None


def test_a_20_tb_disk_is_not_low_with_500_gb_free(disk: Disk) -> None:
    disk.total, disk.free = 20_000 * GB, 500 * GB
    assert disk.after(10) is None
    assert not is_low(disk.free, disk.total)
    disk.free = 90 * GB
    assert disk.after(10)
    assert is_low(disk.free, disk.total)


def test_a_low_disk_report_names_the_five_largest_new_files(disk: Disk) -> None:
    (disk.tree / "out").mkdir()
    for step in range(7):
        with (disk.tree / f"out/step-{step}.pt").open("wb") as file:
            file.truncate((1 << 20) + step)
    (disk.tree / "small.txt").write_text("small")
    (disk.tree / ".git").mkdir()
    (disk.tree / ".git/pack").write_bytes(bytes(2 << 20))
    (disk.tree / "old.bin").write_bytes(bytes(2 << 20))
    os.utime(disk.tree / "old.bin", (1, 1))
    (disk.tree / "link").symlink_to("/etc")
    disk.free = GB
    low = disk.after(10)
    assert low
    assert low.files == tuple((f"out/step-{step}.pt", (1 << 20) + step) for step in (6, 5, 4, 3, 2))


def test_deleting_a_tree_does_not_end_the_watch_on_the_boxs_disk(disk: Disk) -> None:
    disk.tree.rmdir()
    assert disk.after(10) is None


@pytest.mark.parametrize("told", [b"", b"\n", b"1 2\n", b"x y z\n", b"-1 5 -\n", b"1 2 3 4\n"])
def test_a_malformed_low_disk_report_of_a_box_is_ignored(told: bytes) -> None:
    assert parse_low_disk(told) is None


def test_a_hostile_file_name_in_a_low_disk_report_is_shown_without_escape_codes() -> None:
    low = parse_low_disk(b"5 100 -\n7 a\x1b]0;x\x07b\n" + b"9 " + b"y" * 5000)
    assert low
    assert "\x1b" not in low.words()
    assert len(low.words()) < 1000


@pytest.mark.parametrize("free", [0, 1 << 20])
def test_status_says_how_much_is_free_if_the_disk_of_the_last_failed_run_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    run = tmp_path / "runs/k/train-1"
    run.mkdir(parents=True)
    for name, text in {"command": "python x.py", "exit": "1", "started": "9"}.items():
        (run / name).write_text(f"{text}\n")
    disk = SimpleNamespace(f_bavail=free, f_frsize=4096, f_blocks=1 << 30)
    monkeypatch.setattr("os.statvfs", lambda _: disk)
    said = [row for row in details(BoxRuns(str(tmp_path)), "", []) if row["kind"] == "disk"]
    told = [{"kind": "disk", "run": "k/train-1", "text": f"0 {1 << 42} -"}]
    assert said == ([] if free else told)
