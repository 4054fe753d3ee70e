"""What can go wrong on the wire, beside the errors of `bootstrap.errors`.

UnreachableError   3   can't reach the box or log in
├── LinkLost           the link died; what runs on the box goes on
├── LoginRefused       the box answers, and lets none of our keys in
├── LoginBroken        the box answers, but the login broke off half-way
└── NoAnswer           the box printed something else than an answer
"""

from __future__ import annotations

from bootstrap.errors import UnreachableError


class LinkLost(UnreachableError):  # noqa: N818 - a name of the contract
    """The link to the box died. Following again is safe: the box goes on."""

    def __init__(self, label: str, why: str = "the link was lost") -> None:
        super().__init__(
            why,
            where=label,
            hint="What runs on the box goes on. Run the same command again to follow it.",
        )


class LoginRefused(UnreachableError):  # noqa: N818 - likewise
    """The box answers, but not to any key that we have."""


class LoginBroken(UnreachableError):  # noqa: N818 - likewise
    """The box answers, but the login broke off half-way: on a bad link the next try may succeed."""


class NoAnswer(UnreachableError):  # noqa: N818 - likewise
    """The box was reached, but what it printed is not the answer asked for."""
