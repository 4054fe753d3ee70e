"""How a setup or a training can fail, what is shown of it, and how it continues afterwards."""

from __future__ import annotations

import re

import pytest

from bootstrap.paths import shipped
from tests.cli import PROFILE
from tests.main_job.conftest import Rent

pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]


def test_a_training_that_fails_at_once_is_10(rent: Rent) -> None:
    rented = rent("vast", used=True)
    rented.user.repository(
        train__py="import time\nprint('step 0', flush=True)\nraise SystemExit('no such data')\n"
    )
    failed = rented.run("setup").must(10)
    assert "no such data" in failed.out
    assert "exit code 1" in failed.err
    assert "boxstrap logs" in failed.err
    # The same work is not started again: a later setup says what became of it, and ends so too.
    told = rented.run("setup").must(10)
    assert "  | no such data" in told.out
    assert "this work was started before, and train-1 ended with exit code 1" in told.err
    # Commands that only look report the failure but don't fail themselves.
    assert "ended with exit code 1" in rented.run("status").must(0).out
    assert rented.runs() == ["train-1"]
    run = rented.status()["runs"][0]
    assert (run["rc"], run["failure"]["lines"]) == (1, ["step 0", "no such data"])
    assert 0 <= run["over"] - run["begun"] <= run["seconds"] < 60
    as_json = rented.run("setup", "--restart", "--json").must(10).json()
    assert (as_json["exit"], as_json["run"]["rc"]) == (10, 1)


def test_a_crash_behind_a_pipe_is_10_and_its_part_is_named(rent: Rent) -> None:
    rented = rent("vast", used=True)
    rented.user.repository(train__py="print('step 0', flush=True)\nraise SystemExit(7)\n")
    # A profile may set any variable, even of a name that the runner uses itself.
    piped = ("train.command=python train.py 2>&1 | tee all.log", "env.run=abc", "env.child=abc")
    sets = [word for one in piped for word in ("--set", one)]
    failed = rented.run("setup", *sets).must(10)
    assert "step 0" in failed.out
    assert "ended with exit code 7 (part 1 of its pipeline)" in rented.run("status").must(0).out
    run = rented.status()["runs"][0]
    assert (run["rc"], run["ended"]) == (7, "pipeline 7 0")


def test_a_failing_step_is_7_with_its_last_lines_and_goes_on_when_it_is_mended(
    rent: Rent,
) -> None:
    rented = rent("vast", used=True)
    repository = rented.user.repository(requirements__txt="iniconfig==99.99.99\n")
    failed = rented.run("setup").must(7)
    assert "the step python failed" in failed.err
    assert "iniconfig==99.99.99" in failed.err
    assert "boxstrap logs --step python" in failed.err
    log = rented.run("logs", "--step", "python").must(0)
    assert "iniconfig==99.99.99" in log.out
    why = "its last setup failed: the requirements can't be satisfied together (step python)"
    assert why in rented.run("status").must(0).out
    assert not rented.box.exists(f"{rented.folder}/runs")
    as_json = rented.run("setup", "--json").must(7).json()
    assert as_json["exit"] == 7
    assert any("99.99.99" in line for line in as_json["logs"]["python"])
    repository.commit({"requirements.txt": "iniconfig>=2\n"})
    mended = rented.run("setup").must(0)
    assert "step 1 loss" in mended.out
    assert "agent      skip" in mended.err


def test_a_requirements_file_that_is_not_in_the_commit_is_7(rent: Rent) -> None:
    rented = rent("vast", used=True)
    rented.user.repository()
    failed = rented.run("setup", "--set", "python.requirements=[nowhere.txt]").must(7)
    assert "nowhere.txt" in failed.err
    assert "isn't in the commit" in failed.err


def test_an_interpreter_that_the_box_cannot_have_is_7_and_lists_those_it_has(rent: Rent) -> None:
    rented = rent("vast", used=True)
    rented.user.repository()
    failed = rented.run("setup", "--set", "python.version=3.99").must(7)
    assert "3.99" in failed.err
    assert "this box has:" in failed.err
    assert "/usr/bin/python3" in failed.err


def test_escape_codes_of_a_training_never_reach_the_terminal(rent: Rent) -> None:
    rented = rent("vast", used=True)
    code = "print('step 1 \\x1b]0;owned\\x07\\x1b[31mred\\u202e', flush=True)\n"
    rented.user.repository(train__py=code)
    done = rented.run("setup").must(0)
    assert "step 1 red" in done.out
    assert "\x1b" not in done.text
    assert "\u202e" not in rented.run("logs").must(0).out


# Read by the loader and by Python: a shell on the box has them, and so has all that it runs.
OF_PROGRAMS = {
    "LD_PRELOAD": "/nowhere.so",
    "LD_LIBRARY_PATH": "/nowhere",
    "PYTHONPATH": "/nowhere",
}


def test_a_profile_may_set_any_name_the_runners_own_too(rent: Rent) -> None:
    runner = (shipped("templates") / "box/runner.sh").read_text()
    names = sorted(set(re.findall(r"\b([a-z_]+)=", runner)))
    assert {"run", "env_file", "child", "rc"} <= set(names)
    values = {**dict.fromkeys(names, "abc"), **OF_PROGRAMS}
    env = "".join(f'  {name}: "{value}"\n' for name, value in values.items())
    code = f"import os; print({{name: os.environ[name] for name in {names!r}}}, flush=True)"
    rented = rent("vast", used=True)
    repository = rented.user.repository(
        boxstrap__yaml=f"{PROFILE}env:\n{env}", train__py=code, requirements__txt="iniconfig>=2\n"
    )
    assert "'run': 'abc'" in rented.run("setup").must(0).out
    assert "nothing to do" in rented.run("setup").must(0).out
    repository.commit({"train.py": code + "\nprint('another')\n"})
    assert "another" in rented.run("setup").must(0).out
    assert [(run["state"], run["rc"]) for run in rented.status()["runs"]] == [("finished", 0)] * 2
