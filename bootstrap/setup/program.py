"""The program: what runs on a box, the same for everybody who has this version.

Its files are those of `templates/` (`lib/`, `steps/`, `doors/`, and of `box/` at its top), and the
package `onbox/`, as they are here; `defaults.sh` has the values of the plainest profile. A box has
it in a folder under its digest, so that two versions never meet there; it is sent once.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache, cached_property
from itertools import chain

from bootstrap.paths import shipped
from bootstrap.setup.script import RECIPE_HERE, STAGE0, default_values, kept_text, page
from bootstrap.steps.shell import assignments, bare_python, bare_shell, onbox_files
from bootstrap.value import dataclass

_NOT_OF_IT = (
    *("onbox/transfer/", "onbox/probe.py", "onbox/server.py", "onbox/editor.py"),
    "doors/fetch.sh",
)
"""What comes with a query and doesn't stay, or before a narrow door's program."""
_NOT_OF_A_DOOR = ("onbox/from_memory.py",)
"""What only another machine asks for."""
_OF_FEW = {
    "onbox/data/download.py": "DATA",
    "onbox/data/items.py": "DATA",
    "onbox/data/sources.py": "DATA",
    "onbox/steps/data.py": "DATA",
    "onbox/lease/": "LEASE",
    "onbox/steps/lease.py": "LEASE",
    "onbox/steps/prepare.py": "PREPARE",
    "onbox/bucket/": "RESULTS_TO",
    "onbox/conda/": "CONDA",
    "onbox/python/pip.py": "INSTALLER",
    "onbox/python/dependencies.py": "DEPENDENCIES",
    "onbox/work/dependency.py": "DEPENDENCIES",
    "onbox/nodes/": "TRAIN_NODES",
}
"""What a packed door leaves out, unless the profile sets this variable."""


@dataclass(frozen=True)
class Program:
    """The program as it travels: each file after a form feed and a line with its name."""

    text: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def files_digest(self) -> str:
        """SHA-256 of its files, one after another, in the order in which a shell lists them."""
        return hashlib.sha256(re.sub(r"\f.*\n", "", self.text).encode()).hexdigest()

    @cached_property
    def packed(self) -> bytes:
        """It as gzip; from the cache of this machine if it was packed before."""
        import gzip  # late: a box gets it once

        return kept_text(self.digest, lambda: gzip.compress(self.text.encode(), 6, mtime=0))


@cache
def program() -> Program:
    files = program_files()
    in_order = sorted(files, key=lambda name: (name.count("/"), name))
    return _put_together({name: files[name] for name in in_order})


def packed_program(used: Collection[str]) -> Program:
    """Return what a packed door carries of it: without comments, docstrings and indentation, and
    without what is not `used`, the variables that the profile sets."""
    unused = tuple(place for place, name in _OF_FEW.items() if name not in used)
    files = program_files(bare=True)
    wanted = {name: text for name, text in files.items() if not name.startswith(unused)}
    return _put_together({name: wanted[name] for name in _like_after_like(wanted)})


_LOOKS_BACK = 30_000  # characters; gzip 32 KiB


def _like_after_like(files: Mapping[str, str]) -> list[str]:
    """Return the names in an order in which gzip finds much of each file shortly before it."""
    words = {name: re.findall(r"\w+|[^\w\s]", text) for name, text in files.items()}
    found = {
        name: {*zip(*(each[n:] for n in range(4)), strict=False)} for name, each in words.items()
    }
    times = Counter(chain.from_iterable(found.values()))  # those of one file alone are of no matter
    bits = {one: 1 << at for at, one in enumerate(one for one in times if times[one] > 1)}
    phrases = {name: sum(bits.get(one, 0) for one in each) for name, each in found.items()}
    order: list[str] = []
    while left := [name for name in files if name not in order]:
        before, size = 0, 0
        for name in reversed(order):
            before |= phrases[name]
            size += len(files[name])
            if size > _LOOKS_BACK:
                break
        known = {
            name: (phrases[name] & before).bit_count() / len(files[name]) ** 0.7 for name in left
        }
        order.append(max(left, key=known.__getitem__))
    return order


def _put_together(files: Mapping[str, str]) -> Program:
    return Program("".join(f"\f{name}\n{text}" for name, text in files.items()))


@cache
def program_files(*, bare: bool = False) -> dict[str, str]:
    """Return the text of each of its files, by its path in the program's folder."""
    defaults = f"# What a recipe doesn't name is as here.\n{assignments(default_values())}"
    files = {"setup.sh": page(RECIPE_HERE, bare=bare), "defaults.sh": defaults}
    for kind in ("lib", "doors", "box"):
        for file in sorted((shipped("templates") / kind).glob("*.sh")):
            if kind == "lib" and file.stem in STAGE0:
                continue
            files[file.name if kind == "box" else f"{kind}/{file.name}"] = file.read_text("utf-8")
    files |= onbox_files()
    left = (*_NOT_OF_IT, *_NOT_OF_A_DOOR) if bare else _NOT_OF_IT
    own = {name: text for name, text in files.items() if not name.startswith(left)}
    return {name: _bare(name, text) for name, text in own.items()} if bare else own


def _bare(name: str, text: str) -> str:
    if name in ("setup.sh", "defaults.sh"):
        return text
    return f"{bare_python(text)}\n" if name.endswith(".py") else bare_shell(text)
