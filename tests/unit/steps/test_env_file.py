"""The box's environment file, read by real shells: values arrive byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

from bootstrap.boxes.secrets import packed
from bootstrap.onbox.env_files import wipe, write_env_files
from bootstrap.onbox.processes import identity
from bootstrap.onbox.steps.shell import ShellStep
from bootstrap.onbox.steps.step import SetupFacts
from tests.unit.profile import hostile

VALUES = {
    **{f"FREE_{n}": c.value for n, c in enumerate(hostile.ACCEPTED) if c.key == "env.A"},
    "QUOTES": 'it\'s "quoted" `x` $(y)',
    "BACKSLASHES": "a\\ \\\\ \\n \\'",
    "BANG": "!! !x a!b",
}
# Only a secret can hold these: a profile refuses them.
SECRETS = {"PEM": "-----BEGIN-----\nline ' two\\\n\n!end\n-----END-----", "TABBED": "a\tb"}
FILES = ("env", "env.fish", "env.csh")
SHELLS = {
    "bash": ("env", ["bash", "--norc", "-c"], ". "),
    "dash": ("env", ["dash", "-c"], ". "),
    "busybox": ("env", ["busybox", "sh", "-c"], ". "),
    "zsh": ("env", ["zsh", "-f", "-c"], ". "),
    "fish": ("env.fish", ["fish", "--no-config", "-c"], "source "),
    "tcsh": ("env.csh", ["tcsh", "-f", "-c"], "source "),
}


def test_wiping_secrets_keeps_other_env_values_of_the_profile(tmp_path: Path) -> None:
    write_env_files(str(tmp_path), {**VALUES, **SECRETS})
    (tmp_path / "secrets").write_bytes(packed(SECRETS))
    (tmp_path / "secrets.ids").write_text("PEM 0\n")
    assert wipe(str(tmp_path), [*SECRETS, "NEVER_THERE"]) == [*SECRETS]
    found = {name: (tmp_path / name).read_bytes() for name in FILES}
    write_env_files(str(tmp_path), VALUES)
    assert found == {name: (tmp_path / name).read_bytes() for name in FILES}
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in FILES} == {0o600}
    assert (tmp_path / "secrets").read_bytes() == b""
    assert not (tmp_path / "secrets.ids").exists()


def test_setup_requires_a_running_lease_monitor_unless_it_starts_one_itself(
    tmp_path: Path,
) -> None:
    """The step `lease` writes its terms beside this check, and begins the monitor after that."""
    for name in ("env", "lease.json"):
        (tmp_path / name).touch()
    facts = {"home": [str(tmp_path)], "is_local": ["yes"]}
    assert ShellStep(SetupFacts({**facts, "step": ["shell", "lease"]})).check()
    alone = ShellStep(SetupFacts({**facts, "step": ["shell"]}))
    assert not alone.check()
    (tmp_path / "lease.pid").write_text(f"{identity(os.getpid())}\n")
    assert alone.check()
