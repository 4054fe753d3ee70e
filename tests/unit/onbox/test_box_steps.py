"""The steps in Python, `prepare` too: their stamps, what they are told, the programs they run."""

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.quoted import quoted
from bootstrap.onbox.run_folder import names_in, write_whole
from bootstrap.onbox.short_program import run
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.steps.lease import LeaseStep
from bootstrap.onbox.steps.preflight import PreflightStep
from bootstrap.onbox.steps.prepare import PrepareStep
from bootstrap.onbox.steps.step import BoxStep, expanded, step_named
from bootstrap.onbox.steps.tools import ToolsStep
from bootstrap.steps.plan import NAMES
from bootstrap.steps.shell import Value, onbox_files
from tests.programs import captured
from tests.unit.setup.scripts import facts

SPECIAL = b"ab=:~#,%@ \t\n\\'\"$\xc3\xa9\x7f"
BETWEEN = ((b"", b""), (b"a", b"b"), (b":", b""))


def test_setup_steps_in_python_quote_shell_words_byte_for_byte_as_bash_does() -> None:
    """Stamps that a shell wrote stay true, and a shell reads back what is written for it."""
    random = Random(1)
    words = [bytes([byte]).join(between) for byte in range(1, 256) for between in BETWEEN]
    words += [bytes(random.choices(SPECIAL, k=random.randrange(7))) for _ in range(1000)]
    command = ["bash", "-c", "LC_ALL=C; printf '%q ' \"$@\"", "bash", *words]
    done = subprocess.run(command, capture_output=True, check=True)
    assert quoted(*map(os.fsdecode, words)) == done.stdout.decode("ascii")


def test_each_setup_step_in_python_is_named_as_its_file() -> None:
    found = [name for name in NAMES if f"onbox/steps/{name}.py" in onbox_files()]
    assert "lease" in found
    for name in found:
        assert step_named(name, facts(BoxTree("", "", ""))).name == name


def test_a_second_setup_adds_no_second_boot_line(tmp_path: Path) -> None:
    hook = tmp_path / "onstart.sh"
    hook.write_text("#!/bin/sh\nexec true\n")
    for _ in range(2):
        LeaseStep(facts(BoxTree(f"{tmp_path}/.boxstrap", "k", "")))._begin_at_boot(str(hook))
        first, ours, *rest = hook.read_text().splitlines()
        assert (first, rest) == ("#!/bin/sh", ["exec true"])
        assert f" runs.keep_monitor {tmp_path}/.boxstrap; }} </dev/null" in ours


def test_torch_is_found_in_an_environment_whose_folder_name_has_brackets(tmp_path: Path) -> None:
    folder = tmp_path / "exp[1]" / ".venv"
    (folder / "lib" / "torch-2.4.dist-info").mkdir(parents=True)
    assert expanded(str(folder), "lib/torch-*", "lib/cupy*") == "lib/torch-2.4.dist-info lib/cupy* "


def test_preflight_asks_stage_0_only_where_the_box_is_not_plainly_as_it_should_be(
    tmp_path: Path,
) -> None:
    (tmp_path / ".boxstrap").mkdir()
    lacking = "printf 'lacks\\tdisk-full\\tno room\\nlacks\\tmusl\\tmusl\\n'"
    room = {"min_free_mb": 0, "min_tmp_mb": 0}

    def preflight(page: str, **own: Value) -> PreflightStep:
        tree = BoxTree(str(tmp_path / ".boxstrap"), "k", "")
        return PreflightStep(facts(tree, asked={"page": page}, **room | own))

    assert preflight(lacking).check()
    (tmp_path / "uv.toml").touch()
    assert preflight(lacking).check()
    for not_plain in ({"min_free_mb": 999999999}, {"volume_at": str(tmp_path)}, {}):
        if not not_plain:
            os.chown(tmp_path / "uv.toml", 1234, -1)
        assert preflight(":", **not_plain).check()
        step = preflight(lacking, **not_plain)
        assert not step.check()
        with pytest.raises(StepError, match=r"^no room$") as lack:
            step.apply()
        assert lack.value.code == "disk-full"


