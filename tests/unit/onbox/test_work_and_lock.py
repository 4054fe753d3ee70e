"""What counts as the same work, which setup holds the lock, and what is sent back of a tree."""

import fcntl
import json
import os
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.quoted import quoted
from bootstrap.onbox.run_folder import RunFolder
from bootstrap.onbox.runs import keep_monitor, start
from bootstrap.onbox.setup import home
from bootstrap.onbox.setup.events import SetupEvents
from bootstrap.onbox.steps.gpu import GpuStep
from bootstrap.onbox.steps.train import TrainStep
from bootstrap.onbox.work import sync
from bootstrap.onbox.work.back import WorkThere
from bootstrap.onbox.work.lock import SameSetupError, take_lock
from tests.programs import captured
from tests.run_states import identity
from tests.unit.boxes.conftest import DEAD
from tests.unit.onbox.test_place import Placed
from tests.unit.setup.scripts import facts
from tests.waiting import wait_until


def train(home: Path, tree: Path | None = None, **own: str) -> TrainStep:
    return TrainStep(facts(BoxTree(str(home), "k", str(tree or home.parent)), **own))


def content_of(tree: Path, **files: str) -> str:
    """Return what stands for the content of a commit with these files."""
    for name, text in files.items():
        (tree / name.replace("__", ".")).write_text(text)
    own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*own, "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=tree, check=True)
    return train(tree / "home", tree, repo_snapshot="HEAD").content


def test_a_change_of_boxstrap_yaml_alone_is_no_new_work_but_that_of_another_file_is(
    tmp_path: Path,
) -> None:
    alone = content_of(tmp_path, train__py="1")
    assert len(alone) == 64
    assert content_of(tmp_path, boxstrap__yaml="2") == alone
    assert content_of(tmp_path, train__py="3") != alone
    assert train(tmp_path, tmp_path, repo_snapshot="0" * 40).content == ""


def test_the_same_command_in_an_environment_elsewhere_is_no_new_command(tmp_path: Path) -> None:
    for name, text in {"venv": "/opt/venv", "command": "/opt/venv/bin/python train.py"}.items():
        (tmp_path / name).write_text(f"{text}\n")
    run = RunFolder(str(tmp_path))
    for command, is_same in (("python train.py", True), ("python -u train.py", False)):
        assert train(tmp_path, train_command=command)._has_command(run) == is_same


def test_the_newest_of_runs_of_the_same_work_is_the_one_that_began_last(tmp_path: Path) -> None:
    """Not the one that wrote last: exit code and leftovers may be written much later."""
    runs = tmp_path / "runs/k"
    # Not in the order of their names, in which they are read.
    for began, name in enumerate(("b-1", "c-1", "a-1")):
        (runs / name).mkdir(parents=True)
        for file, text in {"work": "w1", "dir": "/w", "started": "0"}.items():
            (runs / name / file).write_text(f"{text}\n")
            os.utime(runs / name / file, (began, began))
    for wrote, name in enumerate(("a-1", "b-1", "c-1")):
        os.utime(runs / name, (wrote, wrote))
    (runs / "a-1/tree").write_text("c1\n")
    assert train(tmp_path, repo_tree="c1", train_command="x").what_changed("") == "command"
    assert train(tmp_path, repo_tree="c2").what_changed("") == "commit"
    newest = start.of_work(str(tmp_path), "w1")
    assert newest
    assert newest.name == "k/a-1"


def test_secrets_that_another_machine_gave_a_run_are_no_difference_and_changed_ones_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "made_of").write_text(f"secrets {'a' * 32}\n")
    run = RunFolder(str(tmp_path))
    for own, found in (("a" * 32, []), (f"{'a' * 6}{'b' * 26}", ["secrets"]), ("c" * 32, [])):
        differ = train(tmp_path, secrets_id=own).differences(run)
        assert [name for name in differ if name == "secrets"] == found


def test_sync_is_told_whether_the_run_that_has_its_files_runs_or_is_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(sync, "answer", lambda *words: told.append(words))
    state = sync.SentState.__new__(sync.SentState)
    state._home, state.tree = "", BoxTree("", "k", "")
    for word in ("queued", "running"):
        run = SimpleNamespace(path="k/q-1", state=lambda word=word: word)
        monkeypatch.setattr(sync, "alive_in", lambda *_, run=run: run)
        assert state.is_in_use()
    assert told == [("queued", "k/q-1"), ("alive", "k/q-1")]


@pytest.mark.parametrize(("of", "why"), [("c1", "snapshot"), ("c2", "commit")])
def test_setup_gives_snapshot_as_reason_if_files_changed_but_not_the_commit(
    of: str, why: str, tmp_path: Path
) -> None:
    run = tmp_path / "runs/k/a-1"
    run.mkdir(parents=True)
    for file, text in {"started": "0", "commit": "c1"}.items():
        (run / file).write_text(f"{text}\n")
    assert train(tmp_path, repo_commit=of, repo_tree="c").what_changed("") == why


