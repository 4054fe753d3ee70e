"""Profiles: what a box should become, and where each value comes from. Who stands outside takes
these names from here; each is imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.profile.consent import ConsentError
    from bootstrap.profile.load import shipped_ones
    from bootstrap.profile.reading import make_profile
    from bootstrap.profile.schema import PROFILE, Advice, DataItem, Profile, SentItem

__all__ = ["PROFILE", "Advice", "ConsentError", "DataItem", "Profile", "SentItem", "make_profile"]
__all__ += ["shipped_ones"]
_MODULES = {"consent": "ConsentError", "load": "shipped_ones"}
_MODULES |= {"reading": "make_profile", "schema": "Advice DataItem PROFILE Profile SentItem"}
__getattr__ = front(__name__, _MODULES)
