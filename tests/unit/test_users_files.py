"""One way to read a person's file, and one to write a file of a repository."""

import os
from pathlib import Path

import pytest

from bootstrap.boxes.secrets import _own_text
from bootstrap.errors import BoxstrapError
from bootstrap.fleet.sweep import read_sweep
from bootstrap.link.keys import read_key_file
from bootstrap.paths import leads_out, read_regular, write_users_file
from bootstrap.profile.load import describe, public_key
from bootstrap.profile.yaml_source import read_yaml
from bootstrap.tasks.model_memory import _of_config
from tests.cli import User

READERS = {
    "sweep": read_sweep,
    "estimate": _of_config,
    "public key": lambda file: public_key(str(file)),
    "profile": lambda file: read_yaml(file, "it"),
    "secrets": lambda file: _own_text(file, "it"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "link", "folder"])
def test_reading_a_users_file_that_is_a_pipe_folder_or_link_to_a_device_raises_an_error(
    tmp_path: Path, reader: str, kind: str
) -> None:
    file = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file = Path("/dev/zero") if kind == "device" else file
        file.exists() or file.symlink_to("/dev/zero")
    with pytest.raises(BoxstrapError):
        READERS[reader](file)
    assert not describe(file)
    assert read_key_file(file).problem


def test_a_users_file_above_the_size_limit_is_refused_naming_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        read_regular(tmp_path / "file", 4)


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("repo/file", ""),
        ("repo/inner/file", ""),
        ("repo/to_inner/file", ""),
        ("repo/to_file", "outside/file"),
        ("repo/to_other/file", "outside/repo/file"),
        ("repo/to_nothing", "outside/new"),
        ("repo/../outside/file", ""),
        ("to_repo/file", ""),
        ("to_repo/to_file", "outside/file"),
        ("to_outside/file", ""),
    ],
)
def test_boxstrap_does_not_write_through_a_symlink_that_leads_out_of_a_repository(
    tmp_path: Path, path: str, leads_to: str
) -> None:
    for folder in ("repo/.git", "repo/inner", "outside/repo/.git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "outside/file").write_text("mine")
    for link, to in {
        "repo/to_inner": "repo/inner",
        "repo/to_file": "outside/file",
        "repo/to_other": "outside/repo",
        "repo/to_nothing": "outside/new",
        "to_repo": "repo",
        "to_outside": "outside",
    }.items():
        (tmp_path / link).symlink_to(tmp_path / to)
    file = tmp_path / path
    assert leads_out(file) == (tmp_path / leads_to if leads_to else None)
    if leads_to:
        with pytest.raises(OSError, match="a link leads out of the repository"):
            write_users_file(file, "of a box")
        with pytest.raises(BoxstrapError, match="a link leads out of the repository"):
            read_sweep(file)
        assert not (tmp_path / "outside/new").exists()
    else:
        write_users_file(file, "ours")
        assert file.read_text() == "ours"


def test_push_warns_when_a_symlink_leads_out_of_the_repository(user: User) -> None:
    repository = user.repository()
    (repository.root / "data").symlink_to(user.home / ".ssh")
    (user.home / ".ssh").mkdir(exist_ok=True)
    said = user.run("push", "data", "--to", "data", "--host", "nowhere.invalid").must(3).err
    assert f"data leads out of the repository: what is sent is {user.home / '.ssh'}" in said
