"""Show rendered doors to their real consumers: python -m tools.doors   (make door-proof)

SkyPilot, dstack, hadolint and the Dev Containers CLI read theirs here; as root, cloud-init and a
notebook's kernel run theirs on a box of the rig, up to the training's first step.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bootstrap.fleet.export import EXPORTS
from bootstrap.link import KnownBox
from bootstrap.setup.door_table import DOORS
from bootstrap.setup.doors import render_door
from tests.boxes.proc import RigError
from tests.unit.setup.scripts import WORK, profile
from tools.doors import consumers

READERS: dict[str, Callable[[Path, Path], str]] = {
    "skypilot": consumers.skypilot,
    "dstack": consumers.dstack,
    "docker": consumers.dockerfile,
    "devcontainer": consumers.devcontainer,
}
POOLS: dict[str, Callable[[Path, Path], str]] = {
    "skypilot-pool": consumers.skypilot_pool,
    "dstack-fleet": consumers.dstack_fleet,
}
BOXES = [KnownBox(f"gpu-{n}", f"me@198.51.100.{n}", f"198.51.100.{n}", 2222, "me") for n in (1, 2)]


def main() -> int:
    """Try each, or those named as arguments; the exit code is 1 if one failed."""
    failed = 0
    what = ("vast", "gpu.name=A100", "gpu.count=2", 'secrets=["HF_TOKEN"]')
    proofs: dict[str, Callable[[Path], str]] = {}
    for name, reader in READERS.items():

        def read(scratch: Path, name: str = name, reader: Callable[..., str] = reader) -> str:
            file = scratch / DOORS[name].file
            of_nodes = ("train.nodes=2", "rent.spot=true") if DOORS[name].nodes else ()
            file.write_text(render_door(name, profile(*what, *of_nodes), WORK).text)
            return reader(file, scratch)

        proofs[name] = read
    for name, reader in POOLS.items():

        def read_pool(scratch: Path, name: str = name, reader: Callable[..., str] = reader) -> str:
            file = scratch / f"{name}.yaml"
            file.write_text(EXPORTS[name].make("cluster", BOXES))
            return reader(file, scratch)

        proofs[name] = read_pool
    if os.geteuid() == 0:
        from tools.doors import boxes

        proofs.update(boxes.PROOFS)
    chosen = sys.argv[1:] or list(proofs)
    for name in chosen:
        proof = proofs[name]
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            try:
                told = proof(Path(scratch))
            except (AssertionError, RigError) as error:
                failed += 1
                told = f"FAILED: {error}"
        print(f"{name:<13} {time.monotonic() - began:5.1f} s  {told}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
