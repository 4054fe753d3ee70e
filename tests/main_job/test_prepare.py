"""`prepare`: commands in the environment before training, once for the same commands and files."""

from tests.main_job.rented import Rented

PROFILE = """\
version: 1
gpu: {require: false}
env: {WHO: "it's me"}
python: {packages: [iniconfig]}
prepare:
  - mkdir -p made && date +%s%N >>made/times
  - python data/get.py --into=made/data | cat
train: {command: python train.py}
"""
GET = """\
import os, sys, iniconfig
print("getting for", os.environ["WHO"], "in", sys.prefix)
open("made/data", "a").write("x")
"""
TRAIN = "print('step 1 of', open('made/data').read())\n"


def test_prepare_commands_run_once_for_the_same_commands_and_files(rented: Rented) -> None:
    repository = rented.user.repository()
    rented.run("setup").must(0)
    steps = [row["step"] for row in rented.run("plan", "--json").must(0).json()["steps"]]
    assert "prepare" not in steps
    # Adding it doesn't train again.
    done = rented.run("setup", "--set", "prepare=[touch first]").must(0)
    assert "prepare    ok" in done.err
    assert rented.runs() == ["train-1"]
    repository.commit({"boxstrap.yaml": PROFILE, "train.py": TRAIN})
    repository.commit({"data/get.py": "raise SystemExit(3)\n"})
    failed = rented.run("setup").must(7)
    assert "the step prepare failed: a command of `prepare` failed." in failed.err
    assert "it ended with exit code 3: python data/get.py" in failed.err
    assert rented.runs() == ["train-1"]
    repository.commit({"data/get.py": GET})
    done = rented.run("setup").must(0)
    assert "step 1 of x" in done.out
    assert "prepare    ok" in done.err
    said = rented.run("logs", "--step", "prepare").must(0).out
    assert "getting for it's me in /workspace/homework/.venv" in said
    assert "nothing to do" in rented.run("setup").must(0).out
    # Other packages, and another commit with the same commands and files: they are not run again.
    packages = ("plan", "--json", "--set", "python.packages=[six]")
    planned = rented.run(*packages).must(0).json()["steps"]
    rows = {row["step"]: row["why"] for row in planned}
    assert (rows["python"], rows["prepare"]) == ("changed", "done")
    rented.box.run("rm -r /workspace/.boxstrap/box")  # then the program that is sent answers
    assert rented.run(*packages).must(0).json()["steps"] == planned
    repository.commit({"other.txt": "x"})
    assert "maybe prepare    an earlier step decides it" in rented.run("plan").must(0).out
    other = rented.run("setup").must(0)
    assert "prepare    start" not in other.err
    assert "train      start  new commit" in other.err
    repository.commit({"data/get.py": GET + "# again\n"})
    again = rented.run("setup").must(0)
    assert "prepare    start  files that it names changed" in again.err
    assert "step 1 of xx" in again.out
    # A new tree is prepared again.
    rented.box.run("rm -rf /workspace/homework")
    anew = rented.run("setup", "--restart").must(0)
    assert "prepare    start" in anew.err
    assert "step 1 of x\n" in anew.out
