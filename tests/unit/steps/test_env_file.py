"""The box's environment file, read by real shells: values arrive byte for byte."""

import os
from pathlib import Path

import pytest

from bootstrap.boxes.secrets import packed
from bootstrap.onbox.env_files import env_file, forget_login, wipe, write_env_files
from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.processes import identity
from bootstrap.onbox.run_folder import secrets_of
from bootstrap.onbox.steps.shell import ShellStep
from bootstrap.steps.shell import Value
from tests.unit.profile import hostile
from tests.unit.setup.scripts import facts

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
    own = tmp_path / "steps/k"
    own.mkdir(parents=True)
    for folder in (tmp_path, own):
        write_env_files(str(folder), {**VALUES, **SECRETS})
    (tmp_path / "secrets").write_bytes(packed(SECRETS))
    (tmp_path / "secrets.ids").write_text("PEM 0\n")
    assert wipe(str(tmp_path), [*SECRETS, "NEVER_THERE"]) == [*SECRETS]
    found = [(folder / name).read_bytes() for folder in (tmp_path, own) for name in FILES]
    write_env_files(str(tmp_path), VALUES)
    assert found == [(tmp_path / name).read_bytes() for name in FILES] * 2
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in FILES} == {0o600}
    assert (tmp_path / "secrets").read_bytes() == b""
    assert not (tmp_path / "secrets.ids").exists()


def test_setup_requires_a_running_lease_monitor_unless_it_starts_one_itself(tmp_path: Path) -> None:
    """The step `lease` writes its terms beside this check, and begins the monitor after that."""
    (tmp_path / "steps/k").mkdir(parents=True)
    for name in ("steps/k/env", "lease.json"):
        (tmp_path / name).touch()
    tree = BoxTree(str(tmp_path), "k", "")
    assert ShellStep(facts(tree, "shell", "lease", is_local=True)).check()
    alone = ShellStep(facts(tree, "shell", is_local=True))
    assert not alone.check()
    (tmp_path / "lease.pid").write_text(f"{identity(os.getpid())}\n")
    assert alone.check()


def test_a_repository_keeps_its_variables_and_secrets_when_another_one_is_set_up(
    tmp_path: Path,
) -> None:
    def set_up(key: str, env: dict[str, str], secrets: dict[str, str]) -> None:
        folder = tmp_path / "setups" / key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "secrets").write_bytes(packed(secrets))
        own: dict[str, Value] = {"env_names": [*env], "env_values": [*env.values()]}
        own |= {"secrets": [*secrets], "secrets_id": "x" if secrets else "", "is_local": True}
        own["secret_ids"] = [f"id-{value}" for value in secrets.values()]
        asked, tree = {"setup": str(folder)}, BoxTree(str(tmp_path), key, "")
        step = ShellStep(facts(tree, asked=asked, **own))
        step.apply()
        assert step.check()

    def held() -> tuple[dict[str, str], list[str], str]:
        ids = tmp_path / "secrets.ids"
        files = (env_file(str(tmp_path), key) for key in ("a", "b", "none"))
        texts = [Path(file).read_text().replace("export ", "") for file in files]
        return secrets_of(tmp_path), texts, ids.read_text() if ids.exists() else ""

    set_up("a", {"MODE": "a"}, {"TOKEN": "one", "KEY": "same"})
    own = "MODE='a'\nTOKEN='one'\nKEY='same'\n"
    assert held()[1] == [own] * 3
    set_up("b", {"MODE": "b"}, {})
    its = "TOKEN id-one\nKEY id-same\n"
    assert held() == ({"TOKEN": "one", "KEY": "same"}, [own, "MODE='b'\n", "MODE='b'\n"], its)
    set_up("b", {}, {"KEY": "other"})
    assert held()[0] == {"TOKEN": "one", "KEY": "other"}
    assert held()[1] == [own, "KEY='other'\n", "KEY='other'\n"]
    assert (tmp_path / "secrets.earlier").read_bytes() == b"KEY=same\0"
    set_up("a", {}, {})
    assert held() == ({"KEY": "other"}, ["\n", "KEY='other'\n", "\n"], "KEY id-other\n")
    set_up("b", {}, {})
    assert held() == ({}, ["\n", "\n", "\n"], "")
    # Kept to redact the logs of runs that had them, each once.
    set_up("a", {}, {"TOKEN": "one"})
    set_up("a", {}, {})
    earlier = (tmp_path / "secrets.earlier").read_bytes()
    assert earlier == b"KEY=same\0TOKEN=one\0KEY=other\0"


@pytest.mark.parametrize(("level", "then"), [(None, "1"), ("0", "1"), ("2", "2")])
def test_a_run_forgets_what_a_login_has_of_the_repository_that_was_set_up_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str | None, then: str
) -> None:
    monkeypatch.setattr(os, "environ", {"MODE": "theirs", "OWN": "x", "PATH": "/theirs:/bin"})
    if level:
        os.environ["SHLVL"] = level
    write_env_files(str(tmp_path), {"MODE": "theirs", "PATH": "/theirs:/bin", "GONE": "y"})
    forget_login(str(tmp_path))
    # Else a bash that sshd seems to have started would read ~/.bashrc again.
    assert os.environ == {"OWN": "x", "PATH": "/theirs:/bin", "SHLVL": then}
