"""Commands as they are typed (`typed.txt`): exit codes, one clear message, one JSON document."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cases import read_cases
from tests.cli import User

pytestmark = pytest.mark.slow

CASES = dict(read_cases(Path(__file__).with_name("typed.txt"))[1:])


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_each_typed_command_ends_with_its_exit_code_and_says_its_words_alone(
    text: str, reader: User
) -> None:
    before = sorted(reader.place.rglob("*"))
    for typed in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, code, *said = typed.splitlines()
        program, *words = shlex.split(line)
        rc = int(code.removeprefix("exit "))
        done = reader.run(*words, program=program).must(rc)
        for one in said:
            assert (one.removeprefix("! ") in done.text) is not one.startswith("! "), (line, one)
        if "--json" in words:
            document = json.loads(done.out)
            assert (document["v"], document["exit"], done.out.count("\n")) == (1, rc, 1)
            assert done.err == "" if rc == 0 else document["error"]["what"]
            assert rc == 0 or document["error"]["exit"] == rc
        elif rc == 2:
            assert done.out == ""
            assert 1 <= len(done.err.strip().splitlines()) <= 14, done.err
    assert sorted(reader.place.rglob("*")) == before
