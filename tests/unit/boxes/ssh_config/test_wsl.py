"""In WSL the entries are written for Windows too. Scripts stand in for its programs."""

import resource
from pathlib import Path

import pytest

from bootstrap.boxes import alias
from bootstrap.boxes.alias import NoWindowsError, Windows, find_windows, is_wsl
from bootstrap.boxes.userfile import ConfigPlace
from bootstrap.link import Route
from tests.cli import User
from tests.unit.boxes.ssh_config.asking import options
from tests.unit.boxes.ssh_config.configs import USUAL
from tests.unit.boxes.ssh_config.conftest import KEY, MakeBox

PROFILE = r"C:\Users\Zoë Müller"
# As Windows' own cmd.exe: Unicode if it is asked for (/u), else the console's code page.
ANSWERS = f"""\
[ "$1" = /u ] && form=UTF-16LE || form=CP850
printf '%s\\r\\n' '{PROFILE}' | iconv -f UTF-8 -t $form"""


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Windows:
    """A Windows whose user's folder has a space and non-ASCII letters in its name."""
    home = tmp_path / "c/Users/Zoë Müller"
    home.mkdir(parents=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    _program(programs / "cmd.exe", ANSWERS)
    _program(programs / "wslpath", f'[ "$2" = "{PROFILE}" ] && echo "{home}"')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("WSL_DISTRO_NAME", "Debian")
    return Windows(home / ".ssh")


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_wsl_is_recognized_by_kernel_version_or_wsl_variable(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x)")
    assert is_wsl({}, version)
    version.write_text("Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)")
    assert not is_wsl({}, version)
    assert not is_wsl({}, tmp_path / "none")
    assert is_wsl({"WSL_DISTRO_NAME": "Debian"}, version)


def test_in_wsl_boxstrap_finds_the_ssh_folder_of_the_windows_user(windows: Windows) -> None:
    assert find_windows() == windows


def test_finding_the_windows_ssh_folder_fails_when_path_has_no_windows_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoWindowsError, match="does not say"):
        find_windows()


def test_a_failed_write_of_windows_ssh_entries_raises_an_error_and_keeps_the_old_files(
    windows: Windows, make_box: MakeBox
) -> None:
    box = make_box("my-box")
    windows.folder.mkdir()
    alias.write_for_windows(windows, [box])
    before = {path: path.read_bytes() for path in windows.ours.iterdir()}
    box.known_hosts.write_text(f"{KEY * 300}\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(NoWindowsError) as caught:
            alias.write_for_windows(windows, [box])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(caught.value) == f"{windows.ours} can't be used: file too large"
    assert {path: path.read_bytes() for path in windows.ours.iterdir()} == before


def test_a_box_name_in_the_windows_ssh_config_in_other_capitals_gets_no_entry(
    windows: Windows, make_box: MakeBox
) -> None:
    windows.folder.mkdir()
    (windows.folder / "config").write_text("Host gpu\n  HostName work.example.org\n")
    alias.write_for_windows(windows, [make_box("GPU")])
    assert "Host GPU" not in (windows.ours / "config").read_text()


def test_ssh_config_entries_are_written_for_windows_and_removed_again(
    windows: Windows, make_box: MakeBox
) -> None:
    windows.folder.mkdir()
    before = b"\xef\xbb\xbf" + USUAL.replace(b"\n", b"\r\n")
    (windows.folder / "config").write_bytes(before)
    (windows.folder / "id_gpu").touch()
    mine = make_box("my-box", route=Route(identity="/home/me/.ssh/id_gpu"))
    gpu = make_box("gpu", port=2)
    jumped = make_box("far", port=3, route=Route(jump="bastion"))
    bare = make_box("here", port=4, route=Route(identity="/home/me/.ssh/other"))
    advice = alias.write_for_windows(windows, [mine, gpu, jumped, bare])
    assert [sentence.split()[:2] for sentence in advice] == [["far", "is"], ["for", "here"]]
    said = options(windows.ours / "config", "my-box")
    assert (said["hostname"], said["port"], said["user"]) == ("5.17.27.63", "46769", "root")
    assert said["identityfile"] == "~/.ssh/id_gpu"
    assert said["userknownhostsfile"].endswith("/.ssh/boxstrap/my-box.known_hosts")
    assert said["controlmaster"] == "false"
    text = (windows.ours / "config").read_text()
    assert "Host gpu" not in text  # theirs
    assert "Host far" not in text
    assert "Host here" in text
    pins = (windows.ours / "my-box.known_hosts").read_bytes()
    assert pins == mine.known_hosts.read_bytes()
    now = (windows.folder / "config").read_bytes()
    assert now.startswith(b"\xef\xbb\xbf# The boxes of boxstrap.")  # its mark stays first
    assert b"\r\nInclude boxstrap/config\r\n\r\n" in now
    alias.write_for_windows(windows, [mine])
    assert (windows.folder / "config").read_bytes() == now
    assert sorted(p.name for p in windows.ours.iterdir()) == ["config", "my-box.known_hosts"]
    alias.remove_from_windows(windows)
    assert (windows.folder / "config").read_bytes() == before
    assert sorted(p.name for p in windows.folder.iterdir()) == ["config", "id_gpu"]


def test_the_ssh_config_command_writes_and_removes_entries_for_linux_and_windows(
    windows: Windows, place: ConfigPlace, make_box: MakeBox, user: User
) -> None:
    make_box("my-box")
    env = {"BOXSTRAP_SSH_CONFIG": str(place.config), "WSL_DISTRO_NAME": "Debian"}
    programs = windows.folder.parents[3] / "programs"
    env["PATH"] = f"{programs}:{user.env['PATH']}"
    told = user.run("ssh-config", "--json", **env).must(0).json()
    assert told["windows"] == str(windows.folder)
    assert told["aliases"] == ["my-box"]
    assert (windows.ours / "config").exists()
    _program(programs / "cmd.exe", "exit 1")
    failed = user.run("ssh-config", **env).must(0)
    assert "don't know the boxes yet" in failed.err
    _program(programs / "cmd.exe", ANSWERS)
    user.run("ssh-config", "--remove", **env).must(0)
    assert not (windows.folder / "config").exists()
    assert not windows.ours.exists()
    assert not place.config.exists()