def test_setup_gives_ran_as_the_reason_if_the_same_work_already_ran_before_another(
    tmp_path: Path,
) -> None:
    step = train(tmp_path, repo_tree="c", train_command="x")
    for name, work in (("a-1", step.work), ("b-1", "another")):
        (tmp_path / f"runs/k/{name}").mkdir(parents=True)
        for file, text in {"started": "0", "pid": DEAD, "exit": "0", "work": work}.items():
            (tmp_path / f"runs/k/{name}" / file).write_text(f"{text}\n")
    assert step.what_changed("another") == "ran"
    assert train(tmp_path, repo_tree="c", train_command="y").what_changed("another") == "commit"


def test_the_gpu_step_says_restarted_or_changed_as_its_reason_to_run_again() -> None:
    step = GpuStep(facts(BoxTree("", "", ""), gpu='{"count":8}'))
    noted = quoted("v1", '{"count":8}', "1 12 another-boot")
    assert step.what_changed(noted) == "restarted"
    assert step.what_changed(noted.replace("8", "4")) == "changed"


@pytest.mark.slow
def test_setup_ends_processes_of_a_killed_setup_before_it_begins(tmp_path: Path) -> None:
    """Only what names that setup, and no package manager: processes' numbers are used again."""
    folder, mark = tmp_path / "w", f"mark-{os.getpid()}"
    folder.mkdir()
    script = 'exec -a "$0" sleep 60 & exec -a other-setup sleep 60 & echo $$; wait'
    command = ["bash", "-c", script, mark]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as dead:
        assert dead.stdout
        session = dead.stdout.readline().strip()
        (folder / "lock").write_text(f"{session} 1 boot\nscript\n{mark}\n")
        # Until it has its own words, each has those of the shell, which name the setup.
        wait_until(lambda: sum("sleep 60 &" not in words for words in living_of(session)) == 2)
        dead.kill()
        dead.wait()
        lock = take_lock(str(folder), 0, lambda _: pytest.fail("it waits"))
        assert lock
        with lock:
            left = living_of(session)
        assert [words for words in left if mark in words] == []
        assert len(left) == 1
        os.killpg(int(session), signal.SIGKILL)


def living_of(session: str) -> list[str]:
    """Return the words of each live process of a session."""
    command = ["ps", "-o", "stat= args=", "-s", session]
    done = captured(command, check=False)
    return [line for line in done.stdout.splitlines() if not line.startswith("Z")]


