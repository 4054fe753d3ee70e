"""The way that a login took, as it is remembered: the ssh config's entry is made of it later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap import paths

if TYPE_CHECKING:
    from bootstrap.link.resolve import Endpoint

_KINDS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa")
_DEFAULT_KEYS = frozenset(f"id_{kind}" for kind in _KINDS)
"""What ssh tries by itself (ssh_config(5), IdentityFile)."""


def route_of(endpoint: Endpoint) -> dict[str, object]:
    """Keys, jump hosts and known_hosts files, as JSON values for `KnownBox.extra`."""
    chosen = endpoint.chosen_identity
    files = (chosen,) if chosen else _named(endpoint.identity_files)
    return {
        "identity": str(chosen or ""),
        "identities": [str(path) for path in files],
        "identities_only": bool(files) and (chosen is not None or endpoint.identities_only),
        "jump": endpoint.proxy_jump or "",
        "proxy": "" if endpoint.proxy_jump else endpoint.proxy_command or "",
        "known_hosts": [str(path) for path in _theirs(endpoint.user_known_hosts_files)],
    }


def _named(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Key files that the user's config names; none where they are ssh's own choice."""
    return () if all(path.name in _DEFAULT_KEYS for path in files) else files


def _theirs(files: tuple[Path, ...]) -> list[Path]:
    """The user's own known_hosts files: those of boxes come from an entry of ours."""
    boxes = paths.state_dir() / "boxes"
    return [path for path in files if not path.is_relative_to(boxes)]
