"""As `__main__.py`, with a program that is not on this box, for a plan: nothing is written.

`python -c TEXT PROGRAM MODULE ARGUMENT…`, where TEXT is this file's, and PROGRAM has the program as
it travels.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import spec_from_loader
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


class SentProgramFiles(SourceLoader):
    def __init__(self, program: str) -> None:
        self.texts = dict(file.split("\n", 1) for file in program.split("\f")[1:])

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return spec_from_loader(name, self) if self.get_filename(name) in self.texts else None

    def get_filename(self, fullname: str) -> str:
        path = fullname.replace(".", "/")
        return f"{path}/__init__.py" if f"{path}/__init__.py" in self.texts else f"{path}.py"

    def get_data(self, path: str) -> bytes:
        return self.texts[path].encode()


if __name__ == "__main__":
    sent = SentProgramFiles(Path(sys.argv.pop(1)).read_bytes().decode())
    sys.meta_path.insert(0, sent)
    vars(import_module("onbox"))["text_of"] = sent.texts.__getitem__
    sys.exit(import_module(f"onbox.{sys.argv.pop(1)}").main())
