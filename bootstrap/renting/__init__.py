"""Boxes that somebody pays for: rented, watched, given back. Who stands outside takes these names
from here; each is imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.renting.loss_check import Loss
    from bootstrap.renting.order import accounts_for, no_offer, offers_of, order_of
    from bootstrap.renting.ownership import OwnBox, account_of, read_box_id
    from bootstrap.renting.rental import Rental, RentalState
    from bootstrap.renting.teardown import TeardownOptions, tear_down

__all__ = ["Loss", "OwnBox", "Rental", "RentalState", "TeardownOptions", "account_of"]
__all__ += ["accounts_for", "no_offer", "offers_of", "order_of", "read_box_id", "tear_down"]
_MODULES = {"loss_check": "Loss", "ownership": "OwnBox account_of read_box_id"}
_MODULES |= {"order": "accounts_for no_offer offers_of order_of"}
_MODULES |= {"rental": "Rental RentalState", "teardown": "TeardownOptions tear_down"}
__getattr__ = front(__name__, _MODULES)
