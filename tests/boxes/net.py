"""The rig's bridge and the boxes' network cards, and what can be done to them."""

from __future__ import annotations

import socket
import subprocess

from tests.boxes.claims import Subnet
from tests.boxes.proc import sh


def set_up(subnet: Subnet) -> None:
    """A bridge with the gateway's address, and a way out by masquerading.

    Its hardware address is given: else it would be the lowest of its cards', change
    as boxes come and go, and leave the others talking to nobody for seconds.
    """
    sh(
        ["ip", "-batch", "-"],
        stdin=f"link add {subnet.bridge} address {subnet.mac(1)} type bridge\n"
        f"addr add {subnet.gateway}/24 dev {subnet.bridge}\n"
        f"link set {subnet.bridge} up\n",
    )
    sh(
        ["nft", "-f", "-"],
        stdin=f"""table ip {subnet.bridge} {{
  chain out {{
    type nat hook postrouting priority 100;
    ip saddr {subnet.network} oifname != "{subnet.bridge}" masquerade
  }}
}}
""",
    )


def plug_in(subnet: Subnet, index: int, pid: int) -> None:
    """Give the network namespace of a process a card `eth0` on the rig's bridge.

    Its address is told to this machine beforehand: a question for it that is lost
    while the card comes up would be asked again only a second later.
    """
    card = subnet.card(index)
    sh(
        ["ip", "-batch", "-"],
        stdin=f"link add {card} type veth"
        f" peer name eth0 address {subnet.mac(index)} netns {pid}\n"
        f"link set {card} master {subnet.bridge}\n"
        f"link set {card} up\n"
        f"neigh replace {subnet.address(index)} lladdr {subnet.mac(index)}"
        f" dev {subnet.bridge} nud permanent\n",
    )


def answers(subnet: Subnet, index: int) -> bool:
    """Whether packets reach a box and come back. Asked is a port that is closed."""
    try:
        # A lost first packet costs a second: rather ask anew.
        socket.create_connection((subnet.address(index), 1), timeout=0.1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def unplug(subnet: Subnet, index: int) -> None:
    """Remove a box's card, which is going with its namespace anyway: nothing to await."""
    subprocess.run(["ip", "link", "delete", subnet.card(index)], capture_output=True, check=False)


def switch(subnet: Subnet, index: int, *, on: bool) -> None:
    """Pull the cable out, or plug it in again: the box sees its carrier go."""
    sh(["ip", "link", "set", subnet.card(index), "up" if on else "down"])


def drop(subnet: Subnet, index: int, percent: float, port: int | None = None) -> None:
    """Lose this share of the packets in either direction, silently; 0 heals.

    100 is a black hole; `port` limits it to what goes to and from that TCP port of the
    box. The rules sit on the card itself, so that nobody, this machine's own sockets
    included, is told.
    """
    card = subnet.card(index)
    rules = f"table netdev {card}\ndelete table netdev {card}\n"
    if percent > 0:
        share = f"numgen random mod 1000 < {round(percent * 10)} drop" if percent < 100 else "drop"
        rules += f"table netdev {card} {{\n"
        for hook, end in (("ingress", "sport"), ("egress", "dport")):
            only = f"tcp {end} {port} " if port else ""
            rules += (
                f"  chain {hook} {{ type filter hook {hook} device {card} priority 0;"
                f" {only}{share}; }}\n"
            )
        rules += "}\n"
    sh(["nft", "-f", "-"], stdin=rules)


def limit(subnet: Subnet, index: int, pid: int, mb_s: float) -> None:
    """Let no more than so many MB a second through, each way; 0 ends it."""
    inside = ["nsenter", "-t", str(pid), "-n"]
    for way, card in (([], subnet.card(index)), (inside, "eth0")):
        subprocess.run(
            [*way, "tc", "qdisc", "del", "dev", card, "root"], capture_output=True, check=False
        )
        if mb_s:
            rate = ["rate", f"{mb_s * 8:g}mbit", "burst", "256k", "latency", "50ms"]
            sh([*way, "tc", "qdisc", "add", "dev", card, "root", "tbf", *rate])
