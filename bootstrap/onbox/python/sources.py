"""What an environment is made from, by the files of its repository, and what their builds may read.

Files are read generously: installers differ in what follows an option, and in quotes, so every word
counts that is the path of a file; and a build runs code of the repository.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from os.path import dirname, isdir, isfile, realpath, relpath

from ..values import Values
from .accepted import accepted

EVERY_INDEX = ("--index-strategy", "unsafe-best-match")
_MOST = 99
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_COMMENT = r"(?:^|(?<!\s)\s+)#.*$"
_NAMES_A_FILE = re.compile(r"[/\\]|-[rcef]|^\.|\.whl|\.zip|\.tar\.")  # most lines name none
_SPACED = (r"\s--?[a-z-]+[=\s]+(.*\s.*\S)", r"\s-[rc](.*\s.*\S)")
_OWN = {
    "lock": r"^source = \{ (?:editable|directory|path) = ",
    "project": r"^\[build-system\]",
    "conda": r"^ *- *[\"']?(?:-e|--editable|file:|\.)",
    "requirements": r"^[ \t]*(?:-e|--editable|file:|\.|[\w.~-]*/)|@[ \t]*(?:file:|[./])",
}
"""By which lines of its files the repository itself is installed, as a link or a copy."""
_BUILDS = ("pyproject.toml", "setup.py", "setup.cfg", "hatch_build.py", "pdm_build.py", "build.py")
_IS_READ = re.compile(
    r"(?!/|.*\.\./|.*\.(?:md|rst)$|.*(?:LICEN|COPYING))"
    r"(?:.*(?:build|version|about|req|dep|meta|setup)[^/]*\.py$|(?!.*\.py$).*[.A-Z])"
)
"""A word that may name a file which a build reads, but no text or module that is edited often."""


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
        whole = re.sub(_COMMENT, "", held + line)
        if whole.strip():
            yield begun, whole
        held, begun = "", 0
    if held.strip():
        yield begun, held


def _data(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _text(name: str) -> str:
    return decode(_data(name)).replace("\0", "")


def _sums(names: Iterable[str]) -> str:
    """Return digest and name of each of these files that is there, as sha256sum prints them."""
    there = filter(isfile, names)
    return "\n".join(f"{hashlib.sha256(_data(name)).hexdigest()}  {name}" for name in there)


def _has_line(pattern: str, names: Iterable[str]) -> bool:
    return any(re.search(pattern, _text(name), re.MULTILINE) for name in names)


def _is_project(folder: str) -> bool:
    return isfile(f"{folder}/pyproject.toml") or isfile(f"{folder}/setup.py")


class Sources:
    """What an environment is made from. Paths count from the repository's folder, in which this
    process is; `tree` is its whole path."""

    def __init__(self, tree: str) -> None:
        self.tree, self.stands_in = tree, ""
        """`stands_in`: where an installer has to stand to find a folder, if not in the tree."""
        self.kind = "nothing"
        """Or `lock`, `requirements`, `project`, `conda`."""
        self.arguments: list[str] = []
        self.of_uv: list[str] = []
        """What uv's and pip's `install` are told, and what uv alone besides."""
        self.holds_project = False
        """Whether the repository itself is installed."""
        self.stated = ""
        """The range of Pythons that its projects accept."""
        self.sums = self.built = ""
        """Digests of the files, and of what their builds may read; a change of that changes the
        content of the tree anyway."""
        self.files: list[str] = []
        self.linked: list[str] = []
        self.copied: list[str] = []
        """`linked`, `copied`: folders that are installed."""
        self.read: list[str] = []
        """What builds may read besides `files`."""
        self._seen: set[str] = set()

    def add(self, name: str) -> None:
        """Add a requirements file, and those that it names: they may name each other."""
        folder, _, last = name.rpartition("/")
        place = f"{realpath(folder)}/{last}"
        if place in self._seen or len(self.files) >= _MOST:
            return
        self._seen.add(place)
        self.files.append(name)
        if not re.search(r"\.(whl|zip|tar\.\w+)$", name):
            for _, line in requirement_lines(_text(name)):
                if _NAMES_A_FILE.search(line):
                    self._add_words(line, f"{folder}/" if folder else "")

    def _add_words(self, line: str, folder: str) -> None:
        line = re.sub(r"\$\{([A-Z0-9_]+)\}", lambda it: os.environ.get(it[1], it[0]), f" {line}")
        line = re.sub("[\"']", "", line)
        spaced = [it[1].replace("\\ ", " ") for one in _SPACED if (it := re.search(one, line))]
        how = ""
        for word in [*line.split(), *spaced]:
            option = re.match("--?[ef]", word)
            how = option[0][-1] if option else how
            name = re.sub(r"^(-[efrc]|--editable(?!=)|--[^=]*=)?@?(file:)?(//)?", "", word)
            name = name[len(self.tree) + 1 :] if name.startswith(f"{self.tree}/") else name
            if not name or name.startswith(("-", "/")) or "://" in name:
                continue
            if file := next(filter(isfile, (folder + name, name)), None):
                self.add(file)
            else:
                self._add_folder(name, folder, how)

    def _add_folder(self, name: str, folder: str = "", how: str = "") -> None:
        """Note a folder that is installed, if this is one; `how`: after `-e`, or after `-f`."""
        name = re.split(r"[;#\[]", name)[0]
        is_path = name.startswith(".") or "/" in name or how == "f"
        for at in (name, folder + name) if is_path else ():
            if how == "f" and isdir(at):
                self.copied.append(at)
                return
            if _is_project(at):
                found = at
                if at != name:
                    self.stands_in = f"{self.tree}/{folder.rstrip('/')}"
                    found = relpath(realpath(at), realpath(""))
                if not found.startswith("../"):
                    (self.linked if how == "e" else self.copied).append(found)
                return

    def add_named(self, words: Iterable[str]) -> None:
        """Add the folders that the profile names to an installer."""
        how = ""
        for word in words:
            self._add_folder(re.sub(r"^([^@]*@)? ?(file:)?(//)?", "", word), how=how)
            how = "e" if word == "-e" else ""

    def name_files(self, names: Iterable[str]) -> None:
        """Let these requirements files be installed."""
        at = f"{self.tree}/" if self.stands_in else ""
        self.arguments = [word for name in names for word in ("-r", at + name)]
        if self.arguments and self.stands_in:
            self.of_uv += ["--directory", self.stands_in]
        # pip looks into every index that a file names and takes the best; uv does so with this.
        if self.arguments and _has_line(r"^[^\w#\n-]*--extra-index-url", self.files):
            self.of_uv += EVERY_INDEX

    def find_read(self) -> None:
        """Find what the builds of all that is installed from folders may read."""
        for folder in [*self.linked, *self.copied]:
            self._read_project(folder)
        # uv reads its settings there, such as constraints and indexes.
        self._read("uv.toml")
        if "[tool.uv" in _text("pyproject.toml"):
            self._read("pyproject.toml")

    def _read(self, name: str) -> None:
        if isfile(name) and name not in (*self.files, *self.read):
            self.read.append(name)

    def _read_project(self, folder: str) -> None:
        """Add what describes the project there, and the files that this names."""
        at = re.sub(r"^(\./)+", "", folder.rstrip("/") + "/")
        if f"{at}/" in self._seen:
            return
        self._seen.add(f"{at}/")
        for name in filter(isfile, (at + each for each in _BUILDS)):
            self._read(name)
            self._read_named(at, name)
        # Code may put names together.
        for place in ("", "requirements/", "requires/", "reqs/") if isfile(f"{at}setup.py") else ():
            for name in sorted(os.listdir(at + place or ".") if isdir(at + place or ".") else ()):
                if place or name.endswith((".txt", ".in")) or "VERSION" in name:
                    self._read(at + place + name)

    def _read_named(self, at: str, file: str) -> None:
        """Add files of the folder that its file names, whatever its syntax is, and modules that it
        imports; folders that it names, if they are projects too."""
        for line in _text(file).splitlines():
            found = re.match(r"\s*(?:from|import)\s+(\w[\w.]*)", line)
            if found and file.endswith(".py"):
                module = at + found[1].replace(".", "/")
                self._read(f"{module}.py")
                self._read(f"{module}/__init__.py")
            words = re.sub(r"[\]\[\"'(),=:{}]", " ", line)
            for word in words.split():
                if _IS_READ.match(word):
                    self._read(at + re.sub(r"^\./", "", word))
                if re.match(r"(?!/|\./$)(.*/|\.\.)", word) and _is_project(at + word):
                    self.copied += [] if re.search("editable.*true", words) else [at + word]
                    self._read_project(at + word)


def find_sources(tree: str, values: Values) -> Sources:
    """Return them in this order: what the profile says, uv.lock, requirements.txt, pyproject.toml.
    Extras are the project's: with them requirements.txt is not meant. This process is in the tree
    then; of one that is not there yet nothing is known."""
    sources, conda, lock, extras = Sources(tree), values.conda, values.lock, values.extras
    added = [*values.added_arguments, *values.built_last]
    try:
        os.chdir(tree)
    except OSError:
        return sources
    of_extras = [word for extra in extras for word in ("--extra", extra)]
    locked: list[tuple[str, str]] = []
    is_named = conda or values.requirements_set
    requirements = values.requirements if is_named else ["requirements.txt"]
    if not conda and (lock or (not is_named and isfile("uv.lock"))):
        sources.kind, lock = "lock", lock or "uv.lock"
        sources.files += [lock, f"{dirname(lock) or '.'}/pyproject.toml"]
        sources.arguments = ["--project", dirname(lock) or ".", *of_extras]
        pattern = r'^source = \{ (editable|directory) = "([^"]+)"'
        locked = re.findall(pattern, _text(lock), re.MULTILINE)
    elif is_named or (isfile("requirements.txt") and not extras):
        sources.kind = "conda" if conda else "requirements" if requirements else "nothing"
        for name in (*filter(None, [conda]), *requirements):
            sources.add(name)
    elif isfile("pyproject.toml"):
        sources.kind, sources.files = "project", ["pyproject.toml"]
        # One that can be built is installed as a link; of any other only the dependencies are.
        names = f"[{','.join(extras)}]" if extras else ""
        is_built = _has_line(_OWN["project"], sources.files)
        sources.arguments = (
            ["-e", f".{names}"] if is_built else ["-r", "pyproject.toml", *of_extras]
        )
    sources.add_named(added)
    if sources.kind in ("conda", "requirements"):
        sources.name_files(requirements)
    if sources.kind not in ("lock", "project") and added[:1] == ["--group"]:
        sources.files.append("pyproject.toml")
    files = sources.files if sources.kind == "requirements" else sources.files[:1]
    by_line = sources.kind in _OWN and _has_line(_OWN[sources.kind], files)
    sources.holds_project = bool(sources.linked or sources.copied or by_line)
    folders = [".", *map(dirname, files[:1]), *sources.linked, *sources.copied]
    sources.stated = ",".join(dict.fromkeys(filter(None, map(accepted, folders))))
    sources.copied += [folder for how, folder in locked if how == "directory"]
    sources.linked += [folder for how, folder in locked if how == "editable"]
    sources.linked += ["."] if sources.kind == "project" else []
    sources.find_read()
    read = _sums(sources.read)
    sources.built = hashlib.sha256(os.fsencode(read)).hexdigest() if read else ""
    sources.sums = _sums(sources.files)
    if sources.kind in ("conda", "requirements"):  # else what lacks one would seem right
        missing = (f"\n{'0' * 64}  {name}" for name in requirements if not isfile(name))
        sources.sums += "".join(missing)
    sources.copied = [re.sub(r"^(\./)+|^\.$", "", folder) for folder in sources.copied]
    return sources
