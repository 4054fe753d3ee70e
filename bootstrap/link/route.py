"""The route that a login took, as it is kept in a box's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bootstrap.link.resolve import Endpoint

_KINDS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa")
_DEFAULT_KEYS = frozenset(f"id_{kind}" for kind in _KINDS)
"""The key files that ssh tries by default (ssh_config(5), IdentityFile)."""


@dataclass(frozen=True)
class Route:
    """The route that a login took; the box's ssh config entry is made from it later."""

    identity: str = ""
    """The key file that was named for the box, by `--identity` or the profile."""
    identities: tuple[str, ...] = ()
    """The key files that are offered; empty if they are ssh's defaults."""
    identities_only: bool = False
    jump: str = ""
    proxy: str = ""
    known_hosts: tuple[str, ...] = ()
    """The user's own known_hosts files."""


def route_of(endpoint: Endpoint, ours: Path) -> Route:
    """Return the route to `endpoint`; known_hosts files below `ours` are not the user's."""
    chosen = endpoint.chosen_identity
    named = endpoint.identity_files
    if all(path.name in _DEFAULT_KEYS for path in named):
        named = ()
    files = (chosen,) if chosen else named
    theirs = [path for path in endpoint.user_known_hosts_files if not path.is_relative_to(ours)]
    return Route(
        identity=str(chosen or ""),
        identities=tuple(map(str, files)),
        identities_only=bool(files) and (chosen is not None or endpoint.identities_only),
        jump=endpoint.proxy_jump or "",
        proxy="" if endpoint.proxy_jump else endpoint.proxy_command or "",
        known_hosts=tuple(map(str, theirs)),
    )
