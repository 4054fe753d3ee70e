"""What is rendered for each shipped profile, kept for review in tests/golden.

A golden has the script's own lines. What stands in it unchanged (the library,
the steps, the files of the box) is one line there that names the file; that
those lines hold exactly these files is what `whole` proves. The version and
the index that this machine's pip has built in are named, not shown. Renew them
with `pytest tests/unit/render --update-golden`, and read the difference.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bootstrap import __version__
from bootstrap.plan import NAMES
from bootstrap.render.index import default_index
from bootstrap.render.parts import LIBRARY, box_files, shell_part
from tests.unit.render.scripts import SHIPPED, profile, render, shipped_script

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def parts() -> dict[str, str]:
    """The line that stands for a part, and its text."""
    library = {f"# (templates/lib/{name}.sh)\n": shell_part("lib", name) for name in LIBRARY}
    steps = {f"# (templates/steps/{name}.sh)\n": shell_part("steps", name) for name in NAMES}
    files = {f"# (the file {name})\n": f"{text}\n" for name, text in box_files()}
    return {**files, **library, **steps}  # a file may hold parts of the library


def reviewable(script: str) -> str:
    """The script with a line in the place of each part."""
    for line, text in parts().items():
        assert script.count(text) <= 1
        script = script.replace(text, line)
    script = script.replace(f"# boxstrap {__version__}:", "# boxstrap VERSION:")
    return script.replace(f"\nINDEX='{default_index()}'\n", "\nINDEX='(the index of pip)'\n")


def whole(golden: str) -> str:
    """The script again."""
    golden = golden.replace("# boxstrap VERSION:", f"# boxstrap {__version__}:")
    golden = golden.replace("\nINDEX='(the index of pip)'\n", f"\nINDEX='{default_index()}'\n")
    for line, text in parts().items():
        golden = golden.replace(line, text)
    return golden


@pytest.mark.parametrize("name", SHIPPED)
def test_the_script_is_the_one_that_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    script = shipped_script(name)
    file = GOLDEN / f"{name}.sh"
    if request.config.getoption("--update-golden"):
        file.write_text(reviewable(script))
    assert reviewable(script) == file.read_text(), "see the module's docstring"
    assert whole(file.read_text()) == script


def test_every_golden_has_its_profile() -> None:
    assert sorted(file.stem for file in GOLDEN.iterdir()) == SHIPPED


def test_every_part_of_the_library_and_every_step_is_in_some_script() -> None:
    script = shipped_script("vast")
    missing = [line for line, text in parts().items() if text not in script]
    assert missing == []


def test_the_same_input_gives_the_same_bytes() -> None:
    assert shipped_script("vast") == shipped_script("vast")


def test_another_value_gives_another_script() -> None:
    assert render(profile("vast")) != render(profile("vast", "gpu.count=2"))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_first_look_fits_into_one_argument_of_a_command(name: str) -> None:
    # Linux takes 128 KiB for one string of argv (MAX_ARG_STRLEN); the rest is for the profile.
    look, files = shipped_script(name).split("# ---- files of the box")
    assert len(look.encode()) < 110_000
    assert "unpack_box() {" in files


@pytest.mark.parametrize("name", ["local", "demo"])
def test_on_this_machine_nothing_touches_ssh(name: str) -> None:
    script = shipped_script(name)
    steps = re.search(r"^STEPS=\(\n(.*?)\)", script, re.DOTALL | re.MULTILINE)
    assert steps is not None
    assert re.findall(r"'(\w+)'", steps[1]) == [
        name for name in NAMES if name not in ("ssh", "smoke")
    ]
    assert "\nIS_LOCAL='yes'\n" in script
    assert "apply_ssh()" not in script
    # What its step `shell` leaves alone is seen in tests/main_job/test_local.py.
