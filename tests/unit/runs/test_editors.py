"""Editor links, settings on this machine and the box, and what a box lacks for an editor."""

import json
from pathlib import Path

import pytest

from bootstrap.runs import editors
from bootstrap.runs.editors import (
    EDITORS,
    EditorState,
    authority_of,
    folder_uri,
    lacks,
    merged_settings,
    setting_name,
    update_user_settings,
    wanted_settings,
)
from bootstrap.runs.jsonc import JsoncError, read_jsonc

CODE = EDITORS["code"]
WELL = {"libc": ["glibc 2.36"], "kernel": ["6.1.0-18-amd64"], "cxx": ["new"], "free": ["9000000"]}
WELL["tool"] = ["bash", "tar", "wget"]


def test_a_link_that_opens_an_editor_has_blanks_as_percent_20_and_capitals_as_hex() -> None:
    assert folder_uri("my-box", "/workspace/my work") == (
        "vscode-remote://ssh-remote+my-box/workspace/my%20work"
    )
    assert EDITORS["cursor"].link("my-box", "/w") == "cursor://vscode-remote/ssh-remote+my-box/w"
    assert CODE.link("me@h:22", "/w") == "vscode://vscode-remote/ssh-remote+me@h:22/w"
    assert authority_of("my-box") == "my-box"
    assert bytes.fromhex(authority_of("My-Box")) == b'{"hostName":"My-Box"}'


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"libc": ["glibc 2.27"]}, "glibc"),
        ({"libc": ["musl libc (x86_64)"]}, "glibc"),
        ({"kernel": ["4.15.0-20"]}, "kernel"),
        ({"cxx": None}, "libstdc++"),
        ({"tool": ["bash", "curl"]}, "tar"),
        ({"tool": ["bash", "tar"]}, "curl"),
        ({"noexec": ["/tmp"]}, "noexec"),
        ({"unwritable": ["/root"]}, "home"),
        ({"free": ["500000"]}, "disk"),
    ],
)
def test_the_code_command_names_what_a_box_lacks_to_run_the_editors_server(
    change: dict[str, list[str] | None], code: str
) -> None:
    assert lacks(WELL, forwards=True) == []
    facts = {name: value for name, value in {**WELL, **change}.items() if value is not None}
    assert [lack.code for lack in lacks(facts, forwards=True)] == [code]


def test_the_code_command_says_if_a_box_forbids_forwarding_or_its_answer_is_nonsense() -> None:
    assert [lack.code for lack in lacks(WELL, forwards=False)] == ["forwarding"]
    odd = {"libc": ["glibc ." + "9" * 5000], "kernel": ["\u0661.2"], "free": ["-1"]}
    assert {lack.code for lack in lacks(odd, forwards=True)} == {"libstdc++", "bash", "tar", "curl"}


def test_the_python_path_in_editor_settings_is_relative_only_inside_the_project() -> None:
    inside = wanted_settings("/workspace/hw/.venv", "/workspace/hw")
    assert inside["python.defaultInterpreterPath",] == "${workspaceFolder}/.venv/bin/python"
    beside = wanted_settings("/venv/main", "/workspace/hw")
    assert beside["python.defaultInterpreterPath",] == "/venv/main/bin/python"
    neighbour = wanted_settings("/workspace/hw2/.venv", "/workspace/hw")
    assert neighbour["python.defaultInterpreterPath",] == "/workspace/hw2/.venv/bin/python"


def test_the_code_command_adds_editor_settings_on_a_box_without_changing_the_users() -> None:
    want = wanted_settings("/w/.venv", "/w")
    text, kept = merged_settings(EditorState({}), want, {})
    assert not kept
    assert merged_settings(EditorState({}, text), want, {}) == (text, [])
    theirs = '{\n  // mine\n  "python.defaultInterpreterPath": "/opt/python",\n}\n'
    text, kept = merged_settings(EditorState({}, theirs), want, {})
    assert kept == ["python.defaultInterpreterPath"]
    assert "// mine" in text
    assert at_path(text) == "/opt/python"
    # A value that boxstrap wrote last time may be replaced.
    path = setting_name(("python.defaultInterpreterPath",))
    text, kept = merged_settings(EditorState({}, theirs), want, {path: "/opt/python"})
    assert (at_path(text), kept) == ("${workspaceFolder}/.venv/bin/python", [])
    with pytest.raises(JsoncError):
        merged_settings(EditorState({}, "{,}"), want, {})


