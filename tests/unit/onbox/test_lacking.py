"""What a build, a program or a module lacks is named with the package that brings it."""

import subprocess
from pathlib import Path

import pytest

from bootstrap.onbox.python import lacking as lacking_module
from bootstrap.onbox.python.lacking import advice, lacking, missing_libraries
from tests.cases import read_cases
from tests.programs import captured


@pytest.mark.parametrize(
    ("brings", "said"),
    [*read_cases(Path(__file__).with_name("lacking.txt"))[1:], ("nothing", "")],
)
def test_setup_names_the_tool_or_header_that_a_failed_package_build_lacks(
    brings: str, said: str
) -> None:
    what, _, package = brings.partition(", in ")
    assert lacking(said) == ((what, package) if package else None)
    advised = f"The box lacks {what}: Debian's {package} brings it (packages: [{package}])"
    assert advice(said) == (advised if package else "")


@pytest.mark.parametrize("first_line", ["#!/usr/bin/env bash", "#!/bin/bash"])
def test_a_script_with_crlf_in_its_first_line_is_told_what_is_wrong_with_it(
    tmp_path: Path, first_line: str
) -> None:
    script = tmp_path / "go.sh"
    script.write_text(f"{first_line}\r\ntrue\r\n", newline="")
    script.chmod(0o755)
    done = captured(["bash", "-c", script], check=False)
    assert "ends in CRLF" in advice(done.stderr)
    said = "bash: ./go.sh: /bin/bash^M: bad interpreter: No such file or directory"  # an older bash
    assert advice(said) == advice(done.stderr)


def test_setup_finds_shared_libraries_that_a_package_needs_and_a_box_lacks(tmp_path: Path) -> None:
    site, other = tmp_path / "site", tmp_path / "other"
    for folder in (site / "cv2", other):
        folder.mkdir(parents=True)
    (site / "cv2/damaged.so").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 90)
    (site / "cv2/empty.so").touch()

    def build(target: Path, *words: str) -> None:
        gcc = ["gcc", "-shared", "-nostdlib", "-Wl,--no-as-needed", "-o", target, "-x", "c"]
        subprocess.run([*gcc, "/dev/null", "-x", "none", *words], check=True)

    for name in ("libOSMesa.so.8", "libunknown.so.1"):
        build(other / name, f"-Wl,-soname,{name}")
    build(site / "cv2/cv2.abi3.so", *map(str, other.iterdir()))
    assert [*missing_libraries(str(site))] == ["libOSMesa.so.8"]
    (site / "cv2.libs").mkdir()
    (other / "libOSMesa.so.8").rename(site / "cv2.libs/libOSMesa.so.8")
    assert not [*missing_libraries(str(site))]


def test_advice_on_missing_libraries_leaves_out_packages_that_another_named_one_brings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [
        "libGL.so.1", "libX11.so.6", "libxcb.so.1", "libglib-2.0.so.0", "libgthread-2.0.so.0",
    ]  # fmt: skip
    monkeypatch.setattr(lacking_module, "missing_libraries", lambda _: missing)
    lacking_module.warn_of_lacking("/site")
    said = capsys.readouterr()
    events = ["warn code=lacks-libgl1", "warn code=lacks-libglib2.0-0"]
    assert said.out.splitlines() == events
    assert len(said.err.splitlines()) == 5
