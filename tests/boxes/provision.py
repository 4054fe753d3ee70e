"""The contents of a box's overlay before its first start."""

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.boxes import images
from tests.boxes.claims import Subnet
from tests.boxes.keys import make_key
from tests.boxes.kinds import ResolvedKind
from tests.boxes.proc import sh

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"

_ORDINARY_USER = 1000


@dataclass(frozen=True)
class BoxSpec:
    """The description of a box: its kind, address, folder, key and additions."""

    kind: ResolvedKind
    name: str
    index: int
    subnet: Subnet
    folder: Path
    layers: Sequence[Path]
    identity: Path
    mtu: int
    environ: Mapping[str, str]
    files: Mapping[str, str]
    disk: str | None

    @property
    def address(self) -> str:
        """Its address on the rig's bridge."""
        return self.subnet.address(self.index)

    @property
    def login_file(self) -> str:
        """The authorized_keys file that gets the rig's key."""
        return f"{self.kind.home}/.ssh/authorized_keys"


def lay_out(spec: BoxSpec) -> None:
    """Write the overlay's upper folder (keys, names, sshd's lines, added files) and its disk."""
    upper = spec.folder / "upper"
    upper.mkdir(parents=True)
    key = make_host_key(spec)
    owner = 0 if spec.kind.user == "root" else _ORDINARY_USER
    login = spec.identity.with_suffix(".pub").read_text()
    texts = {
        f"{HOST_KEY}.pub": key.with_suffix(".pub").read_text(),
        "/etc/ssh/sshd_config.d/kind.conf": "".join(f"{line}\n" for line in spec.kind.sshd),
        "/etc/hostname": f"{spec.name}\n",
        "/etc/hosts": f"127.0.0.1 localhost\n{spec.address} {spec.name}\n",
        **spec.files,
    }
    for path, text in texts.items():
        mode = 0o755 if text.startswith("#!") else 0o644
        images.put(upper, spec.layers, path, text.encode(), mode=mode)
    secrets = {HOST_KEY: (key.read_text(), 0), spec.login_file: (login, owner)}
    for path, (text, who) in secrets.items():
        images.put(upper, spec.layers, path, text.encode(), mode=0o600, owner=who)
    # A whiteout hides this folder: otherwise each login starts five programs to print the motd.
    os.mknod(upper / "etc/update-motd.d", stat.S_IFCHR, 0)
    if spec.disk:
        image = spec.folder / "disk.img"
        sh(["truncate", "-s", spec.disk, str(image)])
        sh(["mke2fs", "-q", "-t", "ext4", "-m", "0", str(image)])


def clear_work(spec: BoxSpec) -> None:
    """Empty the overlay's work folder for a start, and create the box's mount point."""
    work = spec.folder / "work"
    if work.exists():
        shutil.rmtree(work)
    work.mkdir()
    (spec.folder / "root").mkdir(exist_ok=True)


def make_host_key(spec: BoxSpec) -> Path:
    """Make a new host key next to the overlay; return the private file's path."""
    key = spec.folder / "host_key"
    make_key(key, spec.name)
    return key
