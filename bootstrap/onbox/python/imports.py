"""Find the modules of an environment that a script will import, in order, without running it.

Source is read line by line: what a module imports when it is loaded is at its top level, or in an
`if`, `try` or `with` there. Modules that a package loads lazily are found by the names that are
taken from the package. A wrong guess only costs a little work.

Compile modules in memory while they are still being fetched; write the bytecode afterwards.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import re
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import NamedTuple

# It starts with a literal newline, which takes a third of the time of `^`.
IMPORT = re.compile(
    r"\n(?:"
    r"(?P<indent>[ \t]*)(?:import[ \t]+(?P<plain>[\w., \t]+)"
    r"|from[ \t]+(?P<source>\.*[\w.]*)[ \t]+import[ \t]*(?P<names>\([^)]*\)|(?:[^\n\\]|\\\n)*))"
    r"|(?P<block>if|elif|else|try|except|finally|with|for|while|def|class|async|@)(?P<rest>[^\n]*))"
)
DOCSTRING = re.compile(r"\s*(?:#[^\n]*\n\s*)*[rRbBuU]?(\"\"\"|''')")
RUN_AT_ONCE = frozenset({"if", "elif", "else", "try", "except", "finally", "with", "for", "while"})
LAZY = re.compile(r"_LazyModule|lazy_loader|lazy_import")
DEFINED = re.compile(r"\n(?:class|def) (\w+)")
LATE = {"torch.optim": ("torch._dynamo",)}
"""Modules that a package imports at its first use, within functions."""
MOST = 20_000  # modules, after which a walk ends


class ImportStatement(NamedTuple):
    """One import: `module` with its leading dots, and the names that are taken from it."""

    module: str
    names: tuple[str, ...] = ()


def imports_of(source: str, *, everywhere: bool = False) -> Iterator[ImportStatement]:
    """Yield what a module imports when it is loaded; if `everywhere`, in its functions too."""
    taken = True
    told = DOCSTRING.match(source)
    begin = max(source.find(told[1], told.end()), 0) if told else 0
    for found in IMPORT.finditer("\n" + source, begin):
        if found["block"]:
            taken = found["block"] in RUN_AT_ONCE and "TYPE_CHECKING" not in found["rest"]
        elif everywhere or taken or not found["indent"]:
            taken = taken if found["indent"] else True
            if found["plain"]:
                for each in found["plain"].split(","):
                    yield ImportStatement(each.split(" as ")[0].strip())
            else:
                listed = re.sub(r"#[^\n]*|[()\\]", "", found["names"]).split(",")
                names = (each.split(" as ")[0].strip() for each in listed)
                yield ImportStatement(found["source"], tuple(each for each in names if each))


class KnownSources:
    """Imports and definitions already read, by module name and size: reading costs most."""

    def __init__(self) -> None:
        self.imports: dict[tuple[str, int], list[ImportStatement]] = {}
        self.definitions: dict[tuple[str, int], dict[str, str]] = {}


class Walk:
    """The modules that a script will import; `order` has their files in the order of loading.

    `roots` are searched like sys.path. Only files below `environment` are listed in `order`; others
    are just read. `known` is what earlier walks have read.
    """

    def __init__(
        self, roots: list[Path], environment: Path, known: KnownSources | None = None
    ) -> None:
        self.roots = [str(root) for root in roots]
        self.known = known or KnownSources()
        self.environment = str(environment) + "/"
        self.order: list[str] = []
        self._seen: set[str] = set()
        self._files: dict[str, str] = {}
        self._defined: dict[str, dict[str, str]] = {}
        self._folders: dict[str, frozenset[str]] = {}

    def script(self, file: Path) -> None:
        """Follow a script, which is in no package."""
        self.roots.insert(0, str(file.parent))
        self._follow_own(read(str(file)), "")

    def _follow_own(self, source: str, package: str) -> None:
        """Follow a repository file's imports, in functions too, and names it takes from modules."""
        found = [*imports_of(source, everywhere=True)]
        for each in found:
            self._follow(each, package)
        for module in dict.fromkeys(each.module for each in found if not each.names):
            self._late_names(module, re.findall(rf"\b{re.escape(module)}\.(\w+)", source))

    def module(self, name: str) -> None:
        """Follow a module, and the packages that it is in."""
        parts = name.split(".")
        for at in range(1, len(parts) + 1):
            self._load(".".join(parts[:at]))

    def _follow(self, each: ImportStatement, package: str) -> None:
        dots = len(each.module) - len(each.module.lstrip("."))
        base = each.module[dots:]
        if dots:
            above = package.rsplit(".", dots - 1)[0] if dots > 1 else package
            base = f"{above}.{base}" if base else above
        if not base:
            return
        self.module(base)
        late = []
        for name in each.names:
            if self._find(f"{base}.{name}"):
                self.module(f"{base}.{name}")
            else:
                late.append(name)
        self._late_names(base, late)

    def _load(self, name: str) -> None:
        if name in self._seen or len(self._seen) > MOST:
            return
        self._seen.add(name)
        file = self._find(name)
        if not file.endswith(".py"):
            return
        package = name if file.endswith("/__init__.py") else name.rpartition(".")[0]
        if not file.startswith(self.environment):
            self._follow_own(read(file), package)
            return
        self.order.append(file)
        key = name, size_of(file)
        if key not in self.known.imports:
            self.known.imports[key] = [*imports_of(read(file))]
        for each in self.known.imports[key]:
            self._follow(each, package)
        for late in LATE.get(name, ()):
            self.module(late)

    def _late_names(self, package: str, names: Iterable[str]) -> None:
        """Follow the modules that a lazily loading package loads for these names."""
        if package not in self._defined:
            self._defined[package] = self._definitions(package, self._find(package))
        for name in names:
            if name in self._defined[package]:
                self.module(f"{package}.{self._defined[package][name]}")

    def _definitions(self, package: str, file: str) -> dict[str, str]:
        """Return the module of each class and function of a lazily loading package."""
        found: dict[str, str] = {}
        key = package, size_of(file)
        if key in self.known.definitions:
            return self.known.definitions[key]
        if not file.endswith("/__init__.py") or not LAZY.search(read(file)):
            return found
        if "/.tmp" not in file:  # in there it is still being unpacked
            self.known.definitions[key] = found
        top = os.path.dirname(file)
        for folder, _, names in os.walk(top):
            inner = folder[len(top) + 1 :].replace("/", ".")
            for name in names:
                if name.endswith(".py"):
                    module = f"{inner}.{name[:-3]}".lstrip(".").removesuffix(".__init__")
                    source = "\n" + read(f"{folder}/{name}")
                    found.update((each, module) for each in DEFINED.findall(source))
        return found

    def _find(self, name: str) -> str:
        """Return a module's file, or the folder of a package without __init__.py; "" if none."""
        if name not in self._files:
            self._files[name] = self._look(name)
        return self._files[name]

    def _look(self, name: str) -> str:
        package, _, last = name.rpartition(".")
        if not package and last in sys.stdlib_module_names:
            return ""
        bare = ""
        for folder in self._folders_of(package):
            there = self._listed(folder)
            if last in there and "__init__.py" in self._listed(f"{folder}/{last}"):
                return f"{folder}/{last}/__init__.py"
            if f"{last}.py" in there:
                return f"{folder}/{last}.py"
            if last in there and not bare and self._listed(f"{folder}/{last}"):
                bare = f"{folder}/{last}"
        return bare

    def _folders_of(self, package: str) -> list[str]:
        """Return where to look for a package's modules; without a package, the roots."""
        if not package:
            return self.roots
        above = self._find(package).removesuffix("/__init__.py")
        return [] if not above or above.endswith(".py") else [above]

    def _listed(self, folder: str) -> frozenset[str]:
        if folder not in self._folders:
            try:
                self._folders[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._folders[folder] = frozenset()
        return self._folders[folder]


def size_of(file: str) -> int:
    """Return a file's size in bytes; 0 if it can't be examined."""
    try:
        return os.stat(file).st_size
    except OSError:
        return 0


def read(file: str) -> str:
    """Return the text of a source; "" if it can't be read."""
    try:
        with open(file, "rb") as stream:
            return stream.read().decode("latin-1")  # never fails; import statements are ASCII
    except OSError:
        return ""


MOST_KEPT = 256 * 2**20  # bytes
LONGEST_PAUSE_S = 0.3


class FetchedModules:
    """Modules that uv unpacks in its `cache`, by their paths in the environment's `site`.

    A source may be read while it is still being written, and the cache may have another version
    of it: compiled code is used only if the installed source is the same, byte for byte.
    """

    def __init__(self, cache: Path, site: Path) -> None:
        self.cache = cache
        self._site = site
        self._began = time.time() - 1  # file times are coarse, and may be earlier than the clock
        self._kept: dict[str, tuple[bytes, bytes]] = {}  # source and code
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def sites(self) -> list[Path]:
        """Return the folders of wheels that are being unpacked, or were since this started."""
        found = []
        for folder in (*self.cache.glob(".tmp*"), *self.cache.glob("archive-v0/*")):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime >= self._began:
                    found.append(folder)
        return found

    def compile_until(
        self, installed: Path, installer: int, modules: Callable[[], list[str]]
    ) -> None:
        """Compile `modules`, the last one first, until the file `installed` exists.

        Exits if the parent process, `installer`, ended before that, perhaps long before this
        process got a core.
        """
        pause = 0.0
        while not installed.exists():
            if os.getppid() != installer:
                raise SystemExit
            time.sleep(pause)
            pause = min(2 * pause + 0.05, LONGEST_PAUSE_S)
            for file in reversed(modules()):
                if installed.exists() or os.getppid() != installer:
                    break
                if self.add(Path(file)):
                    pause = 0

    def add(self, file: Path) -> bool:
        """Compile a file of the cache; return whether there was anything to do."""
        first, second, *rest = file.relative_to(self.cache).parts
        place = "/".join([second, *rest] if first.startswith(".tmp") else rest)
        try:
            if self._bytes > MOST_KEPT or self._sizes.get(place) == file.stat().st_size:
                return False
            source = file.read_bytes()
        except OSError:
            return False
        code = b""  # if it can't be compiled, the training reports that
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            compiled = compile(source, self._site / place, "exec", dont_inherit=True)
            code = marshal.dumps(compiled)
        self._kept[place], self._sizes[place] = (source, code), len(source)
        self._bytes += len(source) + len(code)
        return True

    def land(self) -> None:
        """Write the bytecode of the modules that were installed, in import order."""
        for place, (source, code) in reversed(self._kept.items()):
            if code:
                with contextlib.suppress(OSError):
                    land(self._site / place, source, code)
        self._kept.clear()


def land(file: Path, source: bytes, code: bytes) -> None:
    """Write a module's bytecode as an import does, whole or not at all. Raises OSError.

    Does nothing if the file has another source or already has bytecode.
    """
    target = Path(cache_from_source(str(file)))
    seen = file.stat()
    if target.exists() or file.read_bytes() != source:
        return
    # The bytecode is valid for a source of this time and size (PEP 552).
    numbers = (each & 0xFFFFFFFF for each in (0, int(seen.st_mtime), seen.st_size))
    target.parent.mkdir(exist_ok=True)
    new = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        new.write_bytes(MAGIC_NUMBER + struct.pack("<3I", *numbers) + code)
        new.replace(target)
    except OSError:
        new.unlink(missing_ok=True)
        raise
