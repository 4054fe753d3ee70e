"""What runs on a box, as it is here: there it is `box/DIGEST/onbox/`, beside the shell programs.

A folder for each thing it does; what several of them share is here.

Python 3.8 and up; what fetches uv, `__main__.py` and this file run with 3.6. `transfer/` travels
with a query and doesn't stay (`bootstrap/setup/program.py`).
"""

import os

MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
"""Starts a program of this package, in any Python: `python MAIN runs.monitor ARGUMENT…`."""
SHELL_PROGRAMS = os.path.dirname(os.path.dirname(MAIN))
AGENT = {"User-Agent": "boxstrap/0.1.0"}
"""What every request says it is from: usual front ends turn away the default of urllib."""


def text_of(name: str) -> str:
    """Return the text of one of the program's files."""
    with open(os.path.join(SHELL_PROGRAMS, name), encoding="utf-8") as file:
        return file.read()
