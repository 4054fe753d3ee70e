"""What a repository shows beyond plain files: scripts that may be the training, what these
and its notebooks import, extras of its lock. Read as text, within limits; nothing in it is run."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

LARGEST_READ = 64 * 1024  # bytes of a file that is only looked through
_LARGEST = 4 * 1024 * 1024  # bytes of a lock or a notebook
_MOST = 200  # folders or notebooks
_TRAINING = re.compile(r"(.*train.*|main)\.py", re.IGNORECASE)
_PROGRAM = re.compile(r"^if __name__ == [\"']__main__[\"']", re.MULTILINE)
_LARGEST_SCRIPT = 512 * 1024  # bytes
_NOT_THEIRS = ("site-packages", "node_modules", "tests", "test")
_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*)"
_REQUIRED = re.compile(rf"^\s*{_NAME}|[\"']{_NAME}", re.MULTILINE)
_LOCKED = re.compile(rf'^name = "{_NAME}"', re.MULTILINE)
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)
_EXTRA = re.compile(rf"^{_NAME} = \[(.*?)^\]", re.MULTILINE | re.DOTALL)
_OWN_PACKAGE = re.compile(r'^source = \{ (?:editable|virtual) = "\." \}', re.MULTILINE)
# Modules whose package is called otherwise.
_PACKAGES = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "google": "protobuf",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def text(path: Path, largest: int = LARGEST_READ) -> str:
    """The begin of a file as text; "" where there is none that can be read."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(largest).decode(errors="replace")
    return ""


def lock_text(root: Path) -> str:
    """The uv.lock of the repository, or ""."""
    return text(root / "uv.lock", _LARGEST)


def scripts_below(root: Path) -> list[str]:
    """What may be the training, by its name, at the top and one folder down."""
    found = [path.name for path in _inside(root) if _TRAINING.fullmatch(path.name)]
    found.sort(key=lambda name: "train" not in name.lower())
    for folder in _inside(root):
        if folder.is_dir() and not folder.is_symlink() and folder.name not in _NOT_THEIRS:
            found += [
                f"{folder.name}/{path.name}"
                for path in _inside(folder)
                if _TRAINING.fullmatch(path.name)
            ]
    return found


def programs(root: Path) -> list[str]:
    """Scripts at the top that are there to be run, whatever they are called."""
    return [
        path.name
        for path in _inside(root)
        if path.suffix == ".py" and _PROGRAM.search(text(path, _LARGEST_SCRIPT))
    ]


def torch_extras(lock: str) -> tuple[str, ...]:
    """The project's own extras that bring torch, where the project alone does not."""
    own = next((part for part in lock.split("[[package]]") if _OWN_PACKAGE.search(part)), "")
    always, _, extras = own.partition("[package.optional-dependencies]")
    extras = extras.partition("\n[")[0]
    if '{ name = "torch"' in always:
        return ()
    return tuple(name for name, needs in _EXTRA.findall(extras) if '{ name = "torch"' in needs)


def uncovered(
    root: Path, scripts: Iterable[str], requirements: str, lock: str
) -> tuple[tuple[str, str], ...]:
    """Script or notebook and module, for each import that no requirement is named like."""
    named = {name for pair in _REQUIRED.findall(requirements) for name in pair if name}
    covered = {_same(name) for name in {*named, *_LOCKED.findall(lock)}}
    missing: dict[str, str] = {}
    sources = [(root / name, [text(root / name, _LARGEST_SCRIPT)]) for name in scripts]
    sources += [(path, _cells(text(path, _LARGEST))) for path in _notebooks(root)]
    for path, code in sources:
        homes = {root, root / "src", path.parent}
        for module in _imports(code):
            at_home = any(
                (home / f"{module}{end}").exists() for home in homes for end in ("", ".py")
            )
            package = _PACKAGES.get(module, module)
            if not at_home and not {_same(module), _same(package)} & covered:
                missing.setdefault(package, str(path.relative_to(root)))
    return tuple((where, package) for package, where in missing.items())


def _inside(folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []
    return found[:_MOST]


def _notebooks(root: Path) -> Iterator[Path]:
    for path in _inside(root):
        if path.suffix == ".ipynb":
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from (inner for inner in _inside(path) if inner.suffix == ".ipynb")


def _cells(notebook: str) -> list[str]:
    try:
        cells = json.loads(notebook)["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def _imports(code: Iterable[str]) -> Iterator[str]:
    for source in code:
        yield from (each for each in _IMPORT.findall(source) if each not in sys.stdlib_module_names)


def _same(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
