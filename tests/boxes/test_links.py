"""The links of boxes: each fault takes effect and ends, and a delay costs what was requested."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.boxes import Rig, RigBox
from tests.boxes.delay import DelayProxy
from tests.boxes.test_rig import Start, ssh
from tests.waiting import slowness

pytestmark = pytest.mark.boxes


def test_a_cut_link_heals(box: Start) -> None:
    made = box("bare")
    made.cut()
    assert ssh(made, "true", "-oConnectTimeout=1").returncode == 255
    made.heal()
    assert ssh(made, "true").returncode == 0


def test_a_black_hole_is_silent_for_both_sides_and_ends(box: Start) -> None:
    made = box("bare")
    with subprocess.Popen(
        made.ssh_command("echo on; sleep 1; echo late; cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "on\n"
        made.blackhole()
        time.sleep(2)
        assert client.poll() is None  # the client got no error
        assert "timed out" in ssh(made, "true", "-oConnectTimeout=1").stderr
        made.unblackhole()
        assert client.stdout.readline() == "late\n"  # TCP sent it again
        client.kill()


COUNT_DATAGRAMS = """
import socket
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
door.bind(("", 9999))
print("ready", flush=True)
count = 0
door.settimeout(120)
while door.recv(100) != b"end":
    count += 1
print(count)
"""


def test_lossy_links_lose_about_what_was_asked(box: Start) -> None:
    made = box("runpod")
    # On a busy machine the counter's buffer may overflow too: the best of a few counts.
    assert any(700 < arrived(made) < 900 for _ in range(4))


def arrived(made: RigBox) -> int:
    """Return how many of a thousand datagrams arrive with a fifth lost."""
    counter = made.ssh_command(f"python3 -c '{COUNT_DATAGRAMS}'")
    with subprocess.Popen(counter, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        while client.stdout.readline() != "ready\n":
            pass  # the banner
        made.loss(20)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            for _ in range(1000):
                line.sendto(b"x", (made.address, 9999))
                time.sleep(0.0005)
            made.heal()
            line.sendto(b"end", (made.address, 9999))
        return int(client.stdout.readline())


def test_delay_costs_its_round_trips_and_no_bandwidth(box: Start, rig: Rig) -> None:
    made = box("bare")
    host, port = rig.delay_proxy(made, 0.1)
    argv = made.ssh_command("true")
    argv[-2] = f"{made.user}@{host}"
    argv[1:1] = ["-p", str(port), "-o", f"HostKeyAlias={made.address}"]
    start = time.monotonic()
    assert subprocess.run(argv, check=False).returncode == 0
    took = time.monotonic() - start
    assert 0.6 < took < 5 * slowness()  # a login is about seven round trips


def test_delay_takes_no_bandwidth() -> None:
    # MB/s; 260 on an idle machine. Other tests share its cores, so the best of a few counts.
    assert any(delayed_rate() > 100 / slowness() for _ in range(4))


def delayed_rate() -> float:
    """Return the megabytes per second that come through a proxy that delays."""
    with zero_server(512 << 20) as port:
        proxy = DelayProxy("127.0.0.1", port, 0.1)
        start = time.monotonic()
        with socket.create_connection((proxy.host, proxy.port), timeout=60) as line:
            size = sum(len(piece) for piece in iter(lambda: line.recv(1 << 20), b""))
        took = time.monotonic() - start
        proxy.close()
    assert size == 512 << 20
    return size / took / 1e6


@contextmanager
def zero_server(size: int) -> Iterator[int]:
    """Serve `size` zero bytes to one client; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            line, _ = door.accept()
            with line:
                for _ in range(size >> 20):
                    line.sendall(bytes(1 << 20))

        thread = threading.Thread(target=serve)
        thread.start()
        yield door.getsockname()[1]
        thread.join()
