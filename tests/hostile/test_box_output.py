"""Whatever a box says, the program ends in time, uses little memory and prints nothing raw.

The box is a real sshd whose every command `lying_shell.py` answers; the program is the real one.
"""

import getpass
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bootstrap.transfer.destination import PARTS
from tests.cli import User
from tests.faults.plugin import Faults
from tests.hostile import measure
from tests.hostile.lying_shell import LIES
from tests.hostile.measure import Measured
from tests.plain_environment import BIN
from tests.providers.accounts import SimulatedBox, simulated
from tests.sshd import SSHD, Sshd, keygen

pytestmark = pytest.mark.sampled(of="module")

FAULT = "a box that lies"
NOISE = "noise in the place of a log"
LONG = "a log of a run of 100 MB without a newline"
# The program takes 70 just to start; a whole log that is shown is streamed.
MIB = 250
SECONDS = 25


@dataclass
class Lying:
    """A user, and a box that lies."""

    user: User
    server: Sshd
    key: Path
    lie_file: Path

    def run(self, lie: str, *task: str, **env: str) -> Measured:
        """Run a task on a box that is seen for the first time; for a setup, one without a run."""
        shutil.rmtree(self.user.state, ignore_errors=True)
        unused = self.lie_file.with_name(f"{self.lie_file.name}.unused")
        if task[0] == "setup":
            unused.touch()
        try:
            return self.again(lie, *task, **env)
        finally:
            unused.unlink(missing_ok=True)

    def again(self, lie: str, *task: str, **env: str) -> Measured:
        """Run a task on a box that may be known already."""
        self.lie_file.write_text(lie)
        host = f"{getpass.getuser()}@127.0.0.1:{self.server.port}"
        argv = [str(BIN / "boxstrap"), *task, "--host", host, "--identity", str(self.key)]
        return measure.run(argv, self.user.place, {**self.user.env, **env})

    def tells(
        self, faults: Faults, lie: str, task: str, expected: tuple[int, str], *, again: bool = False
    ) -> None:
        """Run a task; it ends with that code and says these words, in time and in few words."""
        with faults.attempt(FAULT, at=f"{task}: {lie}") as attempt:
            seen = (self.again if again else self.run)(lie, *task.split())
            seen.must(expected[0], seconds=SECONDS, mib=MIB)
            attempt.noticed(seen.seconds)
            assert expected[1] in seen.text
            assert len(seen.text) < 60_000, "a wall of text"


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lying]:
    if not Path(SSHD).exists():
        pytest.skip("there is no sshd here: install openssh-server to test what a box says")
    folder = tmp_path_factory.mktemp("lying")
    lie_file = folder / "lie"
    lying_shell = Path(__file__).with_name("lying_shell.py")
    forced = f"ForceCommand {sys.executable} -I -S {lying_shell} {lie_file}"
    server = Sshd(folder / "sshd", options=[forced])
    user = User(folder / "home")
    user.repository()
    key = keygen(folder / "key")
    server.authorize(key)
    server.start()
    yield Lying(user, server, key, lie_file)
    server.stop()


