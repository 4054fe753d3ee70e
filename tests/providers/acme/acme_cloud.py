"""An example of a provider that another package adds: its account is a file with JSON.

`ACME_ACCOUNT` names the file: `{"offers": {ID: DOLLARS}, "boxes": {ID: BOX}, "at": [ADDRESS, PORT,
USER]}`. A real one asks an API, by `self._api` (urllib3 with retries, and errors of boxstrap).
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bootstrap.providers import ApiKey, CloudAccount, KeyPlaces, RefusedError
from bootstrap.providers.offer import Offer, RentedBox, RentedState, RentOrder, StopRule


class Acme(CloudAccount):
    """An account at Acme; its key is the file's path."""

    name = "acme"
    title = "Acme Cloud"
    keys = KeyPlaces("ACME_ACCOUNT", ())
    address = "https://acme.invalid"
    stops = StopRule("its disk", "its disk")

    def __init__(self, key: ApiKey | None) -> None:
        super().__init__(key)
        self._file = Path(key.value if key else "/dev/null")

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found

    def _change(self, **changed: object) -> None:
        self._file.write_text(json.dumps({**self._read(), **changed}))

    def boxes(self) -> Sequence[RentedBox]:
        """As `CloudAccount.boxes`."""
        account = self._read()
        return [self._rented(name, box, account["at"]) for name, box in account["boxes"].items()]

    def _box(self, box_id: str) -> RentedBox | None:
        return next((box for box in self.boxes() if box.id == box_id), None)

    def _rented(self, box_id: str, box: Mapping[str, Any], at: Sequence[Any]) -> RentedBox:
        state = RentedState.STOPPED if box["stopped"] else RentedState.RUNNING
        address, port, user = at if state is RentedState.RUNNING else ("", 0, "")
        price = box["price"]
        return RentedBox(
            self.name, box_id, box["mark"], state, "Acme A1", 1, address, port, user, price
        )

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        prices: dict[str, float] = self._read()["offers"]
        return [
            Offer(self.name, name, "Acme A1", 1, price, machine=name)
            for name, price in prices.items()
        ]

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        account = self._read()
        if offer.id not in account["offers"]:
            raise RefusedError("it has no such offer any more.", where=self.name)
        made = f"box-{len(account['boxes']) + 1}"
        box = {"mark": mark, "price": offer.price, "stopped": False, "key": public_key}
        self._change(boxes={**account["boxes"], made: box})
        return made

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`."""
        boxes = self._read()["boxes"]
        boxes.pop(box_id, None)
        self._change(boxes=boxes)

    def stop(self, box_id: str) -> None:
        """As `CloudAccount.stop`."""
        self._set(box_id, stopped=True)

    def start(self, box_id: str) -> None:
        """As `CloudAccount.start`."""
        self._set(box_id, stopped=False)

    def _set(self, box_id: str, *, stopped: bool) -> None:
        boxes = self._read()["boxes"]
        boxes[box_id]["stopped"] = stopped
        self._change(boxes=boxes)


@contextmanager
def trial() -> Iterator[CloudAccount]:
    """Lend an account with offers and no box, for `pytest --provider acme`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "account"
        offers = {"cheap": 0.2, "dear": 0.9}
        at = ["127.0.0.1", 22, "root"]
        file.write_text(json.dumps({"offers": offers, "boxes": {}, "at": at}))
        yield Acme(ApiKey(str(file), "a trial"))
