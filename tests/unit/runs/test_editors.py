"""Editor links, settings here and on the box changed in one place only, and what a box lacks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.link import LocalWire
from bootstrap.runs import editors
from bootstrap.runs.editors import (
    EDITORS,
    EditorState,
    authority_of,
    folder_uri,
    lacks,
    merged_settings,
    read_editor_state,
    setting_name,
    update_user_settings,
    wanted_settings,
    write_settings,
)
from bootstrap.runs.jsonc import JsoncError, read_jsonc, value_at, with_item, with_value

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


@pytest.fixture
def wire() -> Iterator[LocalWire]:
    made = LocalWire()
    yield made
    made.close()


def test_asking_a_box_if_it_suits_an_editor_writes_no_file_and_gives_libc_tools_and_disk(
    wire: LocalWire, own_home: Path
) -> None:
    found = read_editor_state(wire, CODE, "/bin/sh")
    assert found.has_python  # any program will do here
    assert found.facts["libc"][0].startswith("glibc ")
    assert {"bash", "tar"} <= set(found.facts["tool"])
    assert int(found.facts["free"][0]) > 0
    assert (found.settings, found.sum) == ("", "")
    assert not read_editor_state(wire, CODE, "/nowhere/python").has_python
    assert list(own_home.iterdir()) == []
    assert "glibc" not in [lack.code for lack in lacks(found.facts, forwards=True)]


def test_an_editors_settings_on_a_box_are_not_overwritten_if_they_changed_since_they_were_read(
    wire: LocalWire, own_home: Path
) -> None:
    path = own_home / CODE.machine_settings
    assert write_settings(wire, CODE, read_editor_state(wire, CODE, "x"), '{"a": "ä"}\n')
    assert path.read_text() == '{"a": "ä"}\n'
    path.chmod(0o640)
    found = read_editor_state(wire, CODE, "x")
    assert found.settings == '{"a": "ä"}\n'
    assert write_settings(wire, CODE, found, "{}\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert not write_settings(wire, CODE, found, "too late")
    assert path.read_text() == "{}\n"
    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]


def test_writing_editor_settings_on_a_box_changes_neither_a_symlink_to_them_nor_odd_bytes(
    wire: LocalWire, own_home: Path
) -> None:
    path = own_home / CODE.machine_settings
    path.parent.mkdir(parents=True)
    (own_home / "real").write_bytes(b'// caf\xe9\n{"a": 1}')
    path.symlink_to("../../../real")
    found = read_editor_state(wire, CODE, "x")
    assert write_settings(wire, CODE, found, found.settings.replace("1", "2"))
    assert (own_home / "real").read_bytes() == b'// caf\xe9\n{"a": 2}'
    assert path.is_symlink()


FILE = """\
// my settings
{
    "editor.fontSize": 14, // big
    /* remote */
    "remote.SSH.remotePlatform": {
        "old": "linux"
    },
    "url": "https://example.org/*not a comment*/", // "quoted": 1,
}
"""


def test_changing_editor_settings_with_comments_keeps_every_comment() -> None:
    assert with_value(FILE, ("a.b",), True) == FILE.replace(
        ' // "quoted": 1,\n', ' // "quoted": 1,\n    "a.b": true\n'
    )
    inner = with_value(FILE, ("remote.SSH.remotePlatform", "my-box"), "linux")
    assert inner == FILE.replace('"old": "linux"\n', '"old": "linux",\n        "my-box": "linux"\n')
    assert with_value(FILE, ("editor.fontSize",), 15) == FILE.replace("14,", "15,")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n    "k": {\n        "n": 1\n    }\n}\n'),
        ("// nothing yet", '// nothing yet\n{\n    "k": {\n        "n": 1\n    }\n}\n'),
        ("{}", '{\n    "k": {\n        "n": 1\n    }\n}'),
        ("{\n}\n", '{\n    "k": {\n        "n": 1\n    }\n}\n'),
        ("{ // why\n}\n", '{ // why\n    "k": {\n        "n": 1\n    }\n}\n'),
        ('{"a": 1}', '{"a": 1, "k": {"n": 1}}'),
        ('{"a": 1,}', '{"a": 1, "k": {"n": 1}}'),
        ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"k": {\n\t\t"n": 1\n\t}\n}'),
        ('{\n  "a": 1 // one\n}', '{\n  "a": 1, // one\n  "k": {\n    "n": 1\n  }\n}'),
        ('{\n  "k": {}\n}', '{\n  "k": {\n    "n": 1\n  }\n}'),
        ('{\n\t"k": {}\n}', '{\n\t"k": {\n\t\t"n": 1\n\t}\n}'),
        ('{\r\n  "a": 1\r\n}', '{\r\n  "a": 1,\r\n  "k": {\r\n    "n": 1\r\n  }\r\n}'),
        ('\ufeff{"a": 1}', '\ufeff{"a": 1, "k": {"n": 1}}'),
        ('{"k": {"n": 2}, "k": {"n": 3}}', '{"k": {"n": 2}, "k": {"n": 1}}'),
    ],
)
def test_a_nested_key_is_added_to_a_json_file_in_its_style(before: str, after: str) -> None:
    assert with_value(before, ("k", "n"), 1) == after
    assert value_at(read_jsonc(after), ("k", "n")) == 1


def test_an_item_is_appended_to_a_list_of_editor_settings_only_once() -> None:
    assert with_item('{"l": ["a"]}', ("l",), "b") == '{"l": ["a", "b"]}'
    assert with_item('{"l": ["a"]}', ("l",), "a") == '{"l": ["a"]}'
    assert with_item('{"l": []}', ("l",), "a") == '{"l": [\n    "a"\n]}'
    spread = '{\n  "l": [\n    "a", // first\n  ]\n}'
    assert with_item(spread, ("l",), "b") == '{\n  "l": [\n    "a", // first\n    "b"\n  ]\n}'
    assert read_jsonc(with_item("", ("l",), "a")) == {"l": ["a"]}


@pytest.mark.parametrize(
    "broken",
    [
        "{", "[1, 2", '{"a" 1}', '{"a": 1 "b": 2}', "{'a': 1}", '{"a": 01x}', '{"a": nul}',
        '{"a": "\n"}', '{"a": 1} {"b": 2}', "{a: 1}", "/* never ends", "{} /* never ends", "{} /*/",
        '{"a": NaN}', "{,}", '{"a": "\\x"}', '{"a": ' + "[" * 10**5 + "]" * 10**5 + "}",
        "<<<<<<< HEAD\n{}",
    ],
)  # fmt: skip
def test_adding_a_key_to_broken_editor_settings_raises_an_error(broken: str) -> None:
    with pytest.raises(JsoncError):
        with_value(broken, ("k",), 1)


def test_adding_a_key_below_an_editor_setting_that_is_no_object_raises_an_error() -> None:
    for text in ('{"k": 1}', '{"k": null}', '{"k": [1]}', "[1]", "1"):
        with pytest.raises(JsoncError):
            with_value(text, ("k", "n"), 1)
    with pytest.raises(JsoncError):
        with_item('{"l": {}}', ("l",), 1)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
NOISE = st.sampled_from(["", " ", "\n", "\r\n", "\t", "// a, {\n", "/* } */", " /**/ \n"])


def commented(value: Any, draw: Any) -> str:
    """Return the value as JSON, with noise wherever the syntax allows it."""

    def noise() -> str:
        return draw(NOISE)

    if isinstance(value, dict):
        parts = [
            f"{noise()}{json.dumps(k)}{noise()}:{noise()}{commented(v, draw)}"
            for k, v in value.items()
        ]
        return "{" + ",".join(parts) + _tail(parts, noise) + "}"
    if isinstance(value, list):
        parts = [noise() + commented(item, draw) for item in value]
        return "[" + ",".join(parts) + _tail(parts, noise) + "]"
    return json.dumps(value)


def _tail(parts: list[str], noise: Any) -> str:
    comma = "," if parts and noise() else ""
    return noise() + comma + noise()


@pytest.mark.slow
@given(st.data(), st.dictionaries(st.text(max_size=4), PLAIN, max_size=4), PLAIN)
def test_setting_a_key_of_any_editor_settings_changes_that_key_alone(
    data: Any, before: dict[str, Any], value: Any
) -> None:
    text = commented(before, data.draw)
    assert read_jsonc(text) == before
    name = data.draw(st.sampled_from([*before, "a new one"]))
    after = with_value(text, (name,), value)
    assert read_jsonc(after) == {**before, name: value}
    for kept in ("// a, {", "/* } */", "/**/"):
        if name not in before:
            assert after.count(kept) >= text.count(kept)
