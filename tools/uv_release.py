"""Pin a uv for boxes: its version, and the SHA-256 of the wheel for each kind of machine.

    python -m tools.uv_release [VERSION]     (or: make uv-release)

pip downloads the wheels, so they come from the index configured for pip here.
Writes bootstrap/onbox/python/uv_release.py again; read the diff before you commit it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bootstrap.onbox.python import uv_release

#: `uname -s`-`uname -m`, and the wheel's platform. The static ones, for musl, build an
#: environment a third slower; and a box without glibc is refused before any change.
PLATFORMS = {
    "Linux-x86_64": "manylinux_2_17_x86_64",
    "Linux-aarch64": "manylinux_2_17_aarch64",
    "Darwin-arm64": "macosx_11_0_arm64",
    "Darwin-x86_64": "macosx_10_12_x86_64",
}
MODULE = Path(uv_release.__file__)


def main() -> None:
    """Fetch the wheels, check them, and write the module."""
    version = sys.argv[1] if len(sys.argv) > 1 else ""
    wheels = {}
    with tempfile.TemporaryDirectory() as folder:
        for machine, platform in PLATFORMS.items():
            wheel = _fetch(Path(folder) / machine, platform, version)
            version = wheel.name.split("-")[1]
            _look_inside(wheel, version)
            wheels[machine] = (wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest())
    MODULE.write_text(renewed(MODULE.read_text(encoding="utf-8"), version, wheels), "utf-8")
    print(f"{uv_release.VERSION} -> {version}: {MODULE}")


def renewed(module: str, version: str, wheels: dict[str, tuple[str, str]]) -> str:
    """The module's text with this version and these wheels."""
    rows = "".join(
        f'    "{machine}": (\n        "{name}",\n        "{digest}",\n    ),\n'
        for machine, (name, digest) in wheels.items()
    )
    module = re.sub(r'(?m)^VERSION = ".*"$', f'VERSION = "{version}"', module)
    return re.sub(r"(?ms)^(WHEELS: .*? = \{\n).*?^\}$", lambda found: f"{found[1]}{rows}}}", module)


def _fetch(folder: Path, platform: str, version: str) -> Path:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    wanted = f"uv=={version}" if version else "uv"
    subprocess.run(
        [*words, "--only-binary", ":all:", "--platform", platform, wanted], check=True, timeout=600
    )
    (wheel,) = folder.glob("uv-*.whl")
    return wheel


def _look_inside(wheel: Path, version: str) -> None:
    """Check that the one member that a box takes has the expected name. Raises SystemExit."""
    member = f"uv-{version}.data/scripts/uv"
    if member not in zipfile.ZipFile(wheel).namelist():
        raise SystemExit(
            f"{wheel.name} has no {member}: templates/lib/python.sh must learn where it is"
        )


if __name__ == "__main__":
    main()
