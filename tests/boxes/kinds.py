"""The kinds of box, as data: a new kind or variant is a new case in `kinds.txt`.

The cases imitate providers' real images as far as that matters to a setup: login,
shell start-up files, tools, variables. If an image could do something in two ways,
the case does the harder one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cases import parts_of, read_cases

#: A kind without bash keeps one here for the rig, outside the PATH of its logins.
OWN_BASH = "/opt/rig"


@dataclass(frozen=True)
class Kind:
    """One kind of box: a layer on the kind it extends.

    `packages`, `files` and `build` make the layer, once; PID 1 is started with `environ`;
    `sshd` lines go in front of sshd's configuration; a mount is "tmpfs PATH SIZE" or
    "ro PATH". `user`, `environ`, `sshd`, `mounts` and `disk` are inherited from the kind
    it extends if unset.
    """

    name: str
    about: str
    extends: str | None = None
    packages: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    build: str = ""
    user: str | None = None
    environ: Mapping[str, str] | None = None
    sshd: tuple[str, ...] | None = None
    mounts: tuple[str, ...] | None = None
    disk: str | None = None


@dataclass(frozen=True)
class ResolvedKind:
    """A kind with everything it inherits: the chain of its layers, lowest first."""

    name: str
    chain: tuple[Kind, ...]
    user: str = "root"
    environ: Mapping[str, str] = field(default_factory=dict)
    sshd: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    disk: str | None = None

    @property
    def home(self) -> str:
        return "/root" if self.user == "root" else f"/home/{self.user}"


BUILDS = {
    "vast": """
        python3 -m venv /tmp/uv
        /tmp/uv/bin/pip --quiet --no-cache-dir install uv
        cp /tmp/uv/bin/uv /tmp/uv/bin/uvx /usr/local/bin/
        rm -rf /tmp/uv
        """,
    "azure": """
        usermod --login azureuser --home /home/azureuser --move-home ubuntu
        groupmod --new-name azureuser ubuntu
        mv /etc/sudoers.d/90-ubuntu /etc/sudoers.d/90-azureuser
        sed -i s/^ubuntu/azureuser/ /etc/sudoers.d/90-azureuser
        mkdir -p /var/lib/waagent
        """,
    "nobash": f"""
        mkdir -p /usr/local/sbin {OWN_BASH}
        for name in $(busybox --list); do ln -sf /bin/busybox /usr/local/sbin/$name; done
        chsh -s /usr/local/sbin/sh root
        cp /bin/bash {OWN_BASH}/bash
        rm /bin/bash
        """,
}


def _kind(name: str, text: str) -> Kind:
    """Read a case of `kinds.txt`."""
    parts = parts_of(text)
    about, *lines = parts.pop("").splitlines()
    said = [(key, value) for key, _, value in (line.partition(" ") for line in lines)]
    one = dict(said)
    environ = (line.partition("=") for line in parts.get("environ", "").split("\n"))

    def several(key: str) -> tuple[str, ...] | None:
        return tuple(value for each, value in said if each == key) or None

    return Kind(
        name,
        about,
        one.get("extends"),
        tuple(one.get("packages", "").split()),
        {path: content for path, content in parts.items() if path.startswith("/")},
        BUILDS.get(name, parts.get("build", "")),
        one.get("user"),
        {variable: value for variable, _, value in environ if variable} or None,
        several("sshd"),
        several("mounts"),
        one.get("disk"),
    )


_CASES = read_cases(Path(__file__).with_name("kinds.txt"))[1:]
KINDS: Mapping[str, Kind] = {name: _kind(name, text) for name, text in _CASES}


def whole(name: str) -> ResolvedKind:
    """Resolve what a kind inherits; raises KeyError that lists the known kinds."""
    if name not in KINDS:
        raise KeyError(f"no kind {name!r}: there are {', '.join(KINDS)}")
    chain: list[Kind] = []
    at: str | None = name
    while at is not None:
        chain.insert(0, KINDS[at])
        at = KINDS[at].extends
    found = ResolvedKind(name, tuple(chain))
    values = {key: getattr(found, key) for key in ("user", "environ", "sshd", "mounts", "disk")}
    for kind in chain:
        values.update({key: given for key in values if (given := getattr(kind, key)) is not None})
    return ResolvedKind(name, tuple(chain), **values)
