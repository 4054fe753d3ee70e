"""A box's disk is full or fills up: found early, or named; finished once there is room."""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.boxes import Rig
from tests.cli import User, UserRepository
from tests.faults.at_once import at_once
from tests.faults.plugin import Faults
from tests.faults.program import with_numbers
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.main_job.used import start_used

SAYS = "the box's disk is full"
MB = 1_000_000


def large_commit(repository: UserRepository) -> None:
    """30 MB that don't compress."""
    repository.git("config", "core.compression", "0")  # compressing random data only takes time
    (repository.root / "data.bin").write_bytes(os.urandom(30 * MB))
    repository.commit({})


def large_package(repository: UserRepository) -> None:
    """A wheel of 80 MB unpacked, and less than 100 KB in the commit."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("large/__init__.py", "")
        wheel.writestr("large/zeros.bin", bytes(80 * MB))
        wheel.writestr(
            "large-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1\n"
        )
        wheel.writestr("large-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("large-1.dist-info/RECORD", "")
    (repository.root / "large-1-py3-none-any.whl").write_bytes(packed.getvalue())
    repository.commit({"requirements.txt": "./large-1-py3-none-any.whl\n"})


# The step that fails, MB that are left, and what doesn't fit into them.
ROWS: tuple[tuple[str, int, Callable[[UserRepository], None]], ...] = (
    ("repo", 20, large_commit),
    ("python", 40, large_package),
)


def test_setup_names_the_step_at_which_the_disk_filled_up_and_finishes_once_there_is_room(
    mirror_rig: Rig, shared_folder: Path, tmp_path: Path, faults: Faults
) -> None:
    def one(row: tuple[str, int, Callable[[UserRepository], None]]) -> None:
        step, left_mb, grow = row
        box = start_used(mirror_rig, "vast", shared_folder, disk="900M")
        rented = Rented(User(tmp_path / step), box)
        grow(rented.user.repository())
        with faults.attempt("disk full", {"repo": "clone", "python": "environment"}[step]) as row_:
            rented.box.fill_disk(left_mb)
            # Otherwise checks for free space stop the setup: the commit arrives meanwhile.
            rented.program = with_numbers(tmp_path / step, MIN_FREE_MB=1, MIN_TMP_MB=1)
            failed = rented.run("setup").must(7)
            assert f"the step {step} failed: {SAYS}" in failed.err, failed.err
            assert failed.seconds < 60
            assert rented.box.run(f"find {rented.folder}/steps -name {step}.ok") == ""
            assert not rented.box.exists(f"{rented.folder}/runs")
            rented.box.empty_disk()
            done = rented.run("setup").must(0)
            assert "step 1 loss" in done.out
            assert rented.runs() == ["train-1"]
            row_.outcome("named, exit 7; then finished")

    at_once(one, ROWS)


def test_setup_works_where_temporary_files_find_no_room_on_the_box_during_it(
    rent: Rent, tmp_path: Path, faults: Faults
) -> None:
    rented = rent("tinytmp")
    rented.user.repository()
    with faults.attempt("/tmp full", "during a setup") as attempt:
        rented.program = with_numbers(tmp_path, MIN_TMP_MB=0)
        rented.run("setup").must(0)  # nothing of ours is large enough to need a file there
        attempt.outcome("works")


def test_run_is_refused_on_a_full_box_disk_but_sync_back_works(rent: Rent, faults: Faults) -> None:
    rented = rent("vast", used=True, disk="900M")
    rented.user.repository()
    rented.run("setup").must(0)
    rented.box.run("echo '# edited' >>/workspace/homework/train.py")
    with faults.attempt("disk full", "run") as attempt:
        # `cat` writes 128 KB at a time: its failed last write leaves room that is enough for a run.
        rented.box.run("cat /dev/zero >/ballast; sync; dd if=/dev/zero bs=4k >>/ballast || true")
        full = rented.run("run", "--", "echo", "again").must(7)
        assert SAYS in full.err
        assert rented.runs() == ["train-1"]
        assert "git diff" in rented.run("sync", "--back").must(0).out
        rented.box.empty_disk()
        assert "again" in rented.run("run", "--", "echo", "again").must(0).out
        assert rented.runs() == ["train-1", "train-2"]
        attempt.outcome("named, exit 7; then begun")
