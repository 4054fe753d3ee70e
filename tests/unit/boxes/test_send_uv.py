"""uv's wheel on this machine: from its pip index, checked by the shipped hash, then the cache."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from bootstrap.errors import BoxstrapError
from bootstrap.onbox.python.uv_release import VERSION, WHEELS
from bootstrap.paths import cache_dir
from bootstrap.setup import send

MACHINE = "Linux-aarch64"
NAME = WHEELS[MACHINE][0]
INFO = f"uv-{VERSION}.dist-info"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this machine's pip reads, with a wheel for another kind of machine."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        about = f"Metadata-Version: 2.1\nName: uv\nVersion: {VERSION}\n"
        archive.writestr(f"{INFO}/METADATA", about)
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr(f"{INFO}/RECORD", "")
    sha256 = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()
    monkeypatch.setattr(send, "WHEELS", {MACHINE: (NAME, sha256)})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/__main__.py").write_text("raise SystemExit('a repository that is hostile')\n")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.slow
def test_the_uv_wheel_is_downloaded_once_and_replaces_a_damaged_cached_one(index: Path) -> None:
    wheel = (index / NAME).read_bytes()
    kept = cache_dir() / "uv" / NAME
    kept.parent.mkdir(parents=True)
    (kept.parent / "uv-0.1-py3-none-any.whl").write_text("of an earlier version")
    kept.write_text("damaged")
    assert send.fetch_wheel(MACHINE) == wheel
    (index / NAME).unlink()
    assert send.fetch_wheel(MACHINE) == wheel
    assert list(kept.parent.iterdir()) == [kept]


@pytest.mark.slow
def test_a_uv_wheel_with_a_wrong_hash_is_refused_and_not_cached(index: Path) -> None:
    with zipfile.ZipFile(index / NAME, "a") as archive:
        archive.writestr("more", "")
    with pytest.raises(BoxstrapError, match=f"does not give uv {VERSION} either: "):
        send.fetch_wheel(MACHINE)
    assert not (cache_dir() / "uv").exists()
    with pytest.raises(BoxstrapError, match="no uv is known for"):
        send.fetch_wheel("Linux-\x1b[31m")
