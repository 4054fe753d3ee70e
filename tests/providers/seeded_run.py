"""A seeded run of rent, setup and teardown, with faults at any call.

Each command is a process of its own, as a user's is: the account answers it with faults, and
ends it by Ctrl-C or kill -9 at a call. A file for each box says what is on it.
"""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.errors import ReturnBoxError, StepFailedError, UnreachableError
from bootstrap.link import BoxOptions, KnownBox, save_box
from bootstrap.providers import PROVIDERS, ApiKey, RentedState, RentOrder, is_shared
from bootstrap.renting import Loss, TeardownOptions, rental, tear_down, teardown
from bootstrap.renting.rental import Rental, RentalState, rented_here
from tests.providers.accounts import FAULTS, KEY, SimulatedBox
from tests.providers.cards import CARDS, card_of, verdict_of
from tests.providers.renting_world import (
    CREATES,
    FATES,
    MOST,
    STARTS,
    Heard,
    RentingWorld,
    renting_world,
)
from tests.providers.struck_command import DONE, INTERRUPTED, KILLED, REFUSED, StruckCommand

ENDS: tuple[type[BaseException] | None, ...] = (
    *(None, None, None, ReturnBoxError, StepFailedError, UnreachableError, KeyboardInterrupt),
)
"""How a setup may end."""
_WAKES = ("runs", "runs", "queued", "refused", "no gpus", "dearer", "broken")
_CALLS = 30
_DESTROYS = (
    *("DELETE ", "POST /api/v1/instance-operations/terminate", "POST /TerminateInstances"),
    "POST /api/jobs/me/",
)
UNSAFE, SAFE = "unsafe", "safe"


class HeardScreen(Heard):
    """Keeps what a teardown shows."""

    def result(self, data: object, text: str = "") -> None:
        self.lines.append(text)


@dataclass
class SeededWorld:
    """An account with other users' boxes too, and a user whose commands are interrupted."""

    rented: RentingWorld
    chance: random.Random
    folder: Path
    """Holds a file for each of our boxes, with what is on it."""
    wrong: list[str] = field(default_factory=list)
    struck: StruckCommand = field(default_factory=StruckCommand)
    dies_renting: bool = False
    """Whether the renting command is killed before the answer arrives."""
    given_up: set[str] = field(default_factory=set)
    """Boxes whose contents the user gave up: a `down --discard` that was interrupted may be
    finished by a `down` without it."""
    order: RentOrder | None = None
    """What is rented; None: anything."""
    is_calm: bool = False
    """Whether nothing goes wrong any more."""

    def on(self, box_id: str) -> str:
        """What is on this box; "" if nothing was ever done there."""
        file = self.folder / box_id
        return file.read_text() if file.exists() else ""

    def put(self, box_id: str, what: str) -> None:
        """Set what is on this box."""
        (self.folder / box_id).write_text(what)

    def typed(self, command: Callable[[], object]) -> int:
        """Run a command in a process of its own; return how it ended."""
        self.rented.simulation.asked.clear()  # requests are counted from here
        status = self.struck.run(command)
        self.struck.strikes, self.rented.interrupt_at = {}, None
        assert status in {DONE, REFUSED, INTERRUPTED, KILLED}, f"ended with {status}"
        return status

    def up(self) -> int:
        """Run `up`, with a setup that ends in a random way."""
        end = None if self.is_calm else self.chance.choice(ENDS)
        what = self.chance.choice((UNSAFE, UNSAFE, SAFE))

        def set_up(host: str) -> str:
            provider, _, box_id = host.partition(":")
            self._meet(host)
            if end is not ReturnBoxError:
                self.put(box_id, what)
            if end is not None:
                raise end("it went wrong")
            return f"{provider}-{box_id}"

        order = {"order": self.order} if self.order else {}
        return self.typed(lambda: self.rented.renter(loading_s=120.0, **order).run(set_up))

    def down(self, host: str, *, discard: bool = False) -> int:
        """Run `down` of this box; whether its contents can be fetched is random."""
        comes_home = self.chance.random() < 0.5
        if discard:
            self.given_up.add(host.partition(":")[2])
        elsewhere = self.chance.random() < 0.15 and not self.is_calm

        def secure(box: Any, *__: object) -> list[Loss]:
            box_id = box.known.host_text.partition(":")[2]
            if self.on(box_id) == UNSAFE and comes_home and not (elsewhere or discard):
                self.put(box_id, SAFE)
            # A login that was led elsewhere saw another box, which is safe.
            is_safe = elsewhere or self.on(box_id) != UNSAFE
            return [] if is_safe else [Loss("results", host, "never pulled")]

        def opened(*_: object, **__: object) -> _Login:
            return _Login(self._meet(host), elsewhere=elsewhere)

        def run() -> None:
            teardown.BoxLogin = SimpleNamespace(open=opened)  # type: ignore[assignment,misc]
            teardown.secure = secure  # type: ignore[assignment]
            teardown.name_repositories = lambda _: ""
            screen: Any = HeardScreen()
            tear_down(BoxOptions(host=host), screen, TeardownOptions(1, discard=discard))

        return self.typed(run)

    def boxes(self) -> int:
        """Run `boxes --all`, which records what it learns about undecided rentals."""
        name = self.rented.simulation.provider

        def run() -> None:
            found = PROVIDERS[name](ApiKey(KEY, "a test")).boxes()
            rented_here({name: found}, self.rented.simulation.clock.now)

        return self.typed(run)

    def _meet(self, host: str) -> KnownBox:
        """Log in, as every contact does. Raises UnreachableError."""
        provider, _, box_id = host.partition(":")
        seen = PROVIDERS[provider](ApiKey(KEY, "a test")).box(box_id)
        if seen is None or seen.state is not RentedState.RUNNING:
            raise UnreachableError("nothing answers")
        known = KnownBox(f"{provider}-{box_id}", host, seen.address, seen.port, seen.user, seen=1.0)
        save_box(known)
        return known

    def check(self) -> None:
        """Check what must hold after any command."""
        assert self.wrong == []
        listed = {each.box_id or each.mark for each in _alive()} | {each.mark for each in _alive()}
        for box in self.ours:
            assert {box.id, box.label} & listed, f"{box} is in no list: {rental.all_rentals()}"
        simulation = self.rented.simulation
        assert set(simulation.destroyed) <= set(simulation.rented)
        assert set(simulation.started) <= set(simulation.rented)

    @property
    def ours(self) -> list[SimulatedBox]:
        """The boxes in the account that this run rented."""
        simulation = self.rented.simulation
        return [box for box in simulation.boxes if box.id in simulation.rented]


