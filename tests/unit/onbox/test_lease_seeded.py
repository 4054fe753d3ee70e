"""No lease is left unheld in silence: whatever an account answers, the box ends, or it is said.

A seeded run lets hours pass for a real keeper, in the time of a simulated account that fails in
one way after another. After each turn, what a person reads is compared with what is true.
"""

import json
import random
from pathlib import Path

import pytest

from bootstrap.boxes import parse_lease
from bootstrap.onbox.lease import keeper
from bootstrap.onbox.lease.instance import APIS, KeyRefusedError, NoAnswerError, OwnInstance
from bootstrap.onbox.lease.keeper import LeaseKeeper
from bootstrap.onbox.lease.rules import AccountReading
from tests.providers.accounts import FAULTS, KEY, POD_KEY, SimulatedBox, simulated

RUNS = 24
STEP_S, LOOKING_S = 20.0, 1.0
"""Between two turns; and while a look at what is safe is waited for, as the monitor does."""
PRICE = 0.5
ENDS_WITHIN_S = 2 * 3600.0
"""An account that was silent is asked again within minutes, one that refused within an hour."""
NOT_HELD = ("nothing on this box holds it", "did not answer", "not counted")
TROUBLES = (*FAULTS, "revoked", "expired", "deaf", "fine", "fine")


class LeaseUnderFaults:
    """One box with a lease, its account, and what a person is told."""

    def __init__(self, home: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.chance = home, chance
        self.now, self.trouble, self.failed = 1000.0, "fine", False
        self.said = list[str]()
        self.tells_price = chance.random() < 0.7
        self._patch = monkeypatch
        monkeypatch.setattr(keeper, "boot_id", lambda: "boot")

    def run(self, provider: str) -> None:
        chance = self.chance
        hours = chance.random() < 0.5
        limit = {"seconds": 3600.0} if hours else {"dollars": PRICE}
        terms = {**limit, "then": chance.choice(("stop", "destroy"))}
        (self.home / "lease.json").write_text(json.dumps(terms))
        with simulated(provider, is_held=False) as self.account:
            own = {"vast": ("1000", KEY), "runpod": ("pod-a", POD_KEY)}[provider]
            self.account.boxes = [SimulatedBox(own[0], price=PRICE), SimulatedBox("2000")]
            self.account.pod = own[0]
            self._patch.setenv(f"BOXSTRAP_{provider.upper()}_API", self.account.url)
            self.instance = OwnInstance(provider, *own)
            self._wrap()
            keeps = chance.random() < 0.8
            self._patch.setattr(OwnInstance, "keeps", lambda *_: keeps)
            keeper = self._keeper()
            began = self.now
            while self.now - began < 2.5 * 3600 and self._runs:
                self._choose()
                for _ in range(chance.randrange(1, 40)):
                    self._turn(keeper, began)
                if chance.random() < 0.2:  # the monitor was killed, and is started again
                    keeper = self._keeper()
            self._be("fine")
            calm = self.now
            while self._runs and self.now - calm < ENDS_WITHIN_S:
                self._turn(keeper, began)
            is_said = any(word in self.said[-1] for word in ("it keeps running", "not counted"))
            assert is_said or not self._runs, self.said[-1]
            assert [box.id for box in self.account.boxes if box.id == "2000"] == ["2000"]

    @property
    def _runs(self) -> bool:
        """Whether the box costs money."""
        box = next((box for box in self.account.boxes if box.id != "2000"), None)
        return box is not None and box.state == "running"

    def _keeper(self) -> LeaseKeeper:
        keeper = LeaseKeeper(
            self.home, clock=lambda: self.now, since=lambda: 0.0, find=lambda: self.instance
        )
        unsafe = ["train-1: never pulled"] if self.chance.random() < 0.3 else []
        self._patch.setattr(keeper._activity, "look", lambda *_: None)
        self._patch.setattr(keeper._safety, "begin", lambda: None)
        self._patch.setattr(keeper._safety, "tell", lambda: unsafe)
        return keeper

    def _choose(self) -> None:
        self._be(self.chance.choice(TROUBLES))

    def _be(self, trouble: str) -> None:
        self.trouble, account = trouble, self.account
        account.is_expired, account.is_edgy = trouble == "expired", trouble == "edge"
        account.fault_on = {}

    def _wrap(self) -> None:
        """Let the account fail as the trouble says, and note whether a request failed."""
        send, ask, account = OwnInstance._send, OwnInstance.ask, self.account
        destroy = account.destroy

        def sending(one: OwnInstance, method: str, path: str, body: object) -> object:
            if self.trouble in FAULTS and self.trouble != "edge":
                account.fault_on = {"": self.trouble}
            key = "revoked" if self.trouble == "revoked" else self._key
            self._patch.setattr(one, "_key", key)
            try:
                found = send(one, method, path, body)  # type: ignore[arg-type]
            except (KeyRefusedError, NoAnswerError):
                self.failed = True
                raise
            self.failed = False
            return found

        def asking(one: OwnInstance) -> AccountReading:
            try:
                said = ask(one)
            except (KeyRefusedError, NoAnswerError):
                self.failed = True
                raise
            return said if self.tells_price else said._replace(price=None)

        def destroying(box_id: str) -> bool:
            return True if self.trouble == "deaf" else destroy(box_id)

        self._key = self.instance._key
        self._patch.setattr(OwnInstance, "_send", sending)
        self._patch.setattr(OwnInstance, "ask", asking)
        self._patch.setattr(account, "destroy", destroying)

    def _turn(self, keeper: LeaseKeeper, began: float) -> None:
        before = [(box.id, box.state) for box in self.account.boxes]
        keeper.turn([], [])
        if self.trouble == "deaf":  # it says that it did it, and doesn't
            for box, (_, state) in zip(self.account.boxes, before, strict=True):
                box.state = state
        self.now += LOOKING_S if keeper.looks else STEP_S
        lease = parse_lease(f"kept\t{(self.home / 'lease.state').read_text()}")
        assert lease is not None
        line = lease.lines()[0]
        self.said.append(line)
        if not self._runs:
            return
        if self.failed:
            assert any(word in line for word in (*NOT_HELD, "keeps running")), (self.trouble, line)
        # Both limits are an hour of it. Whatever counts, past it nothing is quiet.
        if self.now - began > 3600 + 120:
            told = ("over (", *NOT_HELD)
            assert any(word in line for word in told), (self.trouble, line)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("provider", sorted(APIS))
@pytest.mark.parametrize("number", range(RUNS))
def test_under_random_account_faults_a_box_says_so_whenever_nothing_enforces_its_lease(
    number: int,
    provider: str,
    seeded: random.Random,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = seeded.randrange(1_000_000) + number
    world = LeaseUnderFaults(tmp_path, random.Random(seed), monkeypatch)
    try:
        world.run(provider)
    except Exception as error:
        raise AssertionError(f"seed {seed} at {provider}") from error
