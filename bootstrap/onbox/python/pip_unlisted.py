"""Print the packages in an environment that pip would not install, one name a line.

usage: onbox python.pip_unlisted REPORT, which `pip install --dry-run --report` wrote
Python 3.8 and its standard library only, since it runs in the environment itself.
"""

import json
import sys
from importlib.metadata import distributions
from pathlib import Path

from .image_packages import LEFT_ALONE, plain


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    wanted = {plain(one["metadata"]["name"]) for one in report["install"]}
    here = {plain(one.metadata["Name"]) for one in distributions() if one.metadata["Name"]}
    for name in sorted(here - wanted - LEFT_ALONE):
        sys.stdout.write(f"{name}\n")
