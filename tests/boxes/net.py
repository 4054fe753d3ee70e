"""The rig's bridge, the boxes' network cards, and the faults of their links."""

import socket
import subprocess

from tests.boxes.claims import Subnet
from tests.boxes.proc import sh


def set_up(subnet: Subnet) -> None:
    """Make a bridge with the gateway's address, and masquerade outgoing traffic.

    The bridge gets a fixed MAC address: otherwise it has the lowest one of its cards, which
    changes as boxes come and go and cuts off the others for seconds.
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

    Its address is entered in this machine's neighbour table beforehand: an ARP request that
    is lost while the card comes up is repeated only a second later.
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
    """Return whether packets reach a box and come back; it tries a closed port."""
    try:
        # TCP repeats a lost first packet after a second: better to let the caller try again.
        socket.create_connection((subnet.address(index), 1), timeout=0.1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def unplug(subnet: Subnet, index: int) -> None:
    """Remove a box's card without waiting for its namespace to do so."""
    subprocess.run(["ip", "link", "delete", subnet.card(index)], capture_output=True, check=False)


def switch(subnet: Subnet, index: int, *, on: bool) -> None:
    """Pull or plug in the cable: the box sees its carrier change."""
    sh(["ip", "link", "set", subnet.card(index), "up" if on else "down"])


def drop(subnet: Subnet, index: int, percent: float, port: int | None = None) -> None:
    """Silently drop this percentage of the packets in each direction; 0 drops none.

    100 is a black hole; `port` limits it to packets to and from that TCP port of the
    box. The rules are on the card itself, so no socket gets an error, not even this
    machine's own.
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
    """Limit a card to this many MB a second in each direction; 0 removes the limit."""
    inside = ["nsenter", "-t", str(pid), "-n"]
    for way, card in (([], subnet.card(index)), (inside, "eth0")):
        subprocess.run(
            [*way, "tc", "qdisc", "del", "dev", card, "root"], capture_output=True, check=False
        )
        if mb_s:
            rate = ["rate", f"{mb_s * 8:g}mbit", "burst", "256k", "latency", "50ms"]
            sh([*way, "tc", "qdisc", "add", "dev", card, "root", "tbf", *rate])
