"""What a second command does: restart, a new commit, edits on the box, and never two trainings."""

from pathlib import Path

import pytest

from tests.cli import LONG, PROFILE, Completed
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = pytest.mark.sampled(of="module")

# A setup with nothing to do must not import these: each takes some hundredths of a second.
NOT_NEEDED = {"pydantic", "git", "jinja2", "rich"}
# Notes that it was started, and becomes the program that is meant.
NOTED = """\
#!/bin/sh
echo "${0##*/}" >>/tmp/started
exec /usr/bin/"${0##*/}" "$@"
"""


def test_a_look_at_a_box_that_was_set_up_starts_its_python_and_git_alone(rented: Rented) -> None:
    rented.user.repository(boxstrap__yaml=PROFILE)
    rented.run("setup").must(0)
    names = rented.box.run("ls /usr/bin").split()
    shown = [name for name in names if not name.startswith(("python", "sh", "dash"))]
    lay = (
        'for name; do printf %s "$NOTED" >/usr/local/bin/$name; chmod +x /usr/local/bin/$name; done'
    )
    rented.box.run(["env", f"NOTED={NOTED}", "sh", "-c", lay, "sh", *shown])
    for task, programs in (("setup", ["env", "git", "git"]), ("status", ["env"])):
        rented.box.run("rm -f /tmp/started")
        rented.run(task).must(0)
        assert rented.box.read("/tmp/started").split() == programs


def test_setup_trains_the_same_work_again_only_with_restart_even_if_its_run_died(
    rented: Rented,
) -> None:
    rented.user.repository(boxstrap__yaml=LONG)
    rented.run("setup").must(0)
    assert rented.trainings() == 1
    again = rented.run("setup", PYTHONPROFILEIMPORTTIME="1").must(0)
    assert "nothing to do" in again.out
    assert "train-1 running" in again.out
    assert again.imported & NOT_NEEDED == set()
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
    for words, runs in (([], False), (["--restart"], True)):
        foreseen = rented.run("setup", "--dry", "--json", *words).must(0).json()
        assert [row["runs"] for row in foreseen["steps"] if row["step"] == "train"] == [runs]
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
    restarted = rented.run("setup", "--restart").must(0)
    assert "step 1 loss" in restarted.out
    assert (rented.runs(), rented.trainings()) == (["train-1", "train-2"], 1)
    (listed,) = rented.user.run("boxes", "--json").must(0).json()["boxes"]
    assert listed["running"] == ["train-2"]
    states = {run["name"]: (run["state"], run["rc"]) for run in rented.status()["runs"]}
    assert states == {"train-1": ("finished", 143), "train-2": ("running", None)}
    # Nor is what died with the box started again without it.
    rented.box.power_off()
    rented.box.power_on()
    states = {run["name"]: run["state"] for run in rented.status()["runs"]}
    assert states == {"train-1": "finished", "train-2": "died"}
    told = rented.run("status").must(0).out
    assert "train-2  died with the box  started" in told
    assert "boxstrap setup --restart" in told
    planned = rented.run("plan", "--json").must(0).json()["steps"]
    assert {"step": "train", "runs": False, "why": "died"} in planned
    assert "died with the box" in rented.run("plan").must(0).out
    again = rented.run("setup").must(10)
    assert "train-2 died with the box" in again.err
    assert "nothing to do" not in again.out
    assert "--resume" not in told + again.text  # there is no command for that
    assert (rented.runs(), rented.trainings()) == (["train-1", "train-2"], 0)
    rented.run("setup", "--restart").must(0)
    assert (rented.runs(), rented.trainings()) == (["train-1", "train-2", "train-3"], 1)


def test_setup_of_a_new_commit_is_refused_and_changes_nothing_beside_a_live_run(
    rented: Rented,
) -> None:
    repository = rented.user.repository(boxstrap__yaml=LONG)
    first = repository.head
    rented.run("setup").must(0)
    second = repository.commit({"train.py": "print('step 9')\n"})
    blocked = rented.run("setup").must(8)
    assert f"train-1 is running (commit {first[:12]}); not started" in blocked.err
    assert f"other commit ({first[:12]} → {second[:12]}).\n--restart" in blocked.err
    head = f"git -C {rented.tree} rev-parse HEAD"
    assert rented.as_user(head).strip() == first
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
    rented.run("stop").must(0)
    started = rented.run("setup").must(0)
    assert "step 9" in started.out
    assert rented.as_user(head).strip() == second
    assert rented.runs() == ["train-1", "train-2"]


