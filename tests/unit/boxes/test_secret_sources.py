"""Secrets: from the environment, a `.env` or a command; in no script; redacted where they show."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.boxes.secrets import (
    ask_command,
    commands_file,
    find_sources,
    fingerprint,
    identity_of,
    is_same,
    packed,
    read_dotenv,
    redactor_of,
    take_secrets,
)
from bootstrap.errors import BoxstrapError, StepFailedError, UsageError
from bootstrap.link import KnownBox
from bootstrap.paths import state_dir
from bootstrap.profile.load import read_profile
from bootstrap.setup import SetupRequest
from bootstrap.setup.payload import build_payload
from bootstrap.tasks.command import Call, _guarded
from bootstrap.value import document
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


NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
CANARY = "canary-5f0c7e1a'$(x)`\n\"é"


def test_all_missing_secrets_are_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        take_secrets(["A", "B", "C"], environment={"B": "x", "C": ""})
    assert "A, C" in caught.value.what
    assert "export A=" in caught.value.hint


def test_only_secrets_that_the_profile_names_are_sent_to_a_box() -> None:
    assert take_secrets(["B"], environment={"A": "1", "B": "2"}).values == {"B": "2"}


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_secrets_packed_for_a_box_unpack_to_the_same_values(values: dict[str, str]) -> None:
    parts = packed(values).decode().split("\0")
    assert parts.pop() == ""
    assert dict(part.partition("=")[::2] for part in parts) == values


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), VALUES)
def test_the_fingerprint_of_secrets_changes_if_a_value_changes_or_a_secret_is_added(
    values: dict[str, str], other: str
) -> None:
    assert fingerprint(values) == fingerprint(dict(values))
    for name, value in values.items():
        changed = fingerprint({**values, name: other})
        assert (changed == fingerprint(values)) is (other == value)
    assert fingerprint({**values, "ANOTHER_ONE": other}) != fingerprint(values)


def test_the_same_secrets_get_another_fingerprint_with_another_private_key_file_here() -> None:
    before = fingerprint({"A": "guess"})
    sources = [take_secrets(["A"], environment={"A": each}).sources[0] for each in ("guess", "b")]
    held = identity_of(sources[0])
    assert [is_same(each, held) for each in sources] == [True, False]
    assert fingerprint({"A": "guess"}) == before
    key = state_dir() / "secrets.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    key.unlink()
    assert fingerprint({"A": "guess"}) != before
    assert is_same(sources[0], held) is None  # another machine's, which can't be compared
    assert take_secrets(["A"], environment={"A": "guess"}).describe({"A": held}) == "A"
    assert fingerprint({}) == ""


@pytest.mark.parametrize("left", [b"", b"short"])
def test_a_cut_off_or_empty_key_file_of_secrets_is_replaced_by_a_new_key(left: bytes) -> None:
    fingerprint({"A": "guess"})
    key = state_dir() / "secrets.key"
    key.write_bytes(left)
    made = fingerprint({"A": "guess"})
    assert len(key.read_bytes()) == 32
    assert fingerprint({"A": "guess"}) == made
    key.write_bytes(b"\0" * 32)
    assert fingerprint({"A": "guess"}) != made


def script(user: User, value: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RIG_SECRET", value)
    loaded = read_profile(None, repo_root=user.place).for_provider("vast")
    payload = build_payload(loaded, SetupRequest(repo=user.place), local=False)
    assert payload.secrets.values == {"RIG_SECRET": value}
    return payload.script


def test_a_secret_is_neither_in_the_script_nor_in_any_file_at_home(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.repository(boxstrap__yaml="version: 1\nsecrets: [RIG_SECRET]\n")
    one = script(user, CANARY, monkeypatch)
    assert "canary" not in one
    assert "SECRETS_ID='" in one
    assert script(user, CANARY, monkeypatch) == one
    assert script(user, CANARY + "x", monkeypatch) != one
    kept = [path for path in Path(user.home).rglob("*") if path.is_file()]
    holding = [path for path in kept if b"canary" in path.read_bytes()]
    assert holding == []


def test_setup_with_a_missing_secret_stops_before_it_renders_a_script(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.repository(boxstrap__yaml="version: 1\nsecrets: [RIG_SECRET]\n")
    monkeypatch.delenv("RIG_SECRET", raising=False)
    loaded = read_profile(None, repo_root=user.place).for_provider("vast")
    with pytest.raises(UsageError, match="RIG_SECRET"):
        build_payload(loaded, SetupRequest(repo=user.place), local=False)


PEM = "-----BEGIN KEY-----\n" + "\n".join(f"line{n}" + "Ab3/" * 14 for n in range(6)) + "\nxY==\n"


def box(*names: str) -> KnownBox:
    return KnownBox("gpu", "gpu", secrets=names)


def test_each_single_line_of_a_private_key_is_redacted_in_text() -> None:
    redactor = redactor_of([box("KEY")], environment={"KEY": PEM})
    for line in PEM.splitlines()[1:-1]:
        assert redactor.text(f"> {line} <") == "> [KEY hidden] <"
    assert redactor.text(PEM.strip()) == "[KEY hidden]"
    crossed = redactor.text(PEM.replace("\n", "\r\n"))
    assert not any(line in crossed for line in PEM.splitlines()[:-1])
    # A program may turn the escaped newlines back into real ones.
    packed = redactor_of([box("KEY")], environment={"KEY": PEM.replace("\n", "\\n")})
    assert "Ab3/" not in packed.text(PEM)


def test_lines_of_a_secret_that_are_too_short_are_not_redacted_from_a_log() -> None:
    redactor = redactor_of(
        [box("DOC")], environment={"DOC": '{\n"a": 1,\n"private": "s3cr3t-value"\n}'}
    )
    assert redactor.text('"a": 1, { }') == '"a": 1, { }'
    assert redactor.text('"private": "s3cr3t-value"') == "[DOC hidden]"


@pytest.mark.parametrize("value", [None, "", "abc"])
def test_text_is_unchanged_if_a_secret_is_missing_or_too_short_to_redact(value: str | None) -> None:
    environment = {} if value is None else {"KEY": value}
    assert redactor_of([box("KEY")], environment=environment).text("abc") == "abc"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StepFailedError("hf_abcdef12 leaked", hint="hf_abcdef12"), 7),
        (RuntimeError("hf_abcdef12"), 1),
    ],
)
def test_secrets_are_redacted_from_errors_and_from_the_reports_of_crashes(
    own_home: Path, error: Exception, code: int
) -> None:
    def body(call: Call) -> None:
        call.redact = redactor_of([box("HF")], environment={"HF": "hf_abcdef12"}).text
        raise error

    ended = _guarded(body, Call(), "")
    assert ended.code == code
    assert "hf_abcdef12" not in ended.message
    if isinstance(error, BoxstrapError):
        assert "hf_abcdef12" not in f"{error}{document(error)}"
        assert "[HF hidden] leaked" in ended.message
    else:
        (report,) = (own_home / ".local/state/boxstrap/reports").iterdir()
        assert "hf_abcdef12" not in report.read_text()
        assert "RuntimeError: [HF hidden]" in report.read_text()
