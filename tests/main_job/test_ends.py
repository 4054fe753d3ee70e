"""How a setup or a training can fail, what is shown of it, and how it continues afterwards."""

import re

import pytest

from bootstrap.paths import shipped
from tests.cli import PROFILE
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = pytest.mark.sampled(of="module")


def test_setup_with_a_failing_step_exits_with_7_and_shows_its_last_lines(rented: Rented) -> None:
    repository = rented.user.repository(requirements__txt="iniconfig==99.99.99\n")
    failed = rented.run("setup").must(7)
    assert "the step python failed" in failed.err
    assert "iniconfig==99.99.99" in failed.err
    assert "boxstrap logs --step python" in failed.err
    log = rented.run("logs", "--step", "python").must(0)
    assert "iniconfig==99.99.99" in log.out
    why = " failed: the requirements can't be satisfied: versions disagree"
    last = f"its last setup, of homework {repository.head[:12]},"
    assert f"{last}{why}" in rented.run("status").must(0).out
    known = rented.status()
    assert (known["setup"]["exit"], known["setup"]["why"]["step"]) == (7, "python")
    assert known["boxes"][0]["setup"] == known["setup"]
    assert not rented.box.exists(f"{rented.folder}/runs")
    as_json = rented.run("setup", "--json").must(7).json()
    assert as_json["exit"] == 7
    assert any("99.99.99" in line for line in as_json["logs"]["python"])
    repository.commit({"requirements.txt": "iniconfig>=2\n"})
    mended = rented.run("setup").must(0)
    assert "step 1 loss" in mended.out
    assert "agent      start" not in mended.err


def test_each_setup_prints_one_warning_if_the_profile_is_for_another_provider_than_the_boxs(
    rented: Rented,
) -> None:
    profile = (
        "version: 1\nextends: runpod\ngpu: {require: false}\ntrain: {command: python train.py}\n"
    )
    repository = rented.user.repository("other", boxstrap__yaml=profile)
    for _ in range(2):
        done = rented.run("setup").must(0)
        warned = [line for line in done.err.splitlines() if "RunPod" in line]
        assert len(warned) == 1
        assert "--profile vast" in warned[0]
    repository.commit({"boxstrap.yaml": profile.replace("runpod", "ssh")})
    done = rented.run("setup").must(0)
    assert "--profile vast" not in done.err
    assert "still billing" not in done.out  # nobody said that it is rented


# Read by the loader and by Python: a shell on the box has them, and so has all that it runs.
OF_PROGRAMS = {"LD_PRELOAD": "/nowhere.so", "LD_LIBRARY_PATH": "/nowhere", "PYTHONPATH": "/nowhere"}


def test_env_of_a_profile_reaches_the_training_also_under_names_of_boxstraps_shell_variables(
    rent: Rent,
) -> None:
    files = [shipped("templates") / f"box/{name}.sh" for name in ("begin", "command")]
    names = sorted(set(re.findall(r"\b([a-z_]+)=", "".join(file.read_text() for file in files))))
    names += ["run", "env_file", "child", "rc", "variable"]
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
