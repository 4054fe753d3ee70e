"""Boxes that lack something: setup works anyway, or stops before any change and says why."""

import pytest

from bootstrap.steps.event_codes import CODES
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent

pytestmark = pytest.mark.sampled(of="module")

# Pretends to be another architecture: there is no such box for these tests.
UNAME = """\
#!/bin/sh
case $1 in -m) echo aarch64 ;; -sm) echo Linux aarch64 ;; *) exec /usr/bin/uname "$@" ;; esac
"""


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("no bash (busybox's shell)", "nobash", "there is no bash on this box"),
        ("musl in place of glibc (Alpine)", "musl", "the C library here is musl"),
        ("clock off by a year", "wrongclock", "which is 36"),
        ("read-only home", "rohome", "can't write to /home/student"),
        ("disk full", "smalldisk", "MB free; a setup needs at least 512 MB"),
        ("/tmp full", "tinytmp", "/tmp has 0 MB free; a setup needs at least 16 MB"),
    ],
)
def test_setup_refuses_a_box_that_lacks_bash_glibc_the_time_a_home_or_room_before_any_change(
    rent: Rent, faults: Faults, fault: str, kind: str, says: str
) -> None:
    rented = rent(kind)
    rented.user.repository()
    before = rented.listing()
    with faults.attempt(fault) as attempt:
        refused = rented.run("setup").must(5)
        attempt.noticed(refused.seconds, at_most=20)
        assert says in refused.err
        assert kind == "nobash" or "Nothing was changed" in refused.err
        assert rented.listing() == before
        assert "which box? homework has none" in rented.user.run("logs").must(2).err
        attempt.outcome("exit 5, nothing changed")


def test_setup_works_in_another_workdir_when_the_home_of_the_box_is_read_only(
    rent: Rent, faults: Faults
) -> None:
    rented = rent("rohome")
    rented.user.repository()
    with faults.attempt("read-only home, work elsewhere") as attempt:
        done = rented.run("setup", "--set", "box.workdir=/scratch").must(0)
        assert "step 1 loss" in done.out
        again = rented.run("setup", "--set", "box.workdir=/scratch").must(0)
        assert "nothing to do" in again.out
        attempt.outcome("works")


def test_setup_fetches_uv_for_the_cpu_type_of_the_box_and_fails_if_that_uv_does_not_run(
    rent: Rent, faults: Faults
) -> None:
    rented = rent("vast-nouv", files={"/usr/local/bin/uname": UNAME})
    rented.user.repository()
    with faults.attempt("aarch64 (by name alone)") as attempt:
        failed = rented.run("setup").must(7)
        assert "the step agent failed: uv could not be fetched" in failed.err
        assert "the uv that was fetched does not run here" in failed.err
        kind = rented.box.run(f"od -An -j18 -N2 -tu2 {rented.folder}/bin/uv")
        assert kind.split() == ["183"]  # EM_AARCH64 (elf.h)
        attempt.outcome("its uv is fetched, and refused here")


def test_setup_of_a_box_whose_python3_is_broken_takes_another_python_by_uv(
    rent: Rent, faults: Faults
) -> None:
    rented = rent("vast-nouv", files={"/usr/local/bin/python3": "#!/bin/sh\nexit 1\n"})
    rented.box.run("chmod +x /usr/local/bin/python3")
    rented.user.repository(requirements__txt="six\n")
    with faults.attempt("python3 is broken") as attempt:
        done = rented.run("setup").must(0)
        assert "step 1 loss" in done.out
        assert done.err.count("agent      start") == 1
        assert "nothing to do" in rented.run("setup").must(0).out
        attempt.outcome("works")


def test_each_setup_names_system_packages_that_it_could_not_install_without_root(
    rent: Rent, faults: Faults
) -> None:
    rented = rent("nosudo")
    rented.user.repository()
    with faults.attempt("no root for the profile's packages") as attempt:
        for _ in range(2):
            done = rented.run("setup", "--set", 'packages=["ffmpeg"]').must(0)
            assert CODES["missing-tools"].what in done.err
        assert rented.runs() == ["train-1"]
        attempt.outcome("said each time")
