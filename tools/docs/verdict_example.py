"""Write an example of the page that `verify --report` makes: eight GPUs, one of them faulty.

    python -m tools.docs.verdict_example docs/verdict-example.html        (or: make docs)

The real reader reads the GPUs from the stand-in for NVML, and the real judge judges them; the page
says that it is an example. All other facts are fixed, so that the page is always the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from bootstrap.boxes import verdict
from bootstrap.onbox import MAIN
from bootstrap.onbox.verdict import judge, readers
from bootstrap.onbox.verdict.expected_hardware import parse_expected
from bootstrap.profile.load import read_profile
from bootstrap.runs import page
from tests.nvml import scenarios, stub

SCENARIO = f"""{scenarios.H100}
count = 8
gpu.3.ecc_now = 12
gpu.3.remapped = 4 2 0 1
gpu.6.power_limit = 500000
""" + "".join(f"gpu.{n}.uuid = GPU-{n}0000000-1111-2222-3333-444444444444\n" for n in range(8))
ORDER = {
    "count": 8,
    "name": "H100 SXM",
    "min_memory_gib": 80,
    "nvlink": True,
    "box": {"min_cpus": 96, "min_disk_gib": 500},
}
GIB = 1024**3
AROUND = {
    "cpus": {"granted": 104, "machine": 208},
    "ram": {"granted": 1800 * GIB, "machine": 2015 * GIB},
    "shm": 64 << 20,
    "disk": 812 * GIB,
    "disk_speed": 1430.0,
    "index": {"host": "index.example", "mb_s": 96.0},
    "clock": {"index": 0.4, "client": 0.2},
}
NOTE = "An example: the cards are a stand-in for NVML, and no such box exists."
AT = datetime(2026, 11, 21, 8, 45, tzinfo=timezone.utc)


def example() -> str:
    """Return the page."""
    with tempfile.TemporaryDirectory() as folder:
        facts = _facts(Path(folder))
    result = judge.judge({**facts, **AROUND}, parse_expected(json.dumps(ORDER)), 0.6)
    box, provider = "root@203.0.113.7:46769", read_profile("vast").profile.provider.name
    about = page.Subject(box, provider, AT, NOTE, version="")
    return page.verdict_page(verdict.read_verdict(json.dumps(result).encode()), about)


def _facts(folder: Path) -> readers.Facts:
    scenario = folder / "scenario"
    scenario.write_text(SCENARIO)
    library = stub.build_library(folder)
    environment = {"LD_LIBRARY_PATH": str(library.parent), "NVML_SCENARIO": str(scenario)}
    done = subprocess.run(
        [sys.executable, "-B", MAIN, "verdict.gpu_reader"],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
    )
    return readers.assemble(done.stdout.splitlines(keepends=True)).facts


if __name__ == "__main__":
    if stub.compiler() is None:
        sys.exit(f"{sys.argv[1]}: left as it is, since there is no C compiler")
    Path(sys.argv[1]).write_text(example(), encoding="utf-8")
