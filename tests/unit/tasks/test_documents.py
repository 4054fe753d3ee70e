"""The schemas of what commands print with `--json`."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from bootstrap.tasks import NAMES, find
from bootstrap.tasks.command import HOSTS
from bootstrap.tasks.documents import DOCUMENTS, LINES, SEVERAL, json_schema
from tests.cli import User
from tests.documents import check_documents

TASKS = sorted({*NAMES} - {"mcp"})
"""That one speaks its protocol."""
GIVEN_BACK = {"v": 1, "exit": 0, "box": "gpu", "destroyed": True}

ONE_DOCUMENT = ("status", "top", "report")
"""Of those that take several boxes."""


def test_each_command_has_a_json_option_and_a_schema() -> None:
    for name in TASKS:
        assert "json_" in [option.name for option in find(name).options], name
    assert sorted(DOCUMENTS) == TASKS


def test_the_json_schema_of_a_command_for_several_boxes_has_one_document_per_box() -> None:
    for name in TASKS:
        takes_several = HOSTS[1] in find(name).options and name not in ONE_DOCUMENT
        assert takes_several == (name in SEVERAL), name
    failed = {"error": "Unreachable", "what": "no answer", "exit": 3}
    each = [{**GIVEN_BACK, "host": "gpu-1", "seconds": 1.5}]
    each.append({"v": 1, "exit": 3, "host": "gpu-2", "seconds": 2.5, "error": failed})
    several = {"v": 1, "exit": 3, "boxes": each, "error": {**failed, "error": "BoxesFailed"}}
    check_documents(["boxstrap", "down", "--json"], json.dumps(several))
    del each[0]["destroyed"]
    with pytest.raises(AssertionError, match="is not valid under any of the given schemas"):
        check_documents(["boxstrap", "down", "--json"], json.dumps(several))


@pytest.mark.slow
def test_each_json_schema_is_valid_and_accepts_an_error_document() -> None:
    error = {"v": 1, "exit": 3, "error": {"error": "Unreachable", "what": "no answer", "exit": 3}}
    for name in DOCUMENTS:
        schema = json_schema(name)
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(error)
        assert ("anyOf" in schema) == (name in LINES), name


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"box": None}, "is not of type 'string'"),
        ({"colour": "red"}, "'colour' was unexpected"),
        ({"unsafe": [{"kind": "run", "where": "train"}]}, "'what' is a required property"),
    ],
)
def test_the_tests_reject_json_output_with_wrong_or_unknown_fields(
    wrong: dict[str, object], says: str
) -> None:
    check_documents(["boxstrap", "down", "--json"], json.dumps(GIVEN_BACK))
    with pytest.raises(AssertionError, match=says):
        check_documents(["boxstrap", "down", "--json"], json.dumps({**GIVEN_BACK, **wrong}))


def test_the_json_schema_of_a_success_requires_every_result_field() -> None:
    check = Draft202012Validator(json_schema("down"))
    assert not check.is_valid({"v": 1, "exit": 0, "box": "gpu"})
    assert not check.is_valid({"exit": 0, "box": "gpu", "destroyed": True})
    assert check.is_valid({**GIVEN_BACK, "from_a_later_version": 1})


def test_schema_prints_each_commands_json_schema(tmp_path: Path) -> None:
    user = User(tmp_path / "home")
    names = user.run("schema", "--json").must(0).json()["schemas"]
    assert names == [*DOCUMENTS, "profile"]
    assert json.loads(user.run("schema", "status").must(0).out) == json_schema("status")
    assert user.run("schema", "status", "--json").must(0).json()["schema"] == json_schema("status")
    profile = json.loads(user.run("schema", "profile").must(0).out)
    assert "train" in profile["properties"]
    assert "See which: boxstrap schema" in user.run("schema", "statsu").must(2).err
