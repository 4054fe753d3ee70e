"""How fast bytes move, both ways; the figures are printed with `pytest -s`."""

import time
from collections.abc import Callable

import pytest

from tests.sshd import Relay, Sshd
from tests.unit.link.conftest import SshUser
from tests.waiting import slowness, wait_until

pytestmark = pytest.mark.slow

SIZE = 60_000_000


def test_a_transfer_from_a_box_half_a_second_away_is_faster_than_6_mb_a_second(
    ssh_user: SshUser, server: Sshd
) -> None:
    """At a round trip of half a second, windows of 2 MiB would limit it to 4 MB/s."""
    relay = Relay(server.port, delay=0.25)
    ssh_user.write(f"Host far\n HostName 127.0.0.1\n Port {relay.port}")
    wire = ssh_user.login("far")
    stream = wire.start(f"head -c {SIZE} /dev/zero")
    # More than that is on its way before anything is read.
    wait_until(lambda: len(stream._channel.in_buffer) > 8 << 20)
    begun, size = time.monotonic(), 0
    while piece := stream.read(1 << 20):
        size += len(piece)
    speed = size / (time.monotonic() - begun) / 1e6
    print(f"\nat 500 ms: {speed:.0f} MB/s down")
    wire.close()
    relay.close()
    assert size == SIZE
    assert speed > 6 / slowness()


def test_a_transfer_succeeds_with_a_box_that_renegotiates_ssh_keys_often(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", ssh_user.key, options=["RekeyLimit 8M"])
    ssh_user.write(ssh_user.alias("box", server))
    wire = ssh_user.login("box")
    stream = wire.start("tee /dev/null | tail -c 40000000")
    stream.write(bytes(40_000_000))
    stream.close_write()
    size = 0
    while piece := stream.read(1 << 20):
        size += len(piece)
    assert (size, stream.exit_status()) == (40_000_000, 0)
