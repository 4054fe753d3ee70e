"""What boxstrap reads as its own or as the user's word was written by nobody else."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap import paths
from bootstrap.boxes.secrets import _commands, commands_file
from bootstrap.errors import UsageError
from bootstrap.fleet.hosts import groups_file, read_groups
from bootstrap.link import KnownBox, all_boxes, save_with_pin
from bootstrap.profile.load import read_profile
from bootstrap.renting.money import caps_file, read_caps
from bootstrap.runs.notifiers import notify_file, own_notifiers

COLLEAGUE = 4711
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownBox:
    """A box that is recorded under the umask of a group that works together."""
    for kind in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    before = os.umask(0o002)
    try:
        box = KnownBox("gpu", "root@192.0.2.1", address="192.0.2.1")
        assert save_with_pin(box, "", is_new=True)
    finally:
        os.umask(before)
    return box


def test_state_folders_are_private_to_the_user_whatever_the_umask(box: KnownBox) -> None:
    made = [path for path in (paths.state_dir(), *paths.state_dir().rglob("*")) if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}


def test_state_folders_left_readable_by_an_earlier_version_are_made_private(box: KnownBox) -> None:
    state = box.folder.parents[1]
    for folder in (state, state / "boxes"):
        folder.chmod(0o775)
    lock = state / "demo/box/repository/.venv/.lock"  # uv makes it so
    lock.parent.mkdir(parents=True)
    lock.touch()
    lock.chmod(0o666)
    assert [each.name for each in all_boxes()] == ["gpu"]
    assert state.stat().st_mode & 0o777 == 0o700


def _replace(record: Path) -> None:
    folder = record.parent
    folder.rename(folder.with_name(".aside"))
    folder.mkdir()
    record.write_text(json.dumps({"name": "gpu", "extra": {"proxy": "sh -c 'touch pwned'"}}))
    for each in (folder, record):
        os.chown(each, COLLEAGUE, COLLEAGUE)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(_replace, marks=as_root, id="its folder is another's"),
        pytest.param(lambda record: os.chown(record, COLLEAGUE, -1), marks=as_root, id="owner"),
        pytest.param(lambda record: record.chmod(0o666), id="mode"),
        pytest.param(
            lambda record: os.chown(record.parents[2], COLLEAGUE, -1), marks=as_root, id="all"
        ),
    ],
)
def test_a_box_record_that_other_users_could_write_is_refused(
    attack: Callable[[Path], None], box: KnownBox
) -> None:
    record = box.folder / "box.json"
    state = record.parents[2]
    state.chmod(0o775)
    attack(record)
    for _ in range(2):
        with pytest.raises(UsageError, match="other users could write") as caught:
            all_boxes()
    assert caught.value.where.startswith(str(state))


def _moved(path: Path) -> Path:
    """Replace it by a link into a folder beside the user's own ones. Returns that folder."""
    there = paths.config_dir().parents[1] / "theirs"
    there.mkdir()
    path.symlink_to(path.rename(there / path.name))
    return there


@pytest.mark.parametrize("what", ["the folder", "one in it"])
def test_a_state_folder_behind_a_symlink_is_wrong_usage_only_if_others_can_write_its_target(
    what: str, box: KnownBox
) -> None:
    state = paths.state_dir()
    there = _moved(state if what == "the folder" else state / "boxes")
    assert [each.name for each in all_boxes()] == ["gpu"]
    there.chmod(0o1777)  # as /tmp: nobody else can rename what is in it
    assert all_boxes()
    there.chmod(0o777)
    with pytest.raises(UsageError, match="other users could write") as caught:
        all_boxes()
    assert caught.value.where == str(there)


def _own_profile() -> Path:
    return paths.config_dir() / "mine.yaml"


@pytest.mark.parametrize(
    ("file", "text", "read"),
    [
        (caps_file, "money: {max_price: 2}\n", lambda: read_caps({})),
        (groups_file, "seeds: [gpu-1]\n", read_groups),
        (notify_file, "bell: notify-send\n", own_notifiers),
        (commands_file, "TOKEN: op read x\n", _commands),
        (_own_profile, "version: 1\n", lambda: read_profile("mine", sets=(), repo_root=None)),
    ],
)
@pytest.mark.parametrize(
    "attack",
    [
        "file",
        "folder",
        "link",
        "behind",
        *(pytest.param(f"owner{at}", marks=as_root) for at in ("", " behind")),
    ],
)
def test_each_config_file_that_other_users_could_write_is_refused(
    attack: str, file: Callable[[], Path], text: str, read: Callable[[], object], box: KnownBox
) -> None:
    path = file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert read()
    if attack == "file":
        path.chmod(0o666)
    elif attack == "folder":
        paths.config_dir().chmod(0o775)
    elif attack == "owner":
        os.chown(path, COLLEAGUE, -1)
    elif attack == "behind":
        _moved(path).chmod(0o777)
    elif attack == "owner behind":
        os.chown(_moved(path), COLLEAGUE, -1)
    else:
        elsewhere = path.rename(paths.config_dir().parent / "theirs")
        path.symlink_to(elsewhere)
        elsewhere.chmod(0o666)
    with pytest.raises(UsageError, match="other users can write this file") as caught:
        read()
    assert caught.value.where == str(path)
    assert "chmod go-w" in caught.value.hint


@pytest.mark.parametrize(
    ("platform", "kind", "named", "where"),
    [
        ("linux", "state", "", "/home/me/.local/state/boxstrap"),
        ("linux", "cache", "", "/home/me/.cache/boxstrap"),
        ("linux", "config", "relative", "/home/me/.config/boxstrap"),
        ("linux", "config", "/set", "/set/boxstrap"),
        ("darwin", "cache", "", "/home/me/Library/Caches/boxstrap"),
        ("darwin", "state", "", "/home/me/Library/Application Support/boxstrap"),
        ("darwin", "config", "/set", "/set/boxstrap"),
    ],
)
def test_state_cache_and_config_folders_are_chosen_by_platform_and_xdg_variables(
    platform: str, kind: str, named: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", named)
    assert str(getattr(paths, f"{kind}_dir")()) == where
