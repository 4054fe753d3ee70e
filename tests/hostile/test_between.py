"""A man in the middle: the pinned host key is enforced, and another key gets nothing."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import paramiko
import pytest

from tests.faults.plugin import Faults
from tests.hostile.between import Between
from tests.main_job.rented import Rented
from tests.main_job.slow import await_step, go_on, slow
from tests.sshd import keygen

pytestmark = pytest.mark.sampled(of="module")

FAULT = "somebody in between"
TOKEN = "hf_" + "k" * 34
SECRET = ("--set", "secrets=[HF_TOKEN]")
KEYS: dict[str, Callable[[Path], paramiko.PKey]] = {
    "another key": lambda file: paramiko.Ed25519Key.from_private_key_file(str(keygen(file))),
    "another type of key": lambda _: paramiko.RSAKey.generate(2048),
}
TASKS = (
    ("status",), ("logs", "-f"), ("plan",), ("doctor",), ("stop",), ("top", "--looks", "1"),
    ("code",), ("verify",), ("setup", *SECRET), ("exec", "--", "true"),
)  # fmt: skip


@pytest.fixture
def between(rented: Rented) -> Iterator[Between]:
    made = Between(rented.box.address)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KEYS)
def test_setup_sends_nothing_and_exits_with_4_when_the_host_key_changes_during_it(
    kind: str, rented: Rented, between: Between, tmp_path: Path, faults: Faults
) -> None:
    """The link is cut and comes back to another key; the setup continues on its box."""
    slow(rented)
    with closing(rented.begin("setup", *SECRET, host=between.host, HF_TOKEN=TOKEN)) as going:
        await_step(rented, "python")
        with faults.attempt(FAULT, f"{kind} on the way back") as attempt:
            between.pose(KEYS[kind](tmp_path / "key"))
            done = going.end().must(4)
            attempt.noticed(at_most=20)
            assert "its host key changed" in done.err
            assert (between.posed, between.got) == (1, [])
    go_on(rented)
    between.pose(None)
    again = rented.run("setup", *SECRET, host=between.host, HF_TOKEN=TOKEN).must(0)
    assert "first contact" not in again.text
    assert rented.runs() == ["train-1"]


def test_a_host_key_that_changes_between_two_commands_is_refused_by_each_command(
    rented: Rented, between: Between, tmp_path: Path, faults: Faults
) -> None:
    """No task, and no program that a task starts, sends it anything."""
    rented.user.repository()
    rented.run("setup", host=between.host).must(0)
    between.pose(KEYS["another key"](tmp_path / "key"))
    for number, (task, *words) in enumerate(TASKS, 1):
        with faults.attempt(FAULT, f"before {task}") as attempt:
            refused = rented.run(task, *words, host=between.host, HF_TOKEN=TOKEN).must(4)
            attempt.noticed(refused.seconds, at_most=20)
            assert (between.posed, between.got) == (number, [])


def test_the_first_setup_is_refused_when_the_box_has_another_key_than_expected_by_host_key(
    rented: Rented, between: Between, tmp_path: Path, faults: Faults
) -> None:
    """A man in the middle from the start is noticed by --host-key, or once it is gone."""
    rented.user.repository()
    between.pose(KEYS["another key"](tmp_path / "key"))
    expect = ("--host-key", rented.box.known_fingerprint)
    with faults.attempt(FAULT, "first contact, --host-key"):
        rented.run("setup", *SECRET, *expect, host=between.host, HF_TOKEN=TOKEN).must(4)
        assert (between.posed, between.got) == (1, [])
    rented.run("status", host=between.host).must(3)  # trusted: accepts logins, answers nothing
    between.pose(None)
    before = rented.listing()
    with faults.attempt(FAULT, "gone after a first contact"):
        rented.run("setup", *SECRET, host=between.host, HF_TOKEN=TOKEN).must(4)
        assert rented.listing() == before
    assert TOKEN not in "".join(between.got)