def test_setup_names_the_setup_it_waits_for_and_gives_up_at_its_limit(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(f"{identity(os.getpid())}\nscript\nsetup-1\n")
    told: list[str] = []
    with (tmp_path / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert take_lock(str(tmp_path), 0.2, told.append) is None
    assert told == ["setup-1"]
    lock = take_lock(str(tmp_path), 0, told.append)
    assert lock
    lock.close()
    assert told == ["setup-1"]


@pytest.mark.parametrize(
    ("process", "script", "state", "joins"),
    [
        ("alive", "mine", "running", True),
        ("alive", "another", "running", False),
        ("alive", "mine", "over", False),
        (DEAD, "mine", "running", False),
    ],
)
def test_setup_joins_a_setup_of_the_same_script_only_while_that_lives_and_is_not_over(
    process: str, script: str, state: str, joins: bool, tmp_path: Path
) -> None:
    """One that is gone may have left what has the lock."""
    (tmp_path / "setups/setup-1").mkdir(parents=True)
    SetupEvents(str(tmp_path / "setups/setup-1"), "setup-1").note_state("", state, 0)
    holder = identity(os.getpid()) if process == "alive" else process
    (tmp_path / "lock").write_text(f"{holder}\n{script}\nsetup-1\n")
    with (tmp_path / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SameSetupError) if joins else nullcontext():
            assert take_lock(str(tmp_path), 0, lambda _: None, script="mine") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "stays"),
    [
        ("by nobody", False),
        ("by the last recipe", True),
        ("by a run's recipe", True),
        ("by a setup that begins", True),
        ("by a setup at work", True),
        ("by a setup that is over", False),
        ("by a process", True),
        ("just now", True),
        ("by the setup that sweeps", True),
    ],
)
def test_setup_removes_an_old_program_version_only_if_nothing_uses_it(
    named: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, own = os.urandom(8).hex(), "f" * 16  # a process of another test may name the same
    if named == "by the setup that sweeps":
        own = digest
    box = {name: tmp_path / "box" / name for name in (digest, own, f"{digest}.new.12")}
    for folder in box.values():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sleep.sh").write_text("sleep 600\n")
        if named != "just now":
            os.utime(folder, (0, 0))
    (tmp_path / "box/current").symlink_to(own)
    recipe = f"recipe() {{\n  PROGRAM='{digest}{'0' * 48}'\n}}\n"
    pid = {"by a setup at work": identity(os.getpid()), "by a setup that is over": DEAD}
    places = {"by the last recipe": "steps/k/setup.sh", "by a run's recipe": "steps/k/run.sh"}
    if file := places.get(named, "setups/1/setup.sh" if "by a setup " in named else ""):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(recipe)
    if named in pid:
        (tmp_path / "setups/1/pid").write_text(f"{pid[named]}\n")
    argv = ["bash", str(box[digest if named == "by a process" else own] / "sleep.sh")]
    with subprocess.Popen(argv) as live:
        words = Path(f"/proc/{live.pid}/cmdline")  # for a moment it has none
        wait_until(lambda: argv[1].encode() in words.read_bytes())
        monkeypatch.setattr(home, "SHELL_PROGRAMS", f"{tmp_path}/box/{own}")
        home.sweep_programs(str(tmp_path))
        live.kill()
    left = {digest: stays, own: True, "current": True, f"{digest}.new.12": named == "just now"}
    assert {path.name for path in (tmp_path / "box").iterdir()} == {n for n in left if left[n]}


def test_the_next_setup_starts_the_monitor_of_a_lease_again_if_the_monitor_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its profile has a lease or not: a restart of the box ended the monitor."""
    (tmp_path / "lease.json").write_text("{}")
    begun: list[tuple[str, ...]] = []
    monkeypatch.setattr(keep_monitor, "begin_apart", lambda *words: begun.append(words) or [])
    keep_monitor.keep(str(tmp_path))
    assert [words[-2:] for words in begun] == [("runs.keep_monitor", str(tmp_path))]
    (tmp_path / "lease.pid").write_text(f"{identity(os.getpid())}\n")
    keep_monitor.keep(str(tmp_path))
    assert len(begun) == 1


def test_setup_says_broken_if_a_run_lost_its_session_while_setup_looked_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["done", ""])
    monkeypatch.setattr(start, "why_done", lambda _: next(answers))
    step = train(tmp_path, repo_tree="c" * 64, venv=".venv")
    step.note_success()
    assert step.why() == "broken"


ASKED = {"format": "sha1", "most_mib": 1}


@pytest.fixture
def work(tmp_path: Path) -> WorkThere:
    placed = Placed(tmp_path)
    assert placed.place(placed.state(a="1\n")) == (0, ""), placed.said
    own = placed.home / "own"
    own.mkdir()
    return WorkThere(BoxTree(str(placed.home), "k", str(placed.tree)), str(own), ASKED)


def told(work: WorkThere) -> dict[str, str]:
    """Return the last of each kind, its rest as text."""
    return {row.pop("kind"): str(row) for row in work.told()}


@pytest.mark.slow
def test_sync_back_makes_one_commit_of_edits_and_new_files(work: WorkThere, tmp_path: Path) -> None:
    assert not {"edits", "left", "unread"} & told(work).keys()
    tree = tmp_path / "w/homework"
    (tree / "a").write_text("2\n")
    (tree / "deep").mkdir()
    (tree / "deep/$(touch x)\n").write_text("new")
    for made in ("__pycache__/a.pyc", "src/a.egg-info/PKG-INFO", ".ipynb_checkpoints/a.ipynb"):
        (tree / made).parent.mkdir(parents=True)
        (tree / made).write_text("")
    (tree / "large").write_bytes(b"")
    os.truncate(tree / "large", 2 << 20)
    run = tmp_path / "w/.boxstrap/runs/k/run-1"
    run.mkdir(parents=True)
    for name, text in {"pid": "", "dir": f"{tree}\n", "results": "out[1]/\n"}.items():
        (run / name).write_text(text)
    (tree / "out[1]").mkdir()
    (tree / "out[1]/result").write_text("weights")
    (tree / "data").mkdir()
    rows = [json.dumps({"target": str(tree / "data")})]
    (tree / "data/link").symlink_to("pushed")
    for name in ("pushed", "changed since", "link"):
        file = tree / "data" / name
        if not file.is_symlink():
            file.write_text("from home")
        rows.append(json.dumps([name, file.lstat().st_size, file.lstat().st_mtime_ns]))
    os.utime(tree / "data/changed since", (1, 1))
    (tmp_path / "w/.boxstrap/data").mkdir()
    (tmp_path / "w/.boxstrap/data/x.jsonl").write_text("\n".join(rows))
    work = WorkThere(work._tree, work.ours.folder, ASKED)
    said = told(work)
    assert said["left"] == "{'path': 'large'}"
    assert said == told(work)  # same edits, same id
    made = said["edits"].split("'")[3]
    listed = work.ours.paths("ls-tree", "-r", "-z", "--name-only", made)
    assert listed == ["a", "data/changed since", "deep/$(touch x)\n"]


def test_sync_back_reports_a_git_error_while_it_lists_new_files(work: WorkThere) -> None:
    Path(work.ours.folder, "index").mkdir()
    with pytest.raises(OSError, match="index"):
        list(work.new_files())
    assert "unread" in told(work)
