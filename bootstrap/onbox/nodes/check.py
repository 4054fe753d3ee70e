"""Check whether the nodes of a training can talk and are alike, and write down what each is to be.

`onbox nodes.check BOX_HOME REQUEST`, one on each node, at the same time: a document of JSON with
`tree`, `venv` and `gpus`, as in 0,1, or "" for all. It listens on the private addresses of this
box, and speaks with the user's machine by lines of JSON on its input and output:

-> {"facts": …}: addresses and port, and what must be the same on all nodes
<- {"rank": …, "token": …, "peers": [[ADDRESS, PORT], …] for each rank}
-> {"links": …}: for each other rank how it is reached, how fast, and what its clock shows
<- {"write": {…}}: its address, port and rank; these become BOX_HOME/nodes/ID for the run
-> {"written": INTERFACE}

It ends when its input does. A peer must know the token, which is made for this check alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import shlex
import shutil
import socket
import struct
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from ..git import BoxGit
from ..step_report import question

TYPE_CHECKING = False
if TYPE_CHECKING:  # without importing it: this program starts with each run
    from typing import Any

CONNECT_S = 3.0
"""How long a peer may take to answer."""
SPEED_S, SPEED_BYTES = 0.2, 64 << 20
"""How long, and how much, is sent to measure a link; whichever ends first."""
CLOCK_LOOKS = 5
LEFT_S = 24 * 3600.0
"""After how long what was written for a run that never began is removed."""
FIRST_PORT = 29500
"""torchrun's own; the next ones if something listens there."""
MOST_WAYS = 3
"""Of how many addresses of another node the speed is measured: of those that answered first."""
_PIECE = b"\0" * (256 << 10)
_SIOCGIFADDR, _SIOCGIFFLAGS = 0x8915, 0x8913
_UP, _LOOPBACK = 1, 8
PACKAGES = {"torch": "torch-", "NCCL": "nvidia_nccl_cu"}
"""What is named apart -> what the name of its metadata begins with."""


def addresses() -> list[tuple[str, str]]:
    """Return interface and IPv4 address of each private address of this box."""
    found = []
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        for _, name in socket.if_nameindex():
            asked = struct.pack("256s", name.encode()[:15])
            try:
                flags = fcntl.ioctl(probe, _SIOCGIFFLAGS, asked)
                known = fcntl.ioctl(probe, _SIOCGIFADDR, asked)
            except OSError:  # it has no IPv4 address
                continue
            bits = struct.unpack("H", flags[16:18])[0]
            if bits & _UP and not bits & _LOOPBACK:
                found.append((name, socket.inet_ntoa(known[20:24])))
    return found


def is_private(address: str) -> bool:
    """Whether it is of a private network (RFC 1918), or of a carrier's or mesh VPN's (RFC 6598)."""
    first, second, *_ = map(int, address.split("."))
    if first == 10 or (first, second) == (192, 168):
        return True
    return (first == 172 and 16 <= second < 32) or (first == 100 and 64 <= second < 128)