# Lie -> exit code, and words that the user sees.
SETUP: dict[str, tuple[int, str]] = {
    "honest": (0, "step 1"),
    "probe without an end": (3, "more than 8 MiB instead of an answer"),
    "probe full of escapes": (0, "step 1"),
    "folders that a shell would run": (0, "step 1"),
    "errors without an end": (0, "step 1"),
    "lacks full of escapes": (5, "Nothing was changed"),
    "events without an end": (3, "sends more events than any setup has"),
    "events that are none": (0, "step 1"),
    "the same setup for ever": (7, "repeatedly reports"),
    "a log full of escapes": (7, "the step python failed"),
    "a verdict full of escapes": (6, "Return this box"),
    "a verdict nested 500,000 deep": (1, "can't be read"),
    "first output full of escapes": (0, "step 1"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("lie", SETUP)
def test_setup_ends_in_time_with_harmless_output_whatever_a_hostile_box_answers(
    lie: str, lying: Lying, faults: Faults
) -> None:
    lying.tells(faults, lie, "setup", SETUP[lie])


SYNC: dict[str, tuple[str, int, str]] = {
    "honest": ("", 0, "1 updated (train.py)"),
    "sync without an end": ("", 3, "more than 4 MiB"),
    "sync full of escapes": ("", 0, "1 updated (x"),
    "edits full of escapes": ("", 9, "keep.txt"),
    "branches with evil names": ("--back", 0, "nothing was made on the box"),
    "a pack without an end": ("--back", 1, "is refused"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("lie", SYNC)
def test_sync_from_a_lying_box_stores_no_git_objects_and_prints_no_control_codes(
    lie: str, lying: Lying, faults: Faults
) -> None:
    """A pack from a lying box is not kept, and the box's words are harmless."""
    option, rc, words = SYNC[lie]
    known = lying.user.state.glob("boxes/*/box.json")
    if not any('"workdir": "/' in box.read_text() for box in known):
        lying.run("honest", "setup").must(0, seconds=SECONDS, mib=MIB)
    git = lying.user.place / ".git"
    before = sorted(git.rglob("*"))
    lying.tells(faults, lie, f"sync {option}", (rc, words), again=True)
    assert sorted(git.rglob("*")) == before


# Lie -> exit code, and words that the user sees.
PULL: dict[str, tuple[int, str]] = {
    "honest": (0, "1 file, 2 B"),
    "results that lie elsewhere": (9, "has an empty part, or . or .. as one"),
    "results full of escapes": (9, "has a control character in its name"),
    "results without an end": (3, "more than 250,000 files"),
    "words in the place of frames": (3, "not part of a transfer"),
    "a record full of escapes": (0, "1 file, 2 B"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("lie", PULL)
def test_pull_from_a_lying_box_writes_only_honest_results_and_records(
    lie: str, lying: Lying, faults: Faults
) -> None:
    """Only the honest file, the manifest, the run's record and boxstrap's state are written."""
    user, owned = lying.user, Path("/tmp/owned")
    for folder in (user.place / "boxstrap-results", user.state):
        shutil.rmtree(folder, ignore_errors=True)
    before = {*_below(user.place), *_below(user.home)}
    lying.tells(faults, lie, "pull", PULL[lie])
    made = {path for path in {*_below(user.place), *_below(user.home)} - before if path.is_file()}
    named = {
        path.name for path in made if "boxstrap-results" in str(path) and PARTS not in path.parts
    }
    is_of_record = "record" in lie or "log" in lie
    is_whole = lie == "honest" or is_of_record
    record = {"log", "times", "samples", "run.json"}
    assert named <= {".gitignore", "boxstrap-manifest.json", *record, *(["a"] if is_whole else [])}
    assert ("a" in named) == is_whole
    for path in made:
        if path.name in record and path.parent.name == "boxstrap-run":
            assert not {0x1B, 0x9B, 0x07} & {ord(each) for each in path.read_text()}
    assert all(path.is_relative_to(user.state) or "boxstrap-results" in str(path) for path in made)
    assert not owned.exists()
    receipts = [json.loads(path.read_text()) for path in made if "receipts" in path.parts]
    covered = [name for receipt in receipts for name in receipt["files"]]
    assert covered == ["out/a"] * is_whole


ANOTHER_ID = "another box's id"
# Lie -> exit code, and words that the user sees.
DOWN: dict[str, tuple[int, str]] = {
    "honest": (0, "nothing on it would be lost"),
    "results that lie elsewhere": (9, "has an empty part, or . or .. as one"),
    "a manifest of its own": (9, "is a name of boxstrap's own"),
    "trees without an end": (3, "did not say what was made"),
    "trees full of escapes": (9, "edited (1)"),
    "trees of which git can tell nothing": (9, "git can't tell"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("lie", DOWN)
def test_down_never_says_that_nothing_would_be_lost_when_it_asks_a_lying_box(
    lie: str, lying: Lying, faults: Faults
) -> None:
    """No lie here makes `down` say that nothing would be lost; a box can only hide things."""
    shutil.rmtree(lying.user.place / "boxstrap-results", ignore_errors=True)
    lying.tells(faults, lie, "down", DOWN[lie])


def test_down_destroys_nothing_if_a_box_claims_the_id_of_another_rented_box(
    lying: Lying, faults: Faults
) -> None:
    """Even with every option that allows more."""
    with simulated("runpod") as account, faults.attempt(FAULT, at=f"down: {ANOTHER_ID}"):
        account.boxes = [SimulatedBox("victim", address="10.9.8.7", port=2222)]
        words = ("down", "--profile", "runpod", "--discard", "--stop-runs")
        seen = lying.run(ANOTHER_ID, *words, **account.environment())
        assert "has runpod:victim at 10.9.8.7:2222" in seen.must(9, seconds=SECONDS, mib=MIB).text
        assert (account.destroyed, account.changed) == ([], [])


def _below(folder: Path) -> Iterator[Path]:
    return folder.rglob("*")


OTHERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("logs",): ("a log of a run full of escapes", "a log of a run that is not UTF-8"),
    ("logs", "--json"): ("a log of a run full of escapes",),
    ("status",): (
        *("probe full of escapes", "probe that is not UTF-8"),
        "ends of logs full of escapes",
    ),
    ("status", "--json"): ("probe full of escapes", "probe with 2,000 runs"),
    ("setup", "--json"): (
        "probe full of escapes",
        "a log full of escapes",
        "events that are none",
        "a verdict full of escapes",
    ),
}


@pytest.mark.parametrize(
    ("task", "lie"), [(task, lie) for task, lies in OTHERS.items() for lie in lies]
)
def test_every_other_command_ends_in_time_with_valid_json_on_a_lying_box(
    task: tuple[str, ...], lie: str, lying: Lying, faults: Faults
) -> None:
    with faults.attempt(FAULT, at=f"{' '.join(task)}: {lie}") as attempt:
        rc = SETUP.get(lie, (0, ""))[0] if task[0] == "setup" else 0
        seen = lying.run(lie, *task).must(rc, seconds=SECONDS, mib=MIB)
        attempt.noticed(seen.seconds)
        if "--json" in task:
            assert all(isinstance(json.loads(line), dict) for line in seen.out.splitlines())
            assert rc or seen.err == b""


def test_commands_printed_after_a_setup_can_be_pasted_though_a_box_names_folders_as_shell_code(
    lying: Lying, tmp_path: Path
) -> None:
    """The commands printed at a setup's end contain folder names that the box reports."""
    (lying.user.place / "boxstrap.yaml").write_text(
        "version: 1\ngpu: {require: false}\ntrain: {command: python train.py, results: [out/]}\n"
    )
    config = str(tmp_path.with_name("config"))
    lie = "folders that a shell would run"
    said = lying.run(lie, "setup", BOXSTRAP_SSH_CONFIG=config).text
    typed = re.findall(r"^  (?:[a-z]+|VS Code) +((?:ssh|scp|boxstrap) .*)$", said, re.MULTILINE)
    assert {line.split()[0] for line in typed} == {"ssh", "scp", "boxstrap"}, said
    assert [line for line in typed if line.startswith("boxstrap pull ")]
    quiet = "ssh() { :; }; scp() { :; }; boxstrap() { :; }\n"  # only how the line parses counts
    for line in typed:
        subprocess.run(["bash", "-c", quiet + line], cwd=tmp_path, check=True)
        assert list(tmp_path.iterdir()) == [], line


def test_logs_gives_up_with_exit_3_when_a_box_sends_endless_noise_as_log(
    lying: Lying, faults: Faults
) -> None:
    with faults.attempt(FAULT, at="logs: noise without an end"):
        seen = lying.run(NOISE, "logs").must(3, seconds=SECONDS, mib=MIB)
        assert "more than 8 MiB" in seen.text


def test_logs_prints_a_line_of_100_mb_whole_and_json_cuts_it_into_marked_parts(
    lying: Lying, faults: Faults
) -> None:
    size = 100 * 1024 * 1024
    with faults.attempt(FAULT, at=f"logs: {LONG}"):
        plain = lying.run(LONG, "logs").must(0, seconds=SECONDS, mib=MIB)
        assert (len(plain.out), plain.out.strip(b"x")) == (size, b"")
    with faults.attempt(FAULT, at=f"logs --json: {LONG}"):
        told = lying.run(LONG, "logs", "--json").must(0, seconds=SECONDS, mib=MIB)
        objects = [json.loads(line) for line in told.out.splitlines()]
        objects = [each for each in objects if "line" in each]
        assert sum(len(each["line"]) for each in objects) == size
        *cut, last = [each.get("cut", False) for each in objects]
        assert (all(cut), last) == (True, False)


def test_each_false_answer_of_the_hostile_test_box_is_used_in_the_test_of_some_command() -> None:
    told = {*SETUP, *SYNC, *PULL, *DOWN, *(lie for lies in OTHERS.values() for lie in lies)}
    assert set(LIES) - told == {NOISE, LONG, ANOTHER_ID}
