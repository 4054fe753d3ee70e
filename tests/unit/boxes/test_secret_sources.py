"""Sources of secrets: the environment, a `.env` that git ignores, a command of the user's."""

import os
from pathlib import Path

import pytest

from bootstrap.boxes.secrets import (
    ask_command,
    commands_file,
    find_sources,
    fingerprint,
    read_dotenv,
    take_secrets,
)
from bootstrap.errors import UsageError
from tests.cli import User

READ = {
    "A=1\nB=x=y#z": {"A": "1", "B": "x=y#z"},
    "export A = q # why\r\n\r\n# B=2\r\nB=\r\n": {"A": "q", "B": ""},
    "A='a\n#b'\nOTHER=${A} it's ours\nB=\"x\\ny\\\"$\" # c": {"A": "a\n#b", "B": 'x\ny"$'},
    "\ufeffA='${X} `y`'": {"A": "${X} `y`"},
    "  A\t=\t'q'\t\n": {"A": "q"},
    "A=p$5": {"A": "p$5"},
}
REFUSED = {
    "\nA=${HOME}": (2, "differently"),
    "A=x$(id)": (1, "differently"),
    'A="`id`"': (1, "differently"),
    "A=two words": (1, "differently"),
    "A=it's": (1, "differently"),
    "A=back\\slash": (1, "differently"),
    "A=#x": (1, "differently"),
    "B='1\n2'\njust words": (3, "not NAME=VALUE"),
    "A='open": (1, "not NAME=VALUE"),
    "A='x'y": (1, "not NAME=VALUE"),
    "A=1\nB=2\nA=3": (3, "given twice"),
}


@pytest.mark.parametrize("text", READ)
def test_an_env_file_line_that_all_programs_read_alike_gives_its_secret(text: str) -> None:
    assert read_dotenv(text, {"A", "B"}, ".env") == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_env_file_lines_that_programs_read_differently_are_refused_by_line_number(
    text: str,
) -> None:
    line, what = REFUSED[text]
    with pytest.raises(UsageError, match=what) as caught:
        read_dotenv(text, {"A", "B"}, ".env")
    assert caught.value.where == f".env:{line}"
    assert "two words" not in caught.value.text()


def test_a_malformed_env_file_line_is_no_error_if_its_name_is_not_among_the_secrets() -> None:
    assert read_dotenv("X=${Y} it's\nX=2\nA=1", {"A"}, ".env") == {"A": "1"}


def commands(text: str, mode: int = 0o600) -> None:
    file = commands_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def test_a_secret_comes_from_the_environment_then_the_env_file_then_a_command(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    commands("A: echo command\nB: echo command\nC: echo command\n")
    found = find_sources(["A", "B", "C", "D"], tmp_path, {"A": "environment", "B": ""})
    assert [(each.name, each.origin, each.value) for each in found] == [
        ("A", "environment", "environment"),
        ("B", ".env", "file"),
        ("C", "command", ""),
    ]
    with pytest.raises(UsageError, match="not in your environment: D") as caught:
        take_secrets(["A", "D"], tmp_path, {"A": "x"})
    assert ".env beside the profile" in caught.value.hint
    assert str(commands_file()) in caught.value.hint


def test_an_env_file_that_git_does_not_ignore_is_refused(user: User) -> None:
    repository = user.repository()
    file = repository.root / ".env"
    file.write_text("A=canary-value\n")
    with pytest.raises(UsageError, match="git does not ignore") as caught:
        find_sources(["A"], repository.root, {})
    assert ".gitignore" in caught.value.hint
    assert "canary" not in caught.value.text()
    # It is not read at all for secrets that the environment has, nor for other names.
    assert find_sources(["A"], repository.root, {"A": "x"})
    assert find_sources(["B"], repository.root, {}) == []
    (repository.root / ".gitignore").write_text(".env\n")
    (found,) = find_sources(["A"], repository.root, {})
    assert found.value == "canary-value"
    # A tracked file is not ignored, whatever .gitignore says.
    repository.git("add", "-f", ".env")
    with pytest.raises(UsageError, match="git does not ignore"):
        find_sources(["A"], repository.root, {})


@pytest.mark.parametrize("kind", ["link", "pipe", "large"])
def test_an_env_file_that_is_a_symlink_a_pipe_or_too_large_is_refused(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / ".env"
    if kind == "link":
        (tmp_path / "credentials").write_text("A=canary-value\n")
        file.symlink_to("credentials")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.write_text("A=1\n" + "#" * 70_000)
    with pytest.raises(UsageError, match=r"link|not a file|64 KiB"):
        find_sources(["A"], tmp_path, {})


def test_a_secret_commands_file_that_other_users_can_write_is_refused(tmp_path: Path) -> None:
    commands("A: echo x\n", 0o620)
    with pytest.raises(UsageError, match="other users can write") as caught:
        find_sources(["A"], None, {})
    assert "chmod go-w" in caught.value.hint
    commands("A: [echo, x]\n")
    with pytest.raises(UsageError, match="a command is expected"):
        find_sources(["A"], None, {})


def test_a_secret_command_runs_on_this_machine_only_when_the_box_lacks_its_value(
    own_home: Path, tmp_path: Path
) -> None:
    commands("A: pwd >>ran; printf 'value-of-a\\n\\n'\n")
    secrets = take_secrets(["A", "B"], tmp_path, {"B": "value-of-b"})
    assert secrets.values == {"B": "value-of-b"}
    before, ids = secrets.id, dict(zip(secrets.names, secrets.ids, strict=True))
    assert not secrets.ask_commands(ids)
    assert secrets.describe(ids) == "A (the box has it; its command is not asked), B"
    assert not (own_home / "ran").exists()
    # The box has another value, for example from somebody else's command.
    assert secrets.ask_commands({"A": fingerprint({"A": "else"})})
    assert secrets.values["A"] == "value-of-a"
    assert (own_home / "ran").read_text() == f"{own_home.resolve()}\n"
    assert (secrets.id, secrets.names) == (before, ("A", "B"))
    commands("A: echo another\n")
    assert take_secrets(["A", "B"], tmp_path, {"B": "value-of-b"}).id != before
    assert take_secrets(["B"], None, {"B": "value-of-b"}).id == fingerprint({"B": "value-of-b"})


@pytest.mark.parametrize(
    ("command", "what"),
    [("exit 3", "ended with 3"), ("true", "printed nothing"), ("printf 'a\\0b'", "none has")],
)
def test_a_secret_command_without_a_usable_value_is_wrong_usage_and_the_error_names_the_secret(
    command: str, what: str
) -> None:
    commands(f'A: "{command}"\n'.replace("\\", "\\\\"))
    (source,) = find_sources(["A"], None, {})
    with pytest.raises(UsageError, match=what) as caught:
        ask_command(source)
    assert caught.value.where.endswith("commands.yaml: A")
