"""The kinds of box, as data. A new kind or variant is a new row here.

The rows imitate providers' real images as far as that matters to a setup: login,
shell start-up files, tools, variables. If an image could do something in two ways,
the row does the harder one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.boxes import startup
from tests.boxes.startup import PATH

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


def _user(name: str, *, sudo: bool) -> str:
    """Return a script that makes an ordinary user with uid 1000; the rig's key comes later."""
    lines = f"useradd --create-home --shell /bin/bash --uid 1000 {name}\npasswd -l root\n"
    if sudo:
        lines += f"echo '{name} ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/90-{name}\n"
        lines += f"chmod 0440 /etc/sudoers.d/90-{name}\n"
    return lines


_PYTHON = ("python3", "python3-venv", "python3-pip", "ca-certificates")

_ROWS = (
    Kind("bare", "sshd and Debian's essential packages: no python, git, curl, tmux, sudo"),
    Kind(
        "vast-nouv",
        "a Vast.ai container whose image brings no uv",
        packages=(*_PYTHON, "git", "tmux", "rsync", "curl", "wget", "procps", "less", "vim-tiny"),
        files={"/root/.bashrc": startup.VAST_BASHRC, "/etc/environment": startup.VAST_ENVIRONMENT},
        build="mkdir -p /workspace /opt/instance-tools/bin; python3 -m venv /venv/main\n",
        environ=startup.VAST_ENV,
    ),
    Kind(
        "vast",
        "a Vast.ai container: root, auto-tmux, /venv/main, /workspace, uv",
        extends="vast-nouv",
        build="""
        python3 -m venv /tmp/uv
        /tmp/uv/bin/pip --quiet --no-cache-dir install uv
        cp /tmp/uv/bin/uv /tmp/uv/bin/uvx /usr/local/bin/
        rm -rf /tmp/uv
        """,
    ),
    Kind(
        "runpod",
        "a RunPod pod: root, no tmux, no rsync, .bashrc prints a banner, /workspace",
        packages=(*_PYTHON, "git", "curl", "procps"),
        files={
            "/root/.bashrc": startup.RUNPOD_BASHRC,
            "/etc/rig-banner": startup.RUNPOD_BANNER,
            "/etc/rp_environment": "".join(
                f'export {name}="{value}"\n'
                for name, value in {**startup.RUNPOD_ENV, "PATH": PATH}.items()
            ),
        },
        build="mkdir -p /workspace\n",
        environ=startup.RUNPOD_ENV,
    ),
    Kind(
        "lambda",
        "a Lambda VM: user ubuntu with sudo that asks nothing, no login as root",
        packages=(*_PYTHON, "sudo", "git", "tmux", "rsync", "curl", "wget", "procps"),
        build=_user("ubuntu", sudo=True),
        user="ubuntu",
        sshd=("PermitRootLogin no",),
    ),
    Kind(
        "ec2",
        "an instance of EC2 that `up` rented: user ubuntu, ends by its shutdown, here only noted",
        extends="lambda",
        files={
            "/etc/boxstrap-shutdown": "ec2 stop 1.006000\n",
            "/usr/local/sbin/shutdown": '#!/bin/sh\necho "$(id -un) $*" >>/var/log/shutdowns\n',
        },
        build="chmod +x /usr/local/sbin/shutdown\n",
    ),
    Kind(
        "gcp",
        "an instance of Google Cloud that `up` rented: as one of EC2, with a file of its own",
        extends="lambda",
        files={
            "/etc/boxstrap-gcp": "gcp stop 0.706832\n",
            "/usr/local/sbin/shutdown": '#!/bin/sh\necho "$(id -un) $*" >>/var/log/shutdowns\n',
        },
        build="chmod +x /usr/local/sbin/shutdown\n",
    ),
    Kind(
        "azure",
        "a machine of Azure's: user azureuser with sudo, and Azure's agent",
        extends="lambda",
        build="""
        usermod --login azureuser --home /home/azureuser --move-home ubuntu
        groupmod --new-name azureuser ubuntu
        mv /etc/sudoers.d/90-ubuntu /etc/sudoers.d/90-azureuser
        sed -i s/^ubuntu/azureuser/ /etc/sudoers.d/90-azureuser
        mkdir -p /var/lib/waagent
        """,
        user="azureuser",
    ),
    Kind(
        "nosudo",
        "an ordinary account: git and python, no tmux, no rsync, no sudo, no login as root",
        packages=(*_PYTHON, "git", "procps"),
        build=_user("student", sudo=False),
        user="student",
        sshd=("PermitRootLogin no",),
    ),
    Kind(
        "fish",
        "a Lambda VM whose user's login shell is fish",
        extends="lambda",
        packages=("fish",),
        build="chsh -s /usr/bin/fish ubuntu\n",
    ),
    Kind(
        "tcsh",
        "a Lambda VM whose user's login shell is tcsh",
        extends="lambda",
        packages=("tcsh",),
        build="chsh -s /usr/bin/tcsh ubuntu\n",
    ),
    Kind(
        "zsh",
        "a Lambda VM whose user's login shell is zsh",
        extends="lambda",
        packages=("zsh",),
        build="chsh -s /usr/bin/zsh ubuntu\n",
    ),
    Kind(
        "noisy",
        "a Vast.ai container whose start-up files print, alias and shadow",
        extends="vast-nouv",
        files={"/root/.bashrc": startup.NOISY_RC},
        build=startup.NOISY_BUILD,
    ),
    Kind(
        "rohome",
        "an ordinary account whose home can't be written",
        extends="nosudo",
        build="mkdir -m 0777 /scratch\n",
        mounts=("ro /home/student",),
    ),
    Kind(
        "smallshm",
        "a Vast.ai container with the 64 MB of shared memory that containers have by default",
        extends="vast",
        mounts=("tmpfs /dev/shm 64m",),
    ),
    Kind(
        "tinytmp",
        "a Vast.ai container with almost no room for temporary files",
        extends="vast",
        mounts=("tmpfs /tmp 16k",),
    ),
    Kind(
        "nobash",
        "a box without bash, whose everyday programs and shell are busybox's",
        packages=("busybox",),
        build=f"""
        mkdir -p /usr/local/sbin {OWN_BASH}
        for name in $(busybox --list); do ln -sf /bin/busybox /usr/local/sbin/$name; done
        chsh -s /usr/local/sbin/sh root
        cp /bin/bash {OWN_BASH}/bash
        rm /bin/bash
        """,
    ),
    Kind(
        "musl",
        "a Vast.ai container whose C library calls itself musl, as Alpine's does",
        extends="vast",
        packages=("musl",),
        build="ln -sf /lib/ld-musl-*.so.1 /usr/local/bin/ldd\n",
    ),
    Kind(
        "wrongclock",
        "a Vast.ai container whose clock is a year behind, for every program in it",
        extends="vast",
        packages=("libfaketime",),
        files={"/etc/faketimerc": "-365d\n"},
        build="ls /usr/lib/*/faketime/libfaketime.so.1 >/etc/ld.so.preload\n",
    ),
    Kind(
        "smalldisk",
        "a Vast.ai container with a disk of 300 MB for everything it writes",
        extends="vast",
        disk="300M",
    ),
)

KINDS: Mapping[str, Kind] = {row.name: row for row in _ROWS}


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
