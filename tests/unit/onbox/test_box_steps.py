"""The steps in Python: what their stamps hold, what they are told, and the programs they run."""

import os
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.quoted import quoted
from bootstrap.onbox.run_folder import names_in
from bootstrap.onbox.short_program import run
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.steps.lease import LeaseStep
from bootstrap.onbox.steps.preflight import PreflightStep
from bootstrap.onbox.steps.step import BoxStep, expanded, step_named
from bootstrap.onbox.steps.tools import ToolsStep
from bootstrap.steps.plan import NAMES
from bootstrap.steps.shell import Value, onbox_files
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
