"""Shared by tests of providers: a simulated account, and a box without root that it may list."""

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.boxes.loopback import LoopbackBox
from tests.cli import User
from tests.providers.accounts import SimulatedAccount, SimulatedClock, simulated
from tests.providers.renting_world import RentingWorld, renting_world
from tests.sshd import keygen


@pytest.fixture
def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RentingWorld]:
    """An account at the provider that the test names, else at its module's `PROVIDER`."""
    named = getattr(request, "param", getattr(request.module, "PROVIDER", "vast"))
    # Some rent by the client alone, and so what is in no list.
    is_listed = getattr(request.module, "IS_LISTED", True)
    with renting_world(named, monkeypatch) as made:
        if not is_listed:
            made.take_time()
        yield made
        made.check() if is_listed else made.check_others()


@pytest.fixture
def accounts(request: pytest.FixtureRequest, user: User) -> Iterator[dict[str, SimulatedAccount]]:
    """An account at each of the module's `ACCOUNTS`, and a user who has their keys."""
    with contextlib.ExitStack() as stack:
        made = {name: stack.enter_context(simulated(name)) for name in request.module.ACCOUNTS}
        for account in made.values():
            user.env |= account.environment()
            account.clock = SimulatedClock(time.time)
        yield made


@pytest.fixture
def vast(user: User) -> Iterator[SimulatedAccount]:
    """An account at Vast.ai whose key the user has."""
    with simulated("vast") as made:
        user.env |= made.environment()
        yield made


@pytest.fixture
def ssh_key(user: User) -> None:
    """The user has one."""
    (user.home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    keygen(user.home / ".ssh/id_ed25519", "-t", "ed25519")


@pytest.fixture
def there() -> Iterator[LoopbackBox]:
    box = LoopbackBox()
    yield box
    box.stop()