def at_path(text: str) -> object:
    found = read_jsonc(text)
    assert isinstance(found, dict)
    return found["python.defaultInterpreterPath"]


def test_code_adds_a_box_to_the_users_editor_settings_and_keeps_the_rest(own_home: Path) -> None:
    path = CODE.user_settings()
    assert path == own_home / ".config/Code/User/settings.json"
    assert update_user_settings(CODE, "my-box") == ""
    assert not path.exists()  # nothing is written for an editor that was never started here
    path.parents[1].mkdir(parents=True)
    assert update_user_settings(CODE, "my-box") == ""
    assert json.loads(path.read_text()) == {
        "remote.SSH.remotePlatform": {"my-box": "linux"},
        "remote.SSH.defaultExtensions": ["ms-python.python"],
    }
    path.write_text(
        '{\n  "a": 1, // one\n  "remote.SSH.remotePlatform": {"my-box": "windows"},\n}\n'
    )
    path.chmod(0o600)
    assert update_user_settings(CODE, "my-box") == ""
    assert '"a": 1, // one' in path.read_text()
    assert read_jsonc(path.read_text()) == {
        "a": 1,
        "remote.SSH.remotePlatform": {"my-box": "windows"},
        "remote.SSH.defaultExtensions": ["ms-python.python"],
    }
    written = path.stat().st_mtime_ns
    assert update_user_settings(CODE, "my-box") == ""
    assert path.stat().st_mtime_ns == written
    assert path.stat().st_mode & 0o777 == 0o600


def test_code_warns_of_unreadable_editor_settings_and_changes_nothing(own_home: Path) -> None:
    path = CODE.user_settings()
    path.parent.mkdir(parents=True)
    for broken in (b'{"a": ', b'{"a": "\xff"}', b'{"remote.SSH.remotePlatform": []}'):
        path.write_bytes(broken)
        assert "left as it is. VS Code may ask" in update_user_settings(CODE, "b")
        assert path.read_bytes() == broken


def test_the_path_of_an_editors_settings_is_right_on_linux_windows_and_macos(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env = {"HOME": "/home/me"}
    assert str(EDITORS["codium"].user_settings(env)) == (
        "/home/me/.config/VSCodium/User/settings.json"
    )
    windows = CODE.user_settings(env, windows_home=Path("/mnt/c/Users/me"))
    assert str(windows) == "/mnt/c/Users/me/AppData/Roaming/Code/User/settings.json"
    monkeypatch.setattr("sys.platform", "darwin")
    mac = EDITORS["cursor"].user_settings(env)
    assert str(mac) == "/home/me/Library/Application Support/Cursor/User/settings.json"


def test_each_supported_editor_has_its_own_title_url_scheme_and_folders() -> None:
    for name, editor in EDITORS.items():
        assert editor.name == name
    for attribute in ("title", "scheme", "config", "server"):
        assert len({getattr(editor, attribute) for editor in EDITORS.values()}) == len(EDITORS)


def test_editor_settings_sent_by_a_box_are_cut_after_1_mb(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = b"libc\tglibc \x1b[31m2.36\nsum\t1 2\nsettings\n" + b"x" * 3_000_000
    monkeypatch.setattr(editors, "run_script", lambda *a, **k: answer)
    found = editors.read_editor_state(None, CODE, "/p")  # type: ignore[arg-type]
    assert found.facts["libc"] == ["glibc 2.36"]
    assert len(found.settings) <= 1_000_001
    assert found.sum == "1 2"
