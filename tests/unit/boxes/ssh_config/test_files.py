"""The user's ssh config: links, modes and owners stay, and some files must be left alone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap.boxes import userfile
from bootstrap.boxes.ssh_config import common_options, remove_block, update
from bootstrap.boxes.userfile import (
    VARIABLE,
    ConfigPlace,
    LeftAloneError,
    UserFile,
    account_home,
    find_place,
)
from bootstrap.errors import UsageError
from tests.unit.boxes.ssh_config.asking import options
from tests.unit.boxes.ssh_config.configs import USUAL
from tests.unit.boxes.ssh_config.conftest import MakeBox


def given(place: ConfigPlace, data: bytes = USUAL) -> None:
    place.config.parent.mkdir()
    place.config.write_bytes(data)


def test_an_ssh_config_that_is_a_symlink_stays_a_symlink(
    place: ConfigPlace, make_box: MakeBox, tmp_path: Path
) -> None:
    place.config.parent.mkdir()
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "ssh").write_bytes(USUAL)
    (place.config.parent / "between").symlink_to(dotfiles / "ssh")
    place.config.symlink_to("between")
    make_box("my-box")
    update(place)
    assert place.config.readlink() == Path("between")
    assert options(place.config, "my-box")["port"] == "46769"
    remove_block(place)
    assert (dotfiles / "ssh").read_bytes() == USUAL
    assert place.config.is_symlink()


@pytest.mark.parametrize("mode", [0o400, 0o444])
def test_a_read_only_ssh_config_is_not_changed(
    place: ConfigPlace, make_box: MakeBox, mode: int
) -> None:
    given(place)
    place.config.chmod(mode)
    make_box("my-box")
    kept = update(place)
    assert "is read-only, so it was left as it is" in kept.trouble
    assert place.config.read_bytes() == USUAL
    # It is enough that the user adds the line by hand.
    place.config.chmod(0o600)
    place.config.write_bytes(f"Include {place.include}\n".encode() + USUAL)
    place.config.chmod(mode)
    assert update(place).trouble == ""
    with pytest.raises(UsageError, match="read-only"):
        remove_block(place)


def test_an_ssh_config_that_is_a_folder_hard_linked_or_huge_is_not_changed(
    place: ConfigPlace, make_box: MakeBox, tmp_path: Path
) -> None:
    make_box("my-box")
    given(place)
    os.link(place.config, tmp_path / "second name")
    assert "has 2 hard links" in update(place).trouble
    place.config.unlink()
    place.config.mkdir()
    assert "is no file" in update(place).trouble
    place.config.rmdir()
    place.config.symlink_to("/nowhere/at/all")
    assert "is a broken symbolic link" in update(place).trouble
    place.config.unlink()
    place.config.symlink_to("/dev/null")
    assert "is no file" in update(place).trouble
    place.config.unlink()
    with place.config.open("wb") as file:
        file.truncate(userfile.LARGEST + 1)
    assert "larger than 16 MiB" in update(place).trouble


def test_writing_the_ssh_config_keeps_its_owner_and_the_mode_of_its_folder(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a file away")
    given(place)
    os.chown(place.config, 1234, 1235)
    place.config.parent.chmod(0o755)
    make_box("my-box")
    update(place)
    assert (place.config.stat().st_uid, place.config.stat().st_gid) == (1234, 1235)
    assert place.config.parent.stat().st_mode & 0o7777 == 0o755


def test_an_ssh_config_saved_by_an_editor_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(USUAL)
    draft = UserFile(path).prepare(b"ours")
    path.write_bytes(USUAL + b"# saved in an editor just now\n")
    with pytest.raises(LeftAloneError, match="somebody else"):
        draft.put()
    assert path.read_bytes().endswith(b"just now\n")
    assert [p.name for p in tmp_path.iterdir()] == ["config"]


def test_a_failed_write_on_a_full_disk_leaves_the_ssh_config_as_it_was(
    place: ConfigPlace, make_box: MakeBox
) -> None:
    """If the disk is full, nothing is half done."""
    given(place)
    make_box("my-box")
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from pathlib import Path; from bootstrap.boxes.userfile import *\n"
        "try: UserFile(Path(sys.argv[1])).prepare(b'x' * 1000)\n"
        "except LeftAloneError as error: print(error)"
    )
    done = subprocess.run(
        [os.sys.executable, "-c", script, place.config],  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
        check=True,
    )
    assert "file too large" in done.stdout
    assert place.config.read_bytes() == USUAL
    assert [p.name for p in place.config.parent.iterdir()] == ["config"]


def test_ssh_config_entries_work_with_folders_of_blanks_and_odd_letters(
    place: ConfigPlace, make_box: MakeBox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As macOS has them: Library/Application Support."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "Größe 100% Application Support"))
    box = make_box("my-box")
    assert update(place).trouble == ""
    mine = options(place.config, "my-box")
    assert mine["port"] == "46769"
    assert mine["userknownhostsfile"] == str(box.known_hosts)


def test_boxstrap_edits_the_ssh_config_of_the_account_home_unless_a_variable_names_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_place() is None  # ssh reads the account's, whatever HOME says
    monkeypatch.setenv("HOME", str(account_home()))
    usual = find_place()
    assert usual is not None
    assert usual.config == account_home() / ".ssh/config"
    assert usual.ssh == ["ssh"]
    monkeypatch.setenv(VARIABLE, "off")
    assert find_place() is None
    monkeypatch.setenv(VARIABLE, "~/elsewhere")
    other = find_place()
    assert other is not None
    assert other.ssh == ["ssh", "-F", str(account_home() / "elsewhere")]


WITHOUT_KERBEROS = """\
#!/bin/sh
for each; do case $each in
  GSSAPI*) echo 'command-line line 0: Unsupported option "gssapidelegatecredentials"' >&2 ;;
esac; done
exec {} "$@"
"""


def test_ssh_config_entries_have_no_gssapi_option_if_ssh_here_lacks_kerberos_support(
    place: ConfigPlace, make_box: MakeBox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As OpenSSH 10 of Debian's unstable: a line of complaint at each login."""
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin/ssh"
    ssh.write_text(WITHOUT_KERBEROS.format(shutil.which("ssh")))
    ssh.chmod(0o755)
    with_it = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{ssh.parent}:{with_it}")
    make_box("my-box")
    assert update(place).changed
    text = place.entries.read_text()
    assert "GSSAPI" not in text
    assert "ForwardAgent no" in text
    assert not update(place).changed
    assert "GSSAPIDelegateCredentials" not in common_options()
    monkeypatch.setenv("PATH", with_it)
    make_box("another")
    update(place)
    text = place.entries.read_text()
    assert ("GSSAPI" in text) is ("GSSAPIDelegateCredentials" in common_options())
