"""The rendered script of each shipped profile, kept for review in tests/golden.

One golden is a script; each of the others is its difference from that one. A
golden has the script's own lines. Parts that are copied unchanged (the library,
the steps, the files of the box) are one line each that names the file; `whole`
proves that the script has exactly these files there. The version and the default
index of this machine's pip are replaced by placeholders. Update with
`pytest tests/unit/render --update-golden`, and review the difference.
"""

from __future__ import annotations

import re
from difflib import unified_diff
from pathlib import Path

import pytest

from bootstrap import __version__
from bootstrap.plan import NAMES
from bootstrap.profile.schema import DataItem
from bootstrap.render.script import default_index
from bootstrap.shell import LIBRARY, box_files, shell_part
from tests.unit.render.scripts import SHIPPED, profile, render, shipped_script

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
BASE = "ssh"
"""The profile of no provider: its golden is the whole script."""
HUNK = "@@\n"


def parts() -> dict[str, str]:
    """Return placeholder line -> text of the part."""
    library = {f"# (templates/lib/{name}.sh)\n": shell_part("lib", name) for name in LIBRARY}
    steps = {f"# (templates/steps/{name}.sh)\n": shell_part("steps", name) for name in NAMES}
    files = {f"# (the file {name})\n": f"{text}\n" for name, text in box_files()}
    return {**files, **library, **steps}  # a file may hold parts of the library


def reviewable(script: str) -> str:
    """Return the script with each part replaced by its placeholder line."""
    for line, text in parts().items():
        assert script.count(text) <= 1
        script = script.replace(text, line)
    script = script.replace(f"# boxstrap {__version__}:", "# boxstrap VERSION:")
    return script.replace(f"\nINDEX='{default_index()}'\n", "\nINDEX='(the index of pip)'\n")


def whole(golden: str) -> str:
    """Return the script with placeholders replaced by the parts."""
    golden = golden.replace("# boxstrap VERSION:", f"# boxstrap {__version__}:")
    golden = golden.replace("\nINDEX='(the index of pip)'\n", f"\nINDEX='{default_index()}'\n")
    for line, text in parts().items():
        golden = golden.replace(line, text)
    return golden


def difference(base: str, other: str) -> str:
    """Return a diff from `base` to `other`: hunks without line numbers, with enough context."""
    old, new = base.splitlines(keepends=True), other.splitlines(keepends=True)
    for context in range(1, 10):
        _, _, *lines = unified_diff(old, new, n=context)
        found = "".join(HUNK if line.startswith("@@") else line for line in lines)
        if found.count(HUNK) == len(places(base, found)):
            return found
    raise AssertionError("there is a hunk that fits in several places")


def places(base: str, difference: str) -> list[tuple[int, str, str]]:
    """Return the hunks with exactly one possible place: offset, old text, new text."""
    found = []
    for hunk in difference.split(HUNK)[1:]:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(x[1:] for x in lines if x[0] != sign) for sign in "+-")
        if f"\n{base}".count(f"\n{old}") == 1:
            found.append((f"\n{base}".index(f"\n{old}"), old, new))
    return found


def golden(name: str) -> str:
    """Return the reviewed script of a profile."""
    script = (GOLDEN / f"{BASE}.sh").read_text()
    if name == BASE:
        return script
    differs = (GOLDEN / f"{name}.diff").read_text()
    hunks = places(script, differs)
    assert len(hunks) == differs.count(HUNK) > 0
    assert hunks == sorted(hunks)
    for at, old, new in reversed(hunks):
        script = script[:at] + new + script[at + len(old) :]
    return script


def update(name: str) -> None:
    """Rewrite a golden, and the one that it is compared with."""
    base = reviewable(shipped_script(BASE))
    (GOLDEN / f"{BASE}.sh").write_text(base)
    if name != BASE:
        differs = difference(base, reviewable(shipped_script(name)))
        (GOLDEN / f"{name}.diff").write_text(differs)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_script_is_the_one_that_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        update(name)
    script = shipped_script(name)
    assert reviewable(script) == golden(name), "see the module's docstring"
    assert whole(golden(name)) == script


def test_every_golden_has_its_profile() -> None:
    others = [f"{name}.diff" for name in SHIPPED if name != BASE]
    assert sorted(file.name for file in GOLDEN.iterdir()) == sorted([f"{BASE}.sh", *others])


def test_every_part_of_the_library_and_every_step_is_in_some_script() -> None:
    item = DataItem(**{"from": "https://example.org/x", "to": "x"})
    rare = ("prepare=[make data]", "lease.hours=1", "train.nodes=2", "python.conda=environment.yml")
    to = ("train.command=true", "train.results=[out/]", "train.results_to=s3://bucket/mine")
    script = render(profile("vast", *rare, *to, "secrets=[RESULTS_KEY]").replace(data=[item]))
    missing = [line for line, text in parts().items() if text not in script]
    assert missing == []


def test_the_same_input_gives_the_same_bytes() -> None:
    assert shipped_script("vast") == shipped_script("vast")


def test_another_value_gives_another_script() -> None:
    assert render(profile("vast")) != render(profile("vast", "gpu.count=2"))


@pytest.mark.parametrize("name", ["local", "demo"])
def test_on_this_machine_nothing_touches_ssh(name: str) -> None:
    script = shipped_script(name)
    steps = re.search(r"^STEPS=\(\n(.*?)\)", script, re.DOTALL | re.MULTILINE)
    assert steps is not None
    assert re.findall(r"'(\w+)'", steps[1]) == [
        name for name in NAMES if name not in ("ssh", "smoke", "data", "prepare", "lease")
    ]
    assert "\nIS_LOCAL='yes'\n" in script
    assert "apply_ssh()" not in script
    # tests/main_job/test_local.py checks what its step `shell` leaves alone.