@pytest.mark.parametrize(
    ("stamp", "check", "why"),
    [
        (None, True, "new"),
        ("v1 \n", True, "done"),
        ("v1 \n", False, "broken"),
        ("v1 \n", OSError("a bad disk"), "broken"),
        ("v1 \nunfinished\n", True, "broken"),
        ("v1 other \n", True, "changed"),
    ],
)
def test_a_setup_steps_reason_to_run_comes_from_its_record_and_its_check(
    stamp: str | None, check: bool | OSError, why: str, tmp_path: Path
) -> None:
    class SomeStep(BoxStep):
        def check(self) -> bool:
            if isinstance(check, OSError):
                raise check
            return check

    (tmp_path / "steps").mkdir()
    if stamp:
        (tmp_path / "steps/some.ok").write_text(stamp)
    tree = BoxTree(str(tmp_path), "k", "")
    step = SomeStep(facts(tree))
    assert step.why() == why
    assert SomeStep(facts(tree, asked={"redo": "other,some"})).why() == "asked"
    step.spoil()
    assert step.is_spoiled == bool(stamp)
    step.note_success()
    assert (tmp_path / "steps/some.ok").read_text() == "v1 \n"


NEWER = re.compile(
    r"""\.remove(?:suf|pre)fix\(|from functools import (?:.*, )?cache\b|strict="""
    r"""|\|= \{\s*"[^"]*":|^\w+ = (?:dict|list|set|tuple|Mapping|Sequence)\[""",
    re.MULTILINE,
)
OF_ENVIRONMENTS = {"onbox/python/bytecode.py", "onbox/python/imports.py"}
"""They run on the training's Python, and compile nothing on one before 3.10."""


def test_programs_sent_to_the_box_call_nothing_that_python_3_8_lacks() -> None:
    """A box whose system has that Python has its monitor and its steps in it."""
    own = {name: text for name, text in onbox_files().items() if name not in OF_ENVIRONMENTS}
    assert [name for name, text in own.items() if NEWER.search(text)] == []


def test_a_setup_without_packages_is_right_after_one_whose_packages_could_not_be_installed(
    tmp_path: Path,
) -> None:
    (tmp_path / "steps").mkdir()
    is_right = []
    for name, packages in (("one", ["jq"]), ("two", ["jq"]), ("three", [])):
        asked = {"setup": str(tmp_path / name)}
        tree = BoxTree(str(tmp_path), "k", "")
        step = ToolsStep(facts(tree, asked=asked, is_local=True, packages=packages))
        is_right.append(step.check())
        step.apply()
        assert step.check()
    assert is_right == [True, False, False]


LARGE = b"x" * (1 << 20)


def test_a_program_called_on_a_box_can_read_and_print_megabytes_without_hanging() -> None:
    done = run(["sh", "-c", "tee /dev/fd/2"], {**os.environ}, LARGE)
    assert (done.code, done.output, done.errors) == (0, LARGE, LARGE)


def test_a_program_called_on_a_box_that_reads_no_input_gives_its_exit_code() -> None:
    assert run(["sh", "-c", "exit 3"], {**os.environ}, LARGE).code == 3


def test_a_program_called_on_a_box_inherits_no_lock_and_ends_at_sigpipe() -> None:
    lock, other = os.pipe()
    os.set_inheritable(lock, True)
    done = run(["sh", "-c", "kill -PIPE $$; echo late"], {**os.environ})
    assert (done.code, done.output) == (128 + 13, b"")
    done = run(["sh", "-c", f": <&{lock}"], {**os.environ})
    assert done.code, "it has the file"
    for file in (lock, other):
        os.close(file)


def test_calling_a_missing_program_on_a_box_raises_an_error_and_leaks_no_file() -> None:
    before = names_in("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        run(["no-such-program"], {**os.environ})
    assert len(names_in("/proc/self/fd")) == len(before)


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
