"""`boxstrap help TOPIC`: from the tables of the code, for people who look something up."""

from pathlib import Path

import pytest

from bootstrap.profile import PROFILE
from bootstrap.steps.event_codes import CODES
from bootstrap.tasks import NAMES
from bootstrap.tasks.completion import candidates
from bootstrap.tasks.effects import NEXT
from bootstrap.tasks.help import TOPICS, find_topic
from tests.cli import User

ROOT = Path(__file__).parents[3]


def test_help_exit_codes_and_help_profile_list_every_exit_code_and_profile_key() -> None:
    assert [name for name, _ in find_topic("exit-codes")[1]] == [str(code) for code in NEXT]
    assert [name for name, _ in find_topic("profile")[1]] == [key for key, _ in PROFILE.leaves()]
    assert [name for name in TOPICS if len(find_topic(name)[1]) < 5] == []
    assert not {*NAMES} & set(TOPICS)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpu.name", "The GPU's model"),
        ("rent", "Dollars an hour"),
        ("disk-full", "rent a larger disk"),
        ("driver", "driver"),
        ("gp", ""),
    ],
)
def test_help_finds_a_profile_key_error_code_or_setting_by_name(name: str, says: str) -> None:
    rows = find_topic(name)[1]
    assert bool(rows) == bool(says)
    assert any(says in text for _, text in rows) == bool(says)


def test_each_environment_variable_in_help_is_used_by_the_program() -> None:
    files = [*(ROOT / "bootstrap").rglob("*.py"), *(ROOT / "templates").rglob("*.*")]
    own = ROOT / "bootstrap/tasks/help.py"
    used = "".join(file.read_text(errors="replace") for file in files if file != own)
    names = [name for name, _ in find_topic("variables")[1]]
    assert len(names) > 8
    assert [name for name in names if name.removeprefix("BOXSTRAP_") not in used] == []


def test_help_on_the_beginning_of_a_word_is_of_that_word_unless_two_begin_so(
    user: User,
) -> None:
    assert user.run("help", "exit").must(0).out == user.run("help", "exit-codes").must(0).out
    assert find_topic("pro") == ("", [])  # of two
    assert {"exit-codes", "setup"} <= set(candidates("boxstrap help "))
    assert len(CODES) > 50


def test_tab_offers_no_step_that_option_redo_refuses() -> None:
    offered = [set(candidates(f"boxstrap {typed} ")) for typed in ("logs --step", "setup --redo")]
    assert offered[0] - offered[1] == {"train"}