def _alive() -> list[Rental]:
    return [each for each in rental.all_rentals() if each.state is not RentalState.ENDED]


class _Login:
    """A login, as far as a teardown uses it; it may lead elsewhere."""

    is_local = False

    def __init__(self, known: KnownBox, *, elsewhere: bool) -> None:
        place = {"hostname": known.address, "port": known.port, "user": known.user}
        if elsewhere:
            place |= {"user": "another"} if is_shared(known.address) else {"port": 1}
        self.known, self.name, self.options = known, known.name, BoxOptions(host=known.name)
        self.endpoint = SimpleNamespace(**place, label=known.name)

    def __enter__(self) -> _Login:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


@contextlib.contextmanager
def seeded_world(
    provider: str, chance: random.Random, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SeededWorld]:
    """The account of `renting_world`, which checks each change and interrupts commands."""
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("BOXSTRAP_SSH_CONFIG", str(folder / "config"))
    with renting_world(provider, monkeypatch, is_held=False) as rented:
        simulation = rented.simulation
        rented.take_time()
        if provider == "azure":
            simulation.own.machine_s, simulation.own.delete_s = 3.0, 9.0
        world = SeededWorld(rented, chance, folder / "on")
        world.folder.mkdir()
        rent, destroy = simulation.rent, simulation.destroy

        def renting(offer: Any, label: str, order: Any) -> SimulatedBox:
            name, size = "", None
            if world.order:
                name, size = world.order.gpu_names[0], world.order.min_memory_gib
            if "return" in verdict_of(name, card_of(offer), size):
                world.wrong.append(f"{card_of(offer)} rented for {name}, {size}")
            if any(box.label != label for box in world.ours):
                world.wrong.append(f"{label} rented beside {world.ours}")
            if any(each.state is RentalState.ASKED and each.mark != label for each in _alive()):
                world.wrong.append("rented while nobody knew of another")
            if all(each.mark != label for each in _alive()):
                world.wrong.append(f"{label} is rented, and not written down")
            box = rent(offer, label, order)
            box.port = 2000 + len(simulation.rented)
            if provider == "hf":  # all are at one address
                box.address, box.port, box.user = "ssh.hf.jobs", 22, box.id
            if world.dies_renting:
                world.struck.hit(signal.SIGKILL)
            # Another user's box with nearly the same name is listed before it.
            others = f"6{len(simulation.rented):03}"
            simulation.boxes.insert(0, SimulatedBox(others, label=f"{label}0", port=1))
            return box

        def destroying(box_id: str) -> bool:
            if box_id not in simulation.rented and simulation.one(box_id):
                world.wrong.append(f"{box_id} is somebody else's, and was destroyed")
            is_lost = world.on(box_id) == UNSAFE and simulation.one(box_id)
            if is_lost and box_id not in world.given_up:
                world.wrong.append(f"{box_id} was not safe, and was destroyed")
            return destroy(box_id)

        monkeypatch.setattr(simulation, "rent", renting)
        monkeypatch.setattr(simulation, "destroy", destroying)
        monkeypatch.setattr(simulation, "on_call", world.struck.strike)
        yield world


