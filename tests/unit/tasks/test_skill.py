"""The skill for coding agents: its tables are whole, its commands are real, and it is installed."""

import re
from pathlib import Path

import pytest

from bootstrap.errors import EXIT_CODES, UsageError
from bootstrap.profile.load import read_profile
from bootstrap.providers import NAMES
from bootstrap.tasks import NAMES as TASKS
from bootstrap.tasks import find
from bootstrap.tasks.effects import (
    ALWAYS,
    EFFECTS,
    FOLDERS,
    NEXT,
    NOT_OBEYED,
    install_skill,
    skill_text,
)
from bootstrap.tasks.help import command_help
from bootstrap.tasks.parser import parse_command
from tests.cli import User
from tests.docs.test_docs import commands_in

LONGEST = 250


def test_each_exit_code_and_each_command_has_its_row_in_the_agent_skill() -> None:
    assert set(NEXT) == {0, *EXIT_CODES.values()}
    assert sorted(EFFECTS) == sorted(TASKS)
    for name, effect in EFFECTS.items():
        options = {option.name for option in find(name).options}
        assert {*effect.asks, *filter(None, [effect.except_with])} - {ALWAYS} <= options, name
        assert bool(effect.does) or effect.kind in ("reads", "changes"), name
        assert effect.sentence in " ".join(command_help(find(name)).split())


def test_the_agent_skill_is_short_and_names_only_existing_commands_and_options() -> None:
    text = skill_text()
    assert len(text.splitlines()) <= LONGEST
    front = text.partition("---\n")[2].partition("---\n")[0]
    assert re.search(r"^name: boxstrap$", front, re.MULTILINE)
    description = re.search(r"^description: (.*)$", front, re.MULTILINE)
    assert description
    assert len(description[1]) <= 1024
    assert not re.search(r"\{(exits|costs|reads|providers)\}", text)
    commands = [words for words in commands_in(text) if not words[0].startswith(("-", "COMMAND"))]
    assert len(commands) >= 25
    for words in commands:
        parse_command(find(words[0]), words[1 : words.index("--") if "--" in words else None])


def test_the_agent_skill_contains_each_sentence_that_agents_were_found_to_need() -> None:
    text = " ".join(skill_text().split())
    assert NOT_OBEYED in text
    for words in (
        "`up` also needs `--consent DIGEST`",
        "`consent` of `up --dry-run --json` lists it",
        "boxstrap up --provider vast --max-price 0.60",
        f"`--provider` ({', '.join(NAMES)})",
        "`gpu.name` is a card as shops call it (`RTX 4090`, `A100`, `A100 80GB`, `H100`)",
        "**A run's results are its own**",
        "then as above: wait, pull, down",
        "`boxstrap pull --run RUN --without PATH` lets go of that file alone",
        "`metric`, the last line of the log that has a number such as a loss",
        "`error.command` is your whole command with it",
    ):
        assert words in text, words


def test_the_example_profile_in_the_agent_skill_is_valid(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", skill_text(), re.DOTALL)
    assert block
    (tmp_path / "boxstrap.yaml").write_text(block[1])
    loaded = read_profile(str(tmp_path / "boxstrap.yaml"))
    assert loaded.profile.train
    assert loaded.profile.train.results == ["out/"]


def test_the_agent_skill_is_installed_where_agents_look_for_it(user: User) -> None:
    assert user.run("skill").must(0).out == skill_text()
    assert user.run("skill", "--json").must(0).json()["text"] == skill_text().splitlines()
    files = user.run("skill", "--install", "--json").must(0).json()["written"]
    assert files == [str(user.home / folder / "boxstrap/SKILL.md") for folder in FOLDERS]
    here = user.repository().root
    for _ in range(2):  # an update replaces it
        user.run("skill", "--install", "--repo", str(here)).must(0)
    for base in (user.home, here):
        for folder in FOLDERS:
            assert (base / folder / "boxstrap/SKILL.md").read_text() == skill_text()
    assert "add --install" in user.run("skill", "--repo", str(here)).must(2).err


@pytest.mark.parametrize("link", [".claude", ".claude/skills", ".agents/skills/boxstrap/SKILL.md"])
@pytest.mark.parametrize("is_there", [True, False])
def test_installing_the_agent_skill_follows_no_symlink_out_of_the_repository(
    tmp_path: Path, link: str, is_there: bool
) -> None:
    repo, outside = tmp_path / "repo", tmp_path / "outside"
    (repo / link).parent.mkdir(parents=True)
    (repo / link).symlink_to(outside)
    if is_there:
        outside.write_text("mine") if link.endswith(".md") else outside.mkdir()
    with pytest.raises(UsageError, match="a link leads out of the repository"):
        install_skill(repo)
    assert outside.exists() == is_there
    assert not outside.is_dir() or not [*outside.iterdir()]
    assert not outside.is_file() or outside.read_text() == "mine"
