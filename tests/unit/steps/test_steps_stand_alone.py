"""A script may leave steps out (`verify` has no repository), so a step calls only its own functions
and the library's, never another step's.
"""

from __future__ import annotations

import re

import pytest

from bootstrap.paths import shipped
from bootstrap.steps.shell import shell_part

DEFINED = re.compile(r"^([a-z_]+)\(\) ", re.MULTILINE)
NAMES = sorted(file.stem for file in (shipped("templates") / "steps").glob("*.sh"))
STEPS = {name: shell_part("steps", name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_no_setup_step_calls_a_shell_function_that_only_another_step_defines(name: str) -> None:
    standard = {f"{kind}_{name}" for kind in ("inputs", "check", "apply")}
    own = set(DEFINED.findall(STEPS[name])) - standard
    for other, text in STEPS.items():
        if other != name:
            code = re.sub(r"#.*|'[^']*'", "", text)
            used = {word for word in own if re.search(rf"(?<![\w$]){word}(?![\w=])", code)}
            assert used <= set(DEFINED.findall(text)), f"{other} uses {used} of {name}"