def interface_to(address: str, own: str) -> str:
    """Return the interface by which the route to an address goes, or that has it."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        source = own
        if address != own:
            probe.connect((address, 9))
            source = probe.getsockname()[0]
    return next((name for name, each in addresses() if each == source), "")


def free_ports(count: int) -> list[int]:
    """Return ports that nothing uses on any address of this box."""
    found: list[int] = []
    port = FIRST_PORT
    while len(found) < count and port < FIRST_PORT + 1000:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as one, suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("0.0.0.0", port))  # noqa: S104 - tried, not listened on
            found.append(port)
        port += 1
    return found


def facts(box_home: Path, tree: Path, environment: Path, gpus: str) -> dict[str, Any]:
    """Return what must be the same on all nodes; "" where there is none."""
    seen: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        seen = json.loads((box_home / "gpu.json").read_text())
    cards = [str(gpu.get("name")) for gpu in seen.get("gpus") or []]
    if gpus:
        cards = [
            cards[int(one)] for one in gpus.split(",") if one.isdigit() and int(one) < len(cards)
        ]
    site = environment.glob("lib/python*/site-packages/*.dist-info")
    packages = sorted(found.name[: -len(".dist-info")] for found in site)
    same = {
        "commit": BoxGit(f"{tree}/.git", str(tree)).id_of("HEAD"),
        "driver": str(seen.get("driver") or ""),
        "GPU model": ", ".join(sorted(set(cards))),
        "number of GPUs": str(len(cards)),
    }
    for name, begins in PACKAGES.items():
        found = (each.partition("-") for each in packages if each.startswith(begins))
        same[name] = next((version for _, _, version in found), "")
    same["environment"] = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    return {"same": same, "packages": packages, "gpus": len(cards)}


class Listeners:
    """Listening sockets on all private addresses; each who knows the token is answered."""

    def __init__(self) -> None:
        self.token, self.rank = "", -1
        self.known = threading.Event()
        """Set once token and rank are known."""
        self.open: list[tuple[str, int]] = []
        for _, address in addresses():
            if not is_private(address):
                continue
            door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            door.bind((address, 0))
            door.listen(64)
            self.open.append((address, door.getsockname()[1]))
            threading.Thread(target=self._serve, args=(door,), daemon=True).start()

    def _serve(self, door: socket.socket) -> None:
        while True:
            link, _ = door.accept()
            threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        with closing(link), suppress(OSError, ValueError):
            link.settimeout(30)
            words = link.makefile("rb")
            said = words.readline(200).strip().decode()
            self.known.wait(CONNECT_S)
            if not self.token or not hmac.compare_digest(said, self.token):
                return
            link.sendall(f"{self.rank}\n".encode())
            for line in iter(lambda: words.readline(200), b""):
                if line == b"time\n":
                    link.sendall(f"{time.time()}\n".encode())
                elif line.startswith(b"take "):
                    left = int(line.split()[1])
                    while left > 0 and (piece := words.read1(min(left, 1 << 20))):
                        left -= len(piece)
                    link.sendall(b"taken\n")


class Link:
    """A connection to another node, by one of its addresses."""

    def __init__(self, rank: int, address: str, port: int, token: str) -> None:
        """Raises OSError if that node is not there."""
        self.rank, self.address = rank, address
        self._link = socket.create_connection((address, port), timeout=CONNECT_S)
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._words = self._link.makefile("rb")
        self._link.sendall(f"{token}\n".encode())
        if self._words.readline(200).strip() != str(rank).encode():
            raise OSError("another one is there")

    def clock(self) -> tuple[float, float]:
        """Return by how many seconds its clock is ahead, and the round trip in seconds."""
        looks = []
        for _ in range(CLOCK_LOOKS):
            before, began = time.time(), time.monotonic()
            self._link.sendall(b"time\n")
            theirs = float(self._words.readline(200))
            took = time.monotonic() - began
            looks.append((took, theirs - before - took / 2))
        took, ahead = min(looks)
        return ahead, took

    def speed(self) -> float:
        """Return how fast it takes what is sent, in Mbit/s."""
        size, sent, began = 1 << 20, 0, time.monotonic()
        while sent < SPEED_BYTES:
            self._link.sendall(f"take {size}\n".encode())
            for at in range(0, size, len(_PIECE)):
                self._link.sendall(_PIECE[: size - at])
            if self._words.readline(200) != b"taken\n":
                raise OSError("it did not take what was sent")
            sent += size
            took = time.monotonic() - began
            if took > SPEED_S:
                break
            # More at once on a fast link, so that round trips don't count.
            size = min(size * 2, 16 << 20)
        return sent * 8 / 1e6 / max(took, 1e-6)

    def close(self) -> None:
        with suppress(OSError):
            self._link.close()


def reach(rank: int, peers: list[list[list[Any]]], token: str) -> list[dict[str, Any]]:
    """Return how each other node is reached: address, clock, speed; or no address."""
    links: dict[int, list[Link]] = {other: [] for other in range(len(peers)) if other != rank}

    def dial(other: int, address: str, port: int) -> None:
        until = time.monotonic() + CONNECT_S
        while True:
            try:
                links[other].append(Link(other, address, port, token))
                return
            except OSError:  # for a second after a cable is back, a neighbour has no address yet
                if time.monotonic() > until:
                    return
                time.sleep(0.2)

    dials = [
        threading.Thread(target=dial, args=(other, str(address), int(port)), daemon=True)
        for other in links
        for address, port in peers[other]
    ]
    for one in dials:
        one.start()
    for one in dials:
        one.join(CONNECT_S * 2)
    # Each to another one at a time: they don't measure each other's traffic.
    found = []
    for step in range(1, len(peers)):
        other = (rank + step) % len(peers)
        rows = [row for link in links[other][:MOST_WAYS] if (row := _measured(link))]
        found.append({"to": other, "by": rows})
    return found


def _measured(link: Link) -> dict[str, Any] | None:
    try:
        ahead, took = link.clock()
        return {"address": link.address, "ahead": ahead, "ms": took * 1000, "mbps": link.speed()}
    except (OSError, ValueError):
        return None
    finally:
        link.close()


def write(box_home: Path, wanted: dict[str, Any]) -> str:
    """Write what the run needs, and return the interface to the other nodes. Raises OSError."""
    rank, ips = int(wanted["rank"]), [str(each) for each in wanted["addresses"]]
    interface = interface_to(ips[0], ips[rank])
    folder = box_home / "nodes" / str(wanted["id"])
    for old in (box_home / "nodes").glob("*"):
        if time.time() - old.stat().st_mtime > LEFT_S:
            shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    watch = {name: wanted[name] for name in ("rank", "token", "least")}
    watch.update(count=len(ips), address=ips[0], port=wanted["watch_port"])
    names = " ".join(map(str, wanted["names"]))
    files = {
        "watch.json": json.dumps(watch),
        "env": environment(wanted, interface),
        "rank": str(rank),
        "code": "",
        "about": f"{rank} {len(ips)} {wanted['id']} {names}",
    }
    for name, text in files.items():
        with (folder / name).open("x") as file:
            file.write(f"{text}\n")
    return interface


_OURS = "BOXSTRAP_NODE_RANK BOXSTRAP_NUM_NODES BOXSTRAP_NODE_IPS BOXSTRAP_GPUS_PER_NODE"
_ENGINES = (
    "SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES SKYPILOT_NODE_IPS SKYPILOT_NUM_GPUS_PER_NODE",
    "DSTACK_NODE_RANK DSTACK_NODES_NUM DSTACK_NODES_IPS DSTACK_GPUS_PER_NODE",
)
"""As each names rank, number and addresses of the nodes, and the GPUs of one."""


def environment(wanted: dict[str, Any], interface: str) -> str:
    """Return the variables of this rank as lines for a shell."""
    rank, ips, gpus = int(wanted["rank"]), list(wanted["addresses"]), int(wanted["gpus"])
    count, port, lines = len(ips), wanted["port"], "\n".join(wanted["addresses"])
    values: dict[str, object] = {"MASTER_ADDR": ips[0], "MASTER_PORT": port, "NODE_RANK": rank}
    if wanted["least"]:  # the user's own flags say how torchrun meets
        # Else torchrun goes by the hosts' names, which boxes often can't resolve.
        values["PET_LOCAL_ADDR"] = ips[rank]
        values["PET_RDZV_CONF"] = f"is_host={'true' if rank == 0 else 'false'}"
    else:
        values.update(PET_NNODES=count, PET_NODE_RANK=rank)
        values.update(PET_MASTER_ADDR=ips[0], PET_MASTER_PORT=port)
        if gpus:
            values["PET_NPROC_PER_NODE"] = gpus
    values.update(ACCELERATE_NUM_MACHINES=count, ACCELERATE_MACHINE_RANK=rank)
    values.update(ACCELERATE_MAIN_PROCESS_IP=ips[0], ACCELERATE_MAIN_PROCESS_PORT=port)
    values["ACCELERATE_NUM_PROCESSES"] = count * max(1, gpus)
    for own in (_OURS, *_ENGINES):
        values.update(zip(own.split(), (rank, count, lines, gpus)))  # noqa: B905 - Python 3.8
    values.update(DSTACK_MASTER_NODE_IP=ips[0], DSTACK_GPUS_NUM=count * gpus)
    text = [f"export {name}={shlex.quote(str(value))}" for name, value in values.items()]
    # The profile's own setting stays. Without `=` the names of NCCL are beginnings of names.
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME") if interface else ()
    for name in names:
        text.append(f'export {name}="${{{name}:-{interface}}}"')
    return "\n".join(text)


def of_engine(count: str) -> str:
    """Return the variables of this rank, if SkyPilot or dstack gave it so many nodes, else "". They
    began the others, and end them."""
    for names in _ENGINES:
        rank, nodes, ips, gpus = (os.environ.get(name, "") for name in names.split())
        if rank and ips and nodes == count:
            wanted = {"rank": rank, "gpus": gpus or 0, "addresses": ips.split()}
            return environment({**wanted, "port": 29500, "least": 0}, "")
    return ""


def main() -> int:
    """Answer the user's machine until it hangs up."""
    os.umask(0o077)
    home, asked = question()
    box_home = Path(home)
    listeners = Listeners()
    every = addresses()
    known = {
        "addresses": listeners.open,
        "public": [each for _, each in every if not is_private(each)],
    }
    found = facts(box_home, Path(asked["tree"]), Path(asked["venv"]), asked["gpus"])
    say({"facts": {**found, **known, "ports": free_ports(2)}})
    for line in sys.stdin.buffer:
        word = json.loads(line)
        if "peers" in word:
            listeners.token, listeners.rank = str(word["token"]), int(word["rank"])
            listeners.known.set()
            say({"links": reach(listeners.rank, word["peers"], listeners.token)})
        elif "write" in word:
            say({"written": write(box_home, word["write"])})
    return 0


def say(word: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()
