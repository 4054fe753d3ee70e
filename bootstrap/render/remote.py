"""Pastes without the script itself: fetched and checked by SHA-256, or rendered by uvx."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

from bootstrap.errors import UsageError

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.render.variables import Source

_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&'()*+,;=%\[\]-]{1,2000}")


def by_url(url: str, sha256: str) -> str:
    """Return a paste that fetches a script and runs it only if its SHA-256 matches.

    Every box has one of curl, wget, python3 or apt's helper. Raises UsageError if
    `url` is not a URL.
    """
    if not _URL.fullmatch(url):
        raise UsageError("--url takes a URL such as https://example.org/box.sh.")
    address = shlex.quote(url)
    python = shlex.quote("import sys,urllib.request as u;u.urlretrieve(*sys.argv[1:])")
    ways = (
        f"curl -fsSLo $f {address}",
        f"wget -qO $f {address}",
        f"python3 -c {python} {address} $f",
        f"/usr/lib/apt/apt-helper download-file {address} $f",
    )
    tried = "||".join(f"{way} 2>/dev/null" for way in ways)
    return f"f=$(mktemp);{{ {tried};}}&&echo '{sha256}  '$f|sha256sum -c --quiet&&bash $f;rm $f\n"


PLACE = "~/.boxstrap-door"
"""The folder on the box for the paste's files; it is removed at the end."""


def by_uvx(package: str, profile: Profile, source: Source) -> str:
    """Return a paste in which uvx installs boxstrap from `package` on the box, and renders the
    script from the profile and public keys in the paste.

    It also passes the repository's first commit, which a profile can't contain: otherwise the box
    would take the tree that `setup` placed for another repository's, and train again."""
    from bootstrap.profile.load import public_keys
    from bootstrap.render.variables import ROOT

    keys = public_keys(profile)
    values = _without_none(profile.as_dict())
    del values["name"]
    values.pop("extends", None)
    values["git"].update(url=source.url, ref=source.commit, access="url")
    values["ssh"].update(authorized_keys=[f"{PLACE}/{number}.pub" for number in range(len(keys))])
    values["ssh"].pop("identity", None)
    files = {"boxstrap.yaml": json.dumps(values, indent=0)}
    files.update({f"{number}.pub": line for number, line in enumerate(keys)})
    laid = "".join(f"cat >{PLACE}/{name}<<'E'\n{text}\nE\n" for name, text in files.items())
    return (
        f"mkdir -p {PLACE}\n{laid}"
        f"{ROOT}={source.root} uvx --from {shlex.quote(package)} boxstrap render --for terminal "
        f"--profile {PLACE}/boxstrap.yaml --output {PLACE}/box.sh&&bash {PLACE}/box.sh;"
        f"rm -r {PLACE}\n"
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }
