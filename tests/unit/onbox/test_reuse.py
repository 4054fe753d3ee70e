"""Reusing packages of an image: what may be copied, when it pays, and correct copies."""

import csv
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from random import Random

import pytest

from bootstrap.onbox.python import copy_packages, image_packages, reuse
from bootstrap.onbox.python.copy_packages import Copying, files_of, with_interpreter
from bootstrap.onbox.python.image_packages import (
    Distribution,
    ImageSite,
    distributions,
    find_images,
    record,
)
from bootstrap.onbox.python.reuse import Speeds, login_root
from tests.waiting import PATIENCE_S

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"lib/{VERSION}/site-packages"


def install(root: Path, name: str, files: dict[str, str], installer: str = "pip") -> Distribution:
    """Install a distribution as pip leaves it."""
    site = root / SITE
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "INSTALLER").write_text(f"{installer}\n")
    rows = [(f"{info.name}/METADATA", "", ""), (f"{info.name}/RECORD", "", "")]
    for path, text in files.items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        rows.append((path, "sha256=x", str(len(text))))
    with (info / "RECORD").open("w", newline="") as file_:
        csv.writer(file_, lineterminator="\n").writerows(rows)
    return Distribution(image_packages.plain(name), "1.0", info)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An environment of an image."""
    root = tmp_path / "image"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / VERSION).symlink_to(sys.executable)
    (root / "pyvenv.cfg").write_text("home = /usr/local/py/bin\nversion = 3\n")
    return root


def everything_of(root: Path) -> dict[str, object]:
    """Return content, mode and modification time of everything in a folder."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (state.st_mode, state.st_mtime_ns, content)
    return found


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """The site-packages folder of a new environment."""
    site = tmp_path / "new" / SITE
    site.mkdir(parents=True)
    return site


def test_setup_reuses_only_packages_of_an_image_that_list_all_their_files(image: Path) -> None:
    install(image, "Some_Thing", {"thing.py": "x = 1\n"})
    install(image, "by-uv", {"by_uv.py": ""}, installer="uv")
    install(image, "pip", {"pip.py": ""})
    install(image, "of-conda", {"c.py": ""}, installer="conda")
    install(image, "with-pth", {"with.pth": "import with_\n"})
    (install(image, "editable", {"e.py": ""}).info / "direct_url.json").write_text(
        json.dumps({"url": "file:///work", "dir_info": {"editable": True}})
    )
    (install(image, "no-record", {"n.py": ""}).info / "RECORD").unlink()
    (install(image, "odd-record", {"o.py": ""}).info / "RECORD").write_text("o.py,,many\n")
    found = distributions(image / SITE)
    assert [one.name for one in found] == ["some-thing", "by-uv"]
    assert {one.root for one in found} == {image}


def test_packages_are_reused_from_the_image_but_not_from_boxstraps_environments(
    image: Path, tmp_path: Path
) -> None:
    install(image, "thing", {"thing.py": "x = 1\n"})
    elsewhere = tmp_path / "elsewhere"
    (found,) = find_images([image, elsewhere, image], elsewhere, elsewhere)
    assert found.site == str(image / SITE)
    assert found.home == "/usr/local/py/bin"
    assert found.size == 6
    assert find_images([image], tmp_path, elsewhere) == find_images([image], elsewhere, image) == []
    (image / ".boxstrap").touch()
    assert find_images([image], elsewhere, elsewhere) == []


@pytest.mark.slow
def test_the_python_on_path_of_a_login_shell_is_found_though_that_prints_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "its own"
    venv.create(made, symlinks=True)
    profile = tmp_path / ".bash_profile"
    monkeypatch.setenv("HOME", str(tmp_path))
    profile.write_text(f"printf 'no newline'\nPATH='{made}/bin':$PATH\n")
    assert login_root(tmp_path, PATIENCE_S) == [made]
    # A background process of it that holds its output is not waited for.
    profile.write_text(f"sleep 300 & disown; PATH='{made}/bin':$PATH\n")
    began = time.monotonic()
    assert login_root(tmp_path, PATIENCE_S) == [made]
    assert time.monotonic() - began < 50
    profile.write_text("sleep 600\n")
    assert login_root(tmp_path, 0.3) == []
    profile.write_text("PATH=/usr/bin:/bin\n")
    assert login_root(tmp_path, PATIENCE_S) == []


def test_setup_copies_no_incomplete_or_changed_package_of_an_image(image: Path, new: Path) -> None:
    def files(name: str) -> list[str]:
        one = Distribution(name, "1.0", image / SITE / f"{name}-1.0.dist-info")
        return sorted(Path(file.target).name for file in files_of(one, new))

    install(image, "whole", {"whole.py": "1\n", "../../../bin/whole": "#!python\n"})
    assert files("whole") == ["METADATA", "RECORD", "whole", "whole.py"]
    install(image, "gone", {"gone.py": "1\n", "kept.py": ""})
    (image / SITE / "gone.py").unlink()
    install(image, "changed", {"changed.py": "1\n"})
    (image / SITE / "changed.py").write_text("other\n")
    install(image, "outside", {"../../../../outside.txt": ""})
    install(image, "absolute", {str(image / "absolute.txt"): ""})
    assert [files(name) for name in ("gone", "changed", "outside", "absolute")] == [[]] * 4


def test_copying_packages_of_an_image_leaves_the_image_unchanged(image: Path, new: Path) -> None:
    program = f"#!{image}/bin/python\nprint('x')\n"
    one = install(image, "thing", {"thing/__init__.py": "x = 1\n", "../../../bin/thing": program})
    other = install(image, "other", {"thing/__init__.py": "x = 1\n", "b.bin": "\0"})
    (image / "bin" / "thing").chmod(0o755)
    source = image / SITE / "thing" / "__init__.py"
    os.utime(source, (1_000_000_000, 1_000_000_000))
    subprocess.run([sys.executable, "-m", "compileall", "-q", source.parent], check=True)
    before = everything_of(image)
    copying = Copying.of([one, other], new)
    assert [each.name for each in copying.taken] == ["thing", "other"]
    reports: list[int] = []
    copying.run(reports.append)
    assert everything_of(image) == before
    copied = new / "thing" / "__init__.py"
    assert copied.read_text() == "x = 1\n"
    assert copied.stat().st_mtime == 1_000_000_000
    assert len(list((new / "thing" / "__pycache__").glob("*.pyc"))) == 1
    mine = new.parents[2] / "bin" / "thing"
    assert mine.read_text() == f"#!{new.parents[2]}/bin/python\nprint('x')\n"
    assert mine.stat().st_mode & 0o777 == 0o755
    rows = csv.reader((new / "thing-1.0.dist-info" / "RECORD").read_text().splitlines())
    (row,) = (row for row in rows if "bin" in row[0])
    assert row[1:] == [
        f"sha256={copy_packages.digest(mine.read_bytes())}",
        str(mine.stat().st_size),
    ]
    assert (image / "bin" / "thing").read_text() == program


def test_a_failed_copy_of_packages_of_an_image_leaves_no_files(
    image: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"thing/m{number}.py": f"{number}\n" for number in range(40)}
    copying = Copying.of([install(image, "thing", files)], new)
    real = copy_packages.copy_file

    def full(file: copy_packages.CopiedFile) -> int:
        if file.source.endswith("m30.py"):
            raise OSError(28, "No space left on device")
        return real(file)

    monkeypatch.setattr(copy_packages, "copy_file", full)
    with pytest.raises(OSError, match="No space"):
        copying.run(lambda _: None)
    assert [path for path in new.rglob("*") if path.is_file()] == []


LONG = "/" + "l" * 140 + "/bin/python"
TRAMPOLINE = f"#!/bin/sh\n'''exec' \"{LONG}\" \"$0\" \"$@\"\n' '''\n".encode()


@pytest.mark.parametrize(
    ("text", "python", "expected"),
    [
        (b"#!/venv/main/bin/python3\nimport x\n", "/n/python", b"#!/n/python\nimport x\n"),
        (b"#!/usr/bin/python3 -s\nx\n", "/n/python", b"#!/n/python\nx\n"),
        (b"#!/venv/bin/python\nx\n", LONG, TRAMPOLINE + b"x\n"),
        (TRAMPOLINE + b"x\n", "/n/python", b"#!/n/python\nx\n"),
        (b"#!/bin/sh\necho python\n", "/n/python", b"#!/bin/sh\necho python\n"),
        (b"\x7fELF python\n", "/n/python", b"\x7fELF python\n"),
    ],
)
def test_scripts_copied_from_an_image_start_the_python_of_the_new_environment(
    text: bytes, python: str, expected: bytes
) -> None:
    assert with_interpreter(text, python) == expected


def test_package_reuse_takes_network_and_disk_speed_from_the_verdict(tmp_path: Path) -> None:
    verdict = tmp_path / "gpu.json"
    assert reuse.read_speeds(verdict) == Speeds(100.0, 500.0)
    rows = [("index", "9.8 MB/s from host"), ("disk-speed", "812 MB/s"), ("ram", "8.0 GiB")]
    checks = [{"check": check, "gpu": None, "read": read} for check, read in rows]
    verdict.write_text(json.dumps({"checks": checks}))
    assert reuse.read_speeds(verdict) == Speeds(9.8, 812.0)
    checks[0]["read"], checks[1]["read"] = "no answer within 1.5 s", "a run is alive"
    verdict.write_text(json.dumps({"checks": checks}))
    assert reuse.read_speeds(verdict) == Speeds(100.0, 500.0)
    checks[0]["read"] = "0.0 MB/s from host"
    verdict.write_text(json.dumps({"checks": checks}))
    assert reuse.read_speeds(verdict).index_mb_s > 0


SAID = """\
Resolved 3 packages in 9ms
Would uninstall 2 packages
Would install 2 packages
 + fresh==2
 - Old_One==1.0
 + old-one==2
 - unused==1.0
 ~ again==1.0
"""


@pytest.mark.parametrize(("mb_s", "taken"), [("0.1", ["big", "small"]), ("900", [])])
def test_packages_of_the_image_are_copied_only_where_downloading_would_be_slower(
    image: Path, new: Path, capsys: pytest.CaptureFixture[str], mb_s: str, taken: list[str]
) -> None:
    for name in ("old-one", "unused", "again", "small"):
        install(image, name, {f"{name}.py": "1\n"})
    install(image, "big", {"big.so": Random(1).randbytes(300_000).hex()})
    verdict, note = new.parents[3] / "gpu.json", new.parents[3] / "note"
    read = {"check": "index", "gpu": None, "read": f"{mb_s} MB/s from x"}
    verdict.write_text(json.dumps({"checks": [read]}))
    place = ImageSite(str(image / SITE), "", "", 0)
    reuse.copy(verdict, new.parents[2], place, SAID, str(note))
    assert sorted(path.name.split("-")[0] for path in new.glob("*.dist-info")) == taken
    events, said = (text.splitlines() for text in capsys.readouterr())
    assert said[0].endswith("has 2 of the packages that are required:")
    # The 0.6 MB of hex digits compress to less than 0.5 MB, which is rounded to 0.
    told = "note code=image-reused count=2 have=0 secs=3"
    assert (told in events) == note.exists() == bool(taken)


def test_the_download_size_of_packages_is_estimated_within_10_percent(
    image: Path, new: Path
) -> None:
    size = 4_000_000
    random, zeros = Random(2).randbytes(size).decode("latin-1"), "\0" * size
    found = [install(image, name, {f"{name}.so": ""}) for name in ("random", "zeros")]
    for name, text in (("random", random), ("zeros", zeros)):
        (image / SITE / f"{name}.so").write_bytes(text.encode("latin-1"))
        (image / SITE / f"{name}-1.0.dist-info" / "RECORD").write_text(f"{name}.so,,\n")
    wheels = Copying.of(found, new).wheel_size()
    assert 0.9 * size < wheels < 1.1 * size


@pytest.mark.parametrize(
    ("backend", "version", "document", "fits"),
    [
        ("auto", "cuda = '12.8'", {"cuda": "12.4", "gpus": [{"capability": "8.0"}]}, True),
        ("auto", "cuda = '13.0'", {"cuda": "12.4", "gpus": [{"capability": "8.0"}]}, False),
        ("auto", "cuda = None", {"cuda": "12.4", "gpus": [{"capability": "8.0"}]}, False),
        ("auto", "cuda = None", {"cuda": None, "gpus": []}, True),
        ("cu126", "cuda: Optional[str] = '12.6'", {}, True),
        ("cu128", "cuda: Optional[str] = '12.6'", {}, False),
        ("cpu", "cuda = None\nhip = None", {}, True),
        ("cpu", "cuda = None\nhip = '6.3'", {}, False),
        ("cpu", "cuda = '12.6'", {}, False),
    ],
)
def test_the_images_torch_is_reused_only_if_its_cuda_suits_torch_backend_and_driver(
    tmp_path: Path, backend: str, version: str, document: dict[str, object], fits: bool
) -> None:
    verdict = tmp_path / "gpu.json"
    verdict.write_text(json.dumps(document))
    assert reuse.torch_fits(verdict, backend, tmp_path)  # it has none
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.7.1'\n{version}\n")
    assert reuse.torch_fits(verdict, backend, tmp_path) == fits


def test_uv_plans_an_install_with_copied_metadata_of_image_packages_but_none_of_their_code(
    image: Path, new: Path, tmp_path: Path
) -> None:
    install(image, "thing", {"thing.py": "x = 1\n"})
    reuse.make_shadow(new.parents[2], distributions(image / SITE), tmp_path / "shadow")
    shadow = tmp_path / "shadow" / SITE
    names = sorted(str(path.relative_to(shadow)) for path in shadow.rglob("*") if path.is_file())
    assert names == ["thing-1.0.dist-info/INSTALLER", "thing-1.0.dist-info/METADATA"]
    assert list(new.iterdir()) == []


def test_packages_of_an_image_are_reused_only_by_the_same_python_and_abi(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho \"(3, 9) ['.cpython-39-x86_64-linux-gnu.so']\"\n")
    other.chmod(0o755)
    assert image_packages.same_interpreter(sys.executable, sys.executable)
    assert not image_packages.same_interpreter(sys.executable, str(other))
    assert not image_packages.same_interpreter(str(tmp_path / "a"), str(tmp_path / "b"))


def test_setup_reads_the_file_list_of_an_image_package_only_once(image: Path) -> None:
    one = install(image, "thing", {"thing.py": "x = 1\n"})
    assert record(one.info) is record(one.info)
