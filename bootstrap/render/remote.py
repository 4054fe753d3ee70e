"""Pastes that hold an address instead of the script: fetched against a SHA-256, or made by uvx."""

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
    """A paste that fetches a script and runs it only where its SHA-256 is this one.

    curl, wget, python3 or apt's own helper: one of them is on every box. Raises
    UsageError for what is no address.
    """
    if not _URL.fullmatch(url):
        raise UsageError("--url takes an address as in https://example.org/box.sh.")
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
"""The folder on the box for what goes with the paste; it is removed at the end."""


def by_uvx(package: str, profile: Profile, source: Source) -> str:
    """A paste that lets uvx install boxstrap from `package` there, and make the script from the
    profile and the public keys that come with it.

    A profile can't say which first commit the repository has; without it the box would take
    what `setup` placed there for another one's, and train again."""
    from bootstrap.profile.public_keys import public_keys
    from bootstrap.render.variables import ROOT

    keys = public_keys(profile)
    values = _without_nothing(profile.as_dict())
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


def _without_nothing(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nothing(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }
