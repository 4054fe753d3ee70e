"""Requirements files as pip and uv read them, and what neither can install anywhere else."""

from __future__ import annotations

import codecs
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.repo.names import shown

if TYPE_CHECKING:
    from bootstrap.profile.schema import Python

ReadData = Callable[[list[str]], dict[str, bytes]]
"""Reads files by name; returns the contents of those that exist."""

_MOST = 200
_COMMENT = re.compile(r"(?:^|(?<!\s)\s+)#.*$")
_INCLUDE = re.compile(r"\s*(?:- *[\"']?)?(?:-r|-c|--requirement|--constraint)(?:[\s=]+|(?=\S))(.+)")
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-.\w]+)", re.MULTILINE)
_PATH = re.compile(r"(?:@\s*|^\s*(?:- *[\"']?)?(?:-e\s*)?)file:(?://(?:localhost)?)?(/[^\s;#\"']+)")
_OF_CONDA = re.compile(
    r"/croot/|feedstock_root|/conda-bld/|/tmp/build/|/bld/|/_bld/|/tmp/abs_|/rattler-build"
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_OF_A_MACHINE = re.compile(r"/?[A-Za-z]:|/Users/")


def decode(data: bytes, errors: str = "replace") -> str:
    """Decode as pip and uv do: by a byte-order mark, as PowerShell writes it, else as UTF-8."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors)
    return data.decode(errors=errors)


def requirement_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, continued ones joined, without comments."""
    held, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            held += line[:-1]
            continue
        whole = _COMMENT.sub("", held + line)
        if whole.strip():
            yield begun, whole
        held, begun = "", 0
    if held.strip():
        yield begun, held


def included(line: str) -> str | None:
    """Return the file that a line includes, without quotes; None if it includes none."""
    found = _INCLUDE.match(line)
    return found[1].strip().strip("\"'").replace("\\ ", " ") if found else None


def check_requirements(python: Python, read: ReadData) -> None:
    """Raise UsageError for what no installer on a box can read: before anything is sent."""
    waiting = [*([python.conda] if python.conda else []), *(python.requirements or [])]
    if not waiting and python.requirements is None and not python.lock:
        waiting = ["requirements.txt"] if not read(["uv.lock"]) else []
    seen: set[str] = set()
    while waiting and len(seen) < _MOST:
        data = read(waiting)
        seen.update(waiting)
        waiting = [
            name
            for file, content in data.items()
            for name in _checked(file, content, python, read)
            if name not in seen
        ]


def _checked(file: str, data: bytes, python: Python, read: ReadData) -> list[str]:
    """Check one file; return those that it includes."""
    if PurePosixPath(file).suffix in (".toml", ".py", ".cfg"):
        return []
    found = []
    for number, line in requirement_lines(_text(file, data, python)):
        where = f"{shown(file)}:{number}"
        if path := _PATH.search(line):
            _check_path(path[1], line.strip(), where)
        name = included(line)
        if name is None or "://" in name or "${" in name or name.startswith(("/", "file:")):
            continue
        inner = posixpath.normpath(PurePosixPath(file).parent / name)
        if inner.startswith("../"):
            continue
        if not read([inner]):
            raise UsageError(
                f"it includes {shown(inner)}, which isn't in what is sent.",
                where=where,
                hint="Commit that file (an ignored one never travels), or remove the line.",
            )
        found.append(inner)
    return found


def _text(file: str, data: bytes, python: Python) -> str:
    coding = _CODING.match(data[:200]) if python.installer == "pip" else None
    try:
        if coding:
            return data.decode(coding[1].decode())
        return decode(data, "strict")
    except (UnicodeDecodeError, LookupError) as error:
        at = error.start if isinstance(error, UnicodeDecodeError) else 0
        raise UsageError(
            "it isn't UTF-8, so no installer can read it.",
            where=f"{shown(file)}:{data[:at].count(bytes([10])) + 1}",
            hint=f"Save it as UTF-8, for example: iconv -f latin1 -t utf-8 {shown(file)}",
        ) from None


def _check_path(path: str, line: str, where: str) -> None:
    """Raise UsageError for a path of another machine, as `pip freeze` writes in conda."""
    name = re.split(r"[ @]", line.lstrip("- \"'"))[0]
    if _OF_CONDA.search(path):
        raise UsageError(
            f"{shown(line[:120])} names the folder in which conda's package was built.",
            where=where,
            hint=f"Write {shown(name)} with its version, as `pip list --format=freeze` prints it.",
        )
    if _OF_A_MACHINE.match(path):
        raise UsageError(
            f"{shown(line[:120])} names a folder of one machine, which a box does not have.",
            where=where,
            hint="Put it into the repository and name it by its path there, or name a release.",
        )
