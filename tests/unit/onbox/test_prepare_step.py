"""What the commands before a training depend on, and how they are run."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.quoted import quoted
from bootstrap.onbox.run_folder import write_whole
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.steps.prepare import PrepareStep
from tests.programs import captured
from tests.unit.setup.scripts import facts

GET = "python data/get.py --config='c.yml' && python -m tools.make"
SUM, SENT = "a" * 64, 1_700_000_000_000_000_123


class Prepared:
    """A box with a tree that its commands prepare."""

    def __init__(self, folder: Path) -> None:
        self.home, self.tree = folder / "w/.boxstrap", folder / "w/homework"
        self.notes = self.home / "steps/k"
        for each in (self.tree / ".git", self.tree / "datasets", self.notes, self.home / "data"):
            each.mkdir(parents=True)

    def step(self, *commands: str) -> PrepareStep:
        tree = BoxTree(str(self.home), "k", str(self.tree))
        asked = {"main": str(self.tree), "main_venv": f"{self.tree}/.venv"}
        own = {"shared": ["datasets", "list"], "results": ["datasets/out"]}
        return PrepareStep(facts(tree, asked=asked, prepare=commands, **own))

    def push(self, target: Path, name: str, digest: str = SUM, time: int = SENT) -> None:
        rows = [json.dumps({"target": str(target)}), json.dumps([name, 3, time, SENT, digest])]
        count = len([*(self.home / "data").iterdir()])
        (self.home / f"data/{count}.jsonl").write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    monkeypatch.chdir(tmp_path)
    return Prepared(tmp_path)


def test_prepare_runs_again_if_a_file_named_in_its_commands_changed(box: Prepared) -> None:
    found = {box.step(GET).inputs()}
    for name in ("data/get.py", "c.yml", "tools/make.py", "other.py"):
        (box.tree / name).parent.mkdir(exist_ok=True)
        (box.tree / name).write_text("1\n")
        found.add(box.step(GET).inputs())
    assert len(found) == 4
    done = captured(["sha256sum", "data/get.py", "c.yml", "tools/make.py"], cwd=box.tree)
    assert box.step(GET).inputs() == quoted("v1", str(box.tree), GET, done.stdout.strip())


def test_prepare_runs_again_if_the_stat_or_push_record_of_data_it_read_changed(
    box: Prepared,
) -> None:
    """As in stamps that a shell wrote."""
    file = box.tree / "datasets/a"
    file.write_text("one\n")
    os.utime(file, ns=(0, 1_700_000_000_000_000_123))
    write_whole(box.notes / "prepare.read", f"{file}\0{box.tree}/gone\0")
    box.push(box.tree / "datasets", "b")
    stat = subprocess.check_output(["stat", "-c", "%s %y %n", file], text=True)
    text = f'\n{box.tree}/datasets"}}\n{SUM}"b"\n{stat}'
    of_commands = quoted("v1", str(box.tree), GET, "")
    step = box.step(GET)
    assert step.inputs() == of_commands + hashlib.sha256(text.encode()).hexdigest()
    file.write_text("more\n")
    before = step.inputs()
    assert box.step(GET).what_changed(before) == "data"
    assert box.step("other").what_changed(before) == "changed"
    before = box.step("cat datasets/a").inputs()
    file.write_text("most\n")
    assert box.step("cat datasets/a").what_changed(before) == "files"


@pytest.mark.parametrize(
    ("target", "counts"),
    [("homework/x", True), ("elsewhere", True), ("second/x", False), ("second@2/x", False)],
)
def test_prepare_does_not_run_again_for_data_pushed_to_another_repository_or_there_already(
    box: Prepared, target: str, counts: bool
) -> None:
    for key, name in (("k", "homework"), ("s", "second")):
        (box.home / f"steps/{key}").mkdir(exist_ok=True)
        (box.home / f"steps/{key}/repo.dir").write_text(f"{box.tree.parent}/{name}\n")
    write_whole(box.notes / "prepare.read", "")
    before = box.step(GET).inputs()
    box.push(box.tree.parent / target, "was there", time=SENT + 10**9)
    assert box.step(GET).inputs() == before
    box.push(box.tree.parent / target, "b")
    assert (box.step(GET).inputs() != before) == counts


def test_shared_files_that_prepare_commands_did_not_write_are_recorded_as_read(
    box: Prepared, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("read", "renewed", "out/result"):
        (box.tree / "datasets" / name).parent.mkdir(exist_ok=True)
        (box.tree / "datasets" / name).write_text("1\n")
    (box.tree / "list").write_text("1\n")
    (box.home / "env").write_text("export WHO='me'\n")
    commands = ['echo "$WHO $VIRTUAL_ENV $PYTHONUNBUFFERED" >made', "echo new >>datasets/renewed"]
    step = box.step(*commands, "touch datasets/made")
    assert not step.check()
    step.apply()
    assert step.check()
    assert (
        box.notes / "prepare.read"
    ).read_text() == f"{box.tree}/datasets/read\0{box.tree}/list\0"
    assert (box.tree / "made").read_text() == f"me {box.tree}/.venv 1\n"
    said = capfd.readouterr().out.splitlines()
    assert said[:2] == ["progress done=0 total=3 unit=commands", f"$ {commands[0]}"]
    assert said[-1] == "progress done=3 total=3 unit=commands"


def test_a_failing_prepare_command_ends_the_step_with_prepare_failed_and_its_exit_code(
    box: Prepared,
) -> None:
    with pytest.raises(StepError, match="it ended with exit code 3: exit 3") as failed:
        box.step("exit 3 | cat", "touch never").apply()
    assert failed.value.code == "prepare-failed"
    assert not (box.tree / "never").exists()
    assert not box.step().check()