def test_setup_during_a_run_says_whether_command_env_or_secrets_changed(rented: Rented) -> None:
    rented.user.repository(boxstrap__yaml=LONG)

    def setup(*words: str, key: str = "first-value") -> Completed:
        return rented.run("setup", "--set", "secrets=[API_KEY]", *words, API_KEY=key)

    setup().must(0)
    other = ("--set", "train.command=python train.py --fast", "--set", "env.MORE=1")
    told = setup(*other, "--json", key="other-value").must(8).json()
    assert (told["exit"], told["waits_for"]) == (8, "train-1")
    assert told["differs"] == ["command", "env", "secrets"]
    assert (
        "command (python train.py → python train.py --fast), env, secrets." in told["error"]["what"]
    )
    assert told["error"]["next"].startswith("--restart")
    assert told["repo_dir"] == rented.tree
    environment = setup("--set", "python.torch_backend=cpu", "--json").must(8).json()
    assert environment["differs"] == ["environment"]
    # Secrets and authorized keys are no part of the work: the same work is already running.
    changed = setup(key="other-value").must(0)
    assert "it still uses the earlier secrets" in changed.out
    rented.user.home.joinpath("rig.pub").write_text(Path(f"{rented.box.identity}.pub").read_text())
    keys = "ssh.authorized_keys=[~/rig.pub]"
    assert "train-1: running" in setup("--set", keys).must(0).out
    assert rented.runs() == ["train-1"]


def test_setup_makes_the_folders_of_results_before_the_training_starts(rent: Rent) -> None:
    results = "[out/, deep/er/best.pt, link/out/, model]"
    train = "import os, time\nprint(sorted(os.listdir('.')), os.listdir('deep'), flush=True)\n"
    rented = rent("vast", used=True)
    repository = rented.user.repository(
        boxstrap__yaml=LONG.replace("train.py}", f"train.py, results: {results}}}"),
        train__py=f"{train}time.sleep(600)\n",
    )
    rented.user.place.joinpath("link").symlink_to("/tmp")
    repository.commit({})
    shown = rented.run("setup").must(0).out
    assert "'out'" in shown
    assert "['er']" in shown
    assert "'model'" not in shown
    assert not rented.box.exists("/tmp/out")


def test_setup_of_a_new_commit_keeps_untracked_files_and_edits_on_the_box(rented: Rented) -> None:
    repository = rented.user.repository(_gitignore="out/\n", notes__txt="one\n")
    repository.commit({".gitignore": "out/\n"})
    rented.run("setup").must(0)
    tree = rented.tree
    rented.as_user(
        f"cd {tree} && mkdir -p out && echo weights >out/a.ckpt && echo mine >untracked.txt"
        " && echo edit >>notes.txt && touch -d 2001-01-01 out/a.ckpt .venv/pyvenv.cfg"
    )
    seen = f"cd {tree} && stat -c '%n %Y %i' out/a.ckpt untracked.txt .venv/pyvenv.cfg"
    before = rented.as_user(seen)
    # A file that the commit does not touch may be edited on the box.
    commit = repository.commit({"train.py": "print('step 2 of another')\n", "new.txt": "new\n"})
    done = rented.run("setup").must(0)
    assert "step 2 of another" in done.out
    assert rented.as_user(f"git -C {tree} rev-parse HEAD").strip() == commit
    assert rented.as_user(seen) == before
    assert rented.box.read(f"{tree}/new.txt") == "new\n"
    assert rented.box.read(f"{tree}/notes.txt") == "one\nedit\n"
    assert rented.runs() == ["train-1", "train-2"]


def test_setup_starts_no_run_without_train_or_if_one_is_unrecorded_but_one_for_a_new_command(
    rented: Rented,
) -> None:
    repository = rented.user.repository(boxstrap__yaml="version: 1\ngpu: {require: false}\n")
    assert "set up" in rented.run("setup").must(0).out
    assert not rented.box.exists(f"{rented.folder}/runs")
    assert "nothing to do" in rented.run("setup").must(0).out
    repository.commit({"boxstrap.yaml": PROFILE})
    rented.run("setup").must(0)
    # As after a power cut between the start of the run and its stamp.
    rented.as_user(f"rm {rented.folder}/steps/*/train.ok")
    assert rented.planned()["train"] == "new"
    rented.run("setup").must(0)
    assert rented.runs() == ["train-1"]
    done = rented.run("setup", "--set", "train.command=python -u train.py").must(0)
    assert "train      start  new command" in done.err
    # The command of the profile ran before.
    again = rented.run("plan", "--json").must(0).json()
    assert [row["why"] for row in again["steps"] if row["step"] == "train"] == ["ran"]
