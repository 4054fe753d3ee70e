"""The box's environment file, read by real shells: values arrive byte for byte."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from bootstrap.boxes.secrets import packed
from bootstrap.steps.shell import quote
from tests.unit.profile import hostile
from tests.unit.setup.scripts import static_parts

VALUES = {
    **{f"FREE_{n}": c.value for n, c in enumerate(hostile.ACCEPTED) if c.key == "env.A"},
    "QUOTES": 'it\'s "quoted" `x` $(y)',
    "BACKSLASHES": "a\\ \\\\ \\n \\'",
    "BANG": "!! !x a!b",
}
# Only a secret can hold these: a profile refuses them.
SECRETS = {"PEM": "-----BEGIN-----\nline ' two\\\n\n!end\n-----END-----", "TABBED": "a\tb"}
SHELLS = {
    "bash": ("sh", ["bash", "--norc", "-c"], ". "),
    "dash": ("sh", ["dash", "-c"], ". "),
    "busybox": ("sh", ["busybox", "sh", "-c"], ". "),
    "zsh": ("sh", ["zsh", "-f", "-c"], ". "),
    "fish": ("fish", ["fish", "--no-config", "-c"], "source "),
    "tcsh": ("csh", ["tcsh", "-f", "-c"], "source "),
}

AS_SHELL = 'mapfile -t -d "" PAIRS; as_shell "$1"; printf %s "$QUOTED"'


def env_file(values: Mapping[str, str], flavour: str, folder: Path) -> Path:
    """Write the environment file with the step `shell`'s own function."""
    step = next(path for path in static_parts() if path.name == "shell.sh")
    file = folder / f"env.{flavour}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{step.read_text()}\n{AS_SHELL}", "bash", flavour],
        input=packed(values),
        capture_output=True,
        check=True,
    )
    file.write_bytes(done.stdout)
    return file


def test_wiping_secrets_keeps_other_env_values_of_the_profile(tmp_path: Path) -> None:
    flavours = {"sh": "env", "fish": "env.fish", "csh": "env.csh"}
    for flavour, name in flavours.items():
        env_file({**VALUES, **SECRETS}, flavour, tmp_path).rename(tmp_path / name)
    (tmp_path / "secrets").write_bytes(packed(SECRETS))
    (tmp_path / "secrets.ids").write_text("PEM 0\n")
    step, base = (
        next(path for path in static_parts() if path.name == f"{name}.sh").read_text()
        for name in ("shell", "base")
    )
    names = " ".join([*SECRETS, "NEVER_THERE"])
    there = f"BOX_HOME={quote(str(tmp_path))} ENV_FILE={quote(str(tmp_path / 'env'))}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{base}\n{step}\n{there}; wipe_secrets {names}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [f"wiped\t{name}" for name in SECRETS]
    for flavour, name in flavours.items():
        alone = env_file(VALUES, flavour, tmp_path)
        wiped = tmp_path / name
        assert wiped.read_bytes().replace(b"\n\n", b"\n") == alone.read_bytes()
        assert wiped.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "secrets").read_bytes() == b""
    assert not (tmp_path / "secrets.ids").exists()


def test_setup_requires_a_running_lease_monitor_unless_it_starts_one_itself() -> None:
    """The step `lease` writes its terms beside this check, and begins the monitor after that."""
    step = next(path for path in static_parts() if path.name == "shell.sh").read_text()
    stubs = "find_rc_missing() { RC_MISSING=(); }; home_linked() { :; }"
    for steps, rc in (("shell lease", 0), ("shell", 1)):
        given = f"STEPS=({steps}); ENV_FILE=/etc/passwd; IS_LOCAL=1"
        script = f"{step}\n{stubs}; lease_is_attended() {{ ! :; }}; {given}; check_shell"
        assert subprocess.run(["bash", "--norc", "-c", script], check=False).returncode == rc
