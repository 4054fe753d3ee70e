"""The package sources of this machine, for its boxes.

Everything is read from this machine's own tools: Debian's mirror and proxy from
apt, the package index from pip, certificates and name servers from /etc. So no
host name is hard-coded here, and a box reaches what this machine reaches.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tests.boxes import places
from tests.boxes.proc import RigError, sh

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_LOCAL_CERTS = "/usr/local/share/ca-certificates"


@dataclass(frozen=True)
class AptSource:
    """One source of Debian itself, as apt parsed it."""

    uri: str
    release: str
    component: str


@dataclass(frozen=True)
class PipIndex:
    """The index settings of this machine's pip, or its built-in ones."""

    index: str
    is_built_in: bool
    extra: tuple[str, ...]
    find_links: tuple[str, ...]

    def local_indexes(self) -> list[Path]:
        """Return the extra indexes that are folders on this machine (PEP 503 trees)."""
        return [_folder(url) for url in self.extra if url.startswith("file:")]

    def local_wheels(self) -> list[Path]:
        """Return the folders of wheels on this machine."""
        return [_folder(place) for place in self.find_links if "://" not in place[6:]]


def _folder(place: str) -> Path:
    return Path(url2pathname(urlsplit(place).path) if place.startswith("file:") else place)


def codename() -> str:
    """Return the Debian release of this machine, which the boxes use too."""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise RigError("the rig needs a Debian machine: /etc/os-release names no release")


@lru_cache(maxsize=1)
def apt_sources() -> tuple[AptSource, ...]:
    """Return this machine's Debian sources, the release first, without third-party ones."""
    form = "$(CREATED_BY)|$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    # Keep the cache that apt builds of the package lists: a container's apt rebuilds it each time.
    kept = f"Dir::Cache::pkgcache={places.cache()}/pkgcache.bin"
    listed = sh(["apt-get", "indextargets", "-o", kept, "--format", form])
    rows = [line.split("|") for line in listed.split()]
    rows = [row for row in rows if len(row) == 5 and row[0] == "Packages"]
    release = codename()
    # Origin is known only after an `apt-get update`; before it, go by the release's name.
    chosen = [row for row in rows if row[1] == "Debian"] or [
        row for row in rows if row[3].partition("-")[0] == release
    ]
    found = dict.fromkeys(AptSource(row[2], row[3], row[4]) for row in chosen)
    ordered = tuple(sorted(found, key=lambda source: source.release != release))
    if not ordered or ordered[0].release != release:
        raise RigError(f"apt on this machine has no source for {release}: see /etc/apt")
    return ordered


def sources_list() -> str:
    """A sources.list for boxes."""
    return "".join(f"deb {s.uri} {s.release} {s.component}\n" for s in apt_sources())


@lru_cache(maxsize=1)
def apt_proxy() -> str | None:
    """Return the proxy that apt on this machine uses, if any."""
    said = sh(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"])
    found = re.search(r"^PROXY='(.+)'$", said, re.MULTILINE)
    return found.group(1) if found else None


# One Python start for both answers; `pip config list` takes three times as long.
_ASK_PIP = """
import json
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
found = Configuration(isolated=False)
found.load()
print(json.dumps({"built-in": PyPI.simple_url, "settings": dict(found.items())}))
"""


@lru_cache(maxsize=1)
def pip_index() -> PipIndex:
    """Ask pip (of this Python, else of the system) for its configuration."""
    answer = json.loads(_ask_pip())
    settings: dict[str, str] = {}
    for key, value in answer["settings"].items():
        if isinstance(value, dict):  # newer pip: by file
            settings |= {_last(inner): str(given) for inner, given in value.items()}
        else:
            settings[_last(key)] = str(value)
    built_in = answer["built-in"].rstrip("/")
    index = settings.get("index-url", built_in).rstrip("/")
    return PipIndex(
        index=index,
        is_built_in=index == built_in,
        extra=tuple(settings.get("extra-index-url", "").split()),
        find_links=tuple(settings.get("find-links", "").split()),
    )


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _ask_pip() -> str:
    for python in (sys.executable, "/usr/bin/python3", "python3"):
        try:
            return sh([python, "-c", _ASK_PIP])
        except (RigError, OSError):
            continue
    raise RigError("no Python of this machine has pip, which knows the package index")


def pip_conf() -> str:
    """/etc/pip.conf of a box that uses the same index as this machine."""
    found = pip_index()
    lines = ["[global]", f"cert = {BUNDLE}"]
    if not found.is_built_in:
        lines.append(f"index-url = {found.index}")
    extra = [url for url in found.extra if not url.startswith("file:")]
    if extra:
        lines.append(f"extra-index-url = {' '.join(extra)}")
    return "\n".join(lines) + "\n"


def certificates() -> dict[str, bytes]:
    """Return this machine's certificates as files of a box: the whole bundle and the local ones.

    The local ones are where update-ca-certificates looks, so a box that installs
    ca-certificates later still trusts them.
    """
    files = {}
    bundle = Path(BUNDLE)
    if bundle.exists():
        files[BUNDLE] = bundle.read_bytes()
    for cert in sorted(Path(_LOCAL_CERTS).glob("*.crt")):
        files[str(cert)] = cert.read_bytes()
    return files


def resolv_conf() -> str:
    """/etc/resolv.conf for boxes: this machine's name servers that a box can reach."""
    for place in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"):
        path = Path(place)
        if not path.exists():
            continue
        servers = re.findall(r"^nameserver\s+(\S+)", path.read_text(), re.MULTILINE)
        reachable = [s for s in servers if not s.startswith("127.") and s != "::1"]
        if reachable:
            return "".join(f"nameserver {server}\n" for server in reachable)
    raise RigError("no name server that a box could reach: see /etc/resolv.conf")


def uplink_mtu() -> int:
    """The MTU of the card that this machine's default route uses; 1500 without one."""
    done = subprocess.run(
        ["ip", "-4", "route", "show", "default"], capture_output=True, text=True, check=False
    )
    found = re.search(r"\bdev (\S+)", done.stdout)
    if not found:
        return 1500
    return min(1500, int(Path(f"/sys/class/net/{found.group(1)}/mtu").read_text()))
