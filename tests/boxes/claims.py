"""Claims on subnets, and cleanup after owners that died.

A claim is a folder `<number>/` under places.CLAIMS whose `owner` file its process
keeps locked for as long as it lives. The kernel releases that lock however the
process ends, so a claim that can be locked is dead.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.boxes.places import CLAIMS, locked
from tests.boxes.proc import RigError

_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
_HIGHEST = 250


@dataclass(frozen=True)
class Subnet:
    """One rig's addresses and names: 10.213.NUMBER.0/24."""

    number: int

    @property
    def bridge(self) -> str:
        return f"bxr{self.number}"

    @property
    def gateway(self) -> str:
        return f"10.213.{self.number}.1"

    @property
    def network(self) -> str:
        return f"10.213.{self.number}.0/24"

    def address(self, index: int) -> str:
        return f"10.213.{self.number}.{index}"

    def mac(self, index: int) -> str:
        return f"02:62:78:72:{self.number:02x}:{index:02x}"

    def card(self, index: int) -> str:
        return f"bxr{self.number}b{index}"


class Claim:
    """An owned subnet and a folder for overlays, until release()."""

    def __init__(self, subnet: Subnet, folder: Path, handle: int) -> None:
        self.subnet = subnet
        self.folder = folder
        self._handle = handle

    def release(self) -> None:
        """Give back the subnet and remove every trace of it."""
        with locked(CLAIMS / "lock"):
            _tidy(self.subnet.number)
            os.close(self._handle)
            _restore_forwarding()


def take(folder: Path, lowest: int = 1) -> Claim:
    """Claim the first free subnet from `lowest` on; its overlays get `folder/<number>`.

    Dead owners' claims on the way are cleaned up first. Raises RigError if all are taken.
    """
    with locked(CLAIMS / "lock"):
        for number in range(lowest, _HIGHEST):
            place = CLAIMS / str(number)
            if place.exists():
                if not _is_dead(number):
                    continue
                _tidy(number)
            return _claim(number, folder)
    raise RigError("every subnet of the rig is taken: python -m tests.boxes list")


def _claim(number: int, folder: Path) -> Claim:
    place = CLAIMS / str(number)
    place.mkdir()
    own = folder / str(number)
    if own.exists():
        shutil.rmtree(own)
    own.mkdir(parents=True)
    handle = os.open(place / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    (place / "claim.json").write_text(json.dumps({"pid": os.getpid(), "folder": str(own)}))
    _allow_forwarding()
    return Claim(Subnet(number), own, handle)


def sweep() -> list[int]:
    """Clean up after dead owners; return the numbers of their subnets."""
    with locked(CLAIMS / "lock"):
        dead = [number for number in _numbers() if _is_dead(number)]
        for number in dead:
            _tidy(number)
        _restore_forwarding()
    return dead


def live() -> Iterator[tuple[Subnet, int, list[dict[str, object]]]]:
    """Yield every live rig: its subnet, its owner's pid, its boxes."""
    for number in _numbers():
        if _is_dead(number):
            continue
        place = CLAIMS / str(number)
        owner = json.loads((place / "claim.json").read_text())
        boxes = [json.loads(file.read_text()) for file in sorted(place.glob("box-*.json"))]
        yield Subnet(number), owner["pid"], boxes


def note_box(subnet: Subnet, index: int, facts: dict[str, object] | None) -> None:
    """Record a box for `list`, or remove its record (None)."""
    file = CLAIMS / str(subnet.number) / f"box-{index:03}.json"
    if facts is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(json.dumps(facts))


def _numbers() -> list[int]:
    return sorted(int(place.name) for place in CLAIMS.glob("[0-9]*"))


def _is_dead(number: int) -> bool:
    try:
        handle = os.open(CLAIMS / str(number) / "owner", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _tidy(number: int) -> None:
    """Remove a claim's bridge, rules and folder; each may be gone already."""
    subnet = Subnet(number)
    place = CLAIMS / str(number)
    _quietly("nft", "delete", "table", "ip", subnet.bridge)
    tables = _quietly("nft", "list", "tables", "netdev").split()
    for table in tables:
        if table.startswith(f"{subnet.bridge}b"):
            _quietly("nft", "delete", "table", "netdev", table)
    _quietly("ip", "link", "delete", subnet.bridge)
    note = place / "claim.json"
    if note.exists():
        shutil.rmtree(json.loads(note.read_text())["folder"], ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)


def _quietly(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _allow_forwarding() -> None:
    before = CLAIMS / "ip_forward.before"
    if not before.exists():
        before.write_text(_FORWARD.read_text())
        _FORWARD.write_text("1")


def _restore_forwarding() -> None:
    before = CLAIMS / "ip_forward.before"
    if before.exists() and not _numbers():
        _FORWARD.write_text(before.read_text())
        before.unlink()