def one_seeded_run(
    provider: str, chance: random.Random, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Run commands that are interrupted at any call, check after each, and return how they ended.

    Finally run them without faults: none of our boxes may be left.
    """
    with seeded_world(provider, chance, folder, monkeypatch) as world:
        simulation = world.rented.simulation
        start = chance.choice(CARDS).driver[:10]
        for offer in simulation.offers:
            offer.fate = chance.choice(FATES)
            if provider in {"vast", "runpod", "lambda"}:
                card = chance.choice([one for one in CARDS if one.driver.startswith(start)])
                offer.gpu = chance.choice(card.written)
                offer.memory_gib = chance.choice((card.sold, card.mib / 1024))
        if chance.random() < 0.7:
            card = card_of(chance.choice(simulation.offers))
            relatives = [one for one in CARDS if one.driver[:10] == card.driver[:10]]
            card = card if chance.random() < 0.7 else chance.choice(relatives)
            size = chance.choice((None, card.sold))
            price = MOST.get(provider, 1.0)
            names = (chance.choice((*card.written, card.driver)),)
            world.order = RentOrder(gpu_names=names, min_memory_gib=size, max_price=price)
        went = list[str]()
        for turn in range(6):
            _lay(world, CREATES[provider])
            hosts = [each.host for each in _alive() if each.host]
            if turn and chance.random() < 0.15:
                went.append(f"boxes {world.boxes()}")
            elif turn and hosts and chance.random() < 0.5:
                status = world.down(hosts[0], discard=chance.random() < 0.2)
                went.append(f"down {status}")
                assert status != DONE or not simulation.one(hosts[0].partition(":")[2])
            else:
                status = world.up()
                went.append(f"up {status}")
                assert status != DONE or len(world.ours) == 1
            world.check()
            simulation.clock.sleep(chance.choice((1, 60, 700)))
            if world.ours and chance.random() < 0.1:
                lost = chance.choice(world.ours)
                if chance.random() < 0.5:
                    lost.state, lost.becomes = "offline", None
                else:
                    simulation.boxes.remove(lost)
            if world.ours and provider in STARTS and chance.random() < 0.2:
                box = chance.choice(world.ours)  # as its lease or its owner does
                box.state, box.becomes, box.wakes = "stopped", None, chance.choice(_WAKES)
        _end(world)
        return " ".join(went)


def _lay(world: SeededWorld, creates: str) -> None:
    """Choose what goes wrong with the next command."""
    chance, simulation = world.chance, world.rented.simulation
    faults = tuple(FAULTS)
    simulation.faults_at = {chance.randrange(_CALLS): chance.choice(faults) for _ in range(2)}
    changes = chance.choice((creates, *_DESTROYS, *STARTS.values()))
    simulation.fault_on = {changes: chance.choice(faults)} if chance.random() < 0.5 else {}
    world.dies_renting = chance.random() < 0.1
    if chance.random() < 0.35:
        signaled = chance.choice((signal.SIGINT, signal.SIGKILL))
        world.struck.strikes = {chance.randrange(_CALLS // 2): (chance.random() < 0.5, signaled)}
    elif chance.random() < 0.2:
        world.rented.interrupt_at = simulation.clock.now + chance.choice((0, 30, 90, 200, 900))


def _end(world: SeededWorld) -> None:
    """Without faults, each box that still exists is listed, and can be ended by that."""
    simulation = world.rented.simulation
    simulation.faults_at, simulation.fault_on, world.is_calm = {}, {}, True
    world.dies_renting = False
    simulation.clock.sleep(rental.NEVER_S + 1)
    for _ in range(2):  # undecided rentals are known after that
        world.up()
        world.check()
    for each in _alive():
        assert each.host, each
        assert world.down(each.host, discard=True) == DONE, world.rented.heard.lines
        world.check()
    assert world.ours == []
    assert {"71", "72"} <= {box.id for box in simulation.boxes}
    if simulation.provider == "azure":  # groups of boxes taken back, and nothing half made
        assert not [*simulation.own.half_made()]
