"""The way out: known boxes as a pool of SkyPilot, or as a fleet of dstack."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.link.record import LOCAL, KnownBox
from bootstrap.link.registry import find_known
from bootstrap.link.target import parse_host
from bootstrap.providers.accounts import PROVIDERS


@dataclass(frozen=True)
class Export:
    """A file for another program. `use` says what to do with it, `needs` what it asks of a box."""

    make: Callable[[str, Sequence[KnownBox]], str]
    use: str
    needs: str


def _pool(name: str, boxes: Sequence[KnownBox]) -> str:
    """Name the boxes as hosts of the user's ssh config: a pool's file has no port."""
    hosts = "".join(f"    - {json.dumps(box.name)}\n" for box in boxes)
    return f"{json.dumps(name)}:\n  hosts:\n{hosts}"


def _fleet(name: str, boxes: Sequence[KnownBox]) -> str:
    lines = ["type: fleet", f"name: {json.dumps(name)}", "placement: cluster"]
    lines += ["ssh_config:", "  hosts:"]
    for box in boxes:
        if box.route.jump or box.route.proxy:
            raise UsageError("it is reached through another host.", where=box.name)
        lines += [
            f"    - hostname: {json.dumps(box.address)}",
            f"      port: {box.port}",
            f"      user: {json.dumps(box.user)}",
            f"      identity_file: {json.dumps(_key_file(box))}",
        ]
    return "\n".join(lines) + "\n"


def _key_file(box: KnownBox) -> str:
    """Return the key file that was named for it, or the first that ssh would take."""
    usual = (Path.home() / ".ssh" / f"id_{kind}" for kind in ("ed25519", "ecdsa", "rsa"))
    found = (*(each for each in usual if each.is_file()), Path.home() / ".ssh/id_ed25519")
    return box.route.identity or next(iter(box.route.identities), "") or str(found[0])


EXPORTS = {
    "skypilot-pool": Export(
        _pool,
        "Put it into ~/.sky/ssh_node_pools.yaml, then: sky ssh up. It installs k3s on them.",
        "SkyPilot's pools install k3s",
    ),
    "dstack-fleet": Export(
        _fleet,
        "dstack apply -f FILE. They need Docker, and sudo without a password.",
        "dstack's fleets run Docker",
    ),
}
"""By their names in `render --for`."""


def export_boxes(kind: str, hosts: Sequence[str], name: str = "") -> str:
    """Return the file of that kind for these boxes. Raises UsageError for a box that is unknown,
    this machine, or a container, in which neither program can work."""
    export, boxes = EXPORTS[kind], []
    for host in hosts:
        box = find_known(parse_host(host))
        if box is None or box.host_text == LOCAL:
            raise UsageError(f"{host} is no known box that ssh reaches.", hint="boxstrap boxes")
        where = box.host_text.partition(":")[0]
        provider = where if where in PROVIDERS else box.provider
        if provider in PROVIDERS and PROVIDERS[provider].is_container:
            raise UsageError(
                f"a box of {provider} is a container, and {export.needs}.",
                where=box.name,
                hint="Rent virtual machines for that; boxstrap's own way: docs/sweeps.md",
            )
        boxes.append(box)
    if not boxes:
        raise UsageError("which boxes?", hint="Name each with --host, or all with --hosts GROUP.")
    name = re.sub(r"[^a-z0-9-]+", "-", (name or "boxstrap").lower()).strip("-") or "boxstrap"
    return f"# {export.use}\n{export.make(name, boxes)}"
