"""Editor settings: JSON with comments, changed in one place only."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.runs.jsonc import JsoncError, read_jsonc, value_at, with_item, with_value

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
