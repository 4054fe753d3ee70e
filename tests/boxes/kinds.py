"""The kinds of box, as data. A new kind or variant is a new row here.

What the rows imitate is what providers' images really hold, as far as it
matters to a set-up: login, shell start-up files, tools, variables. Where an
image could do a thing in two ways, the row has the harder one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Where a kind without bash keeps one for the rig, out of every PATH.
OWN_BASH = "/opt/rig"


@dataclass(frozen=True)
class Kind:
    """One kind of box: a layer on the kind it extends.

    `packages`, `files` and `build` make the layer, once; `environ` is what PID 1
    is started with; `sshd` are lines put in front of sshd's configuration; a
    `mount` is "tmpfs PATH SIZE" or "ro PATH". `user`, `environ`, `sshd` and
    `mounts` that a kind doesn't give come from the kind it extends.
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


_VAST_ENV = {
    "CONTAINER_ID": "21843570",
    "CONTAINER_API_KEY": "rig-container-key",
    "VAST_CONTAINERLABEL": "C.21843570",
    "PUBLIC_IPADDR": "203.0.113.7",
    "VAST_TCP_PORT_22": "46769",
    "GPU_COUNT": "1",
    "DATA_DIRECTORY": "/workspace/",
    "WORKSPACE": "/workspace",
    "JUPYTER_TOKEN": "rig-jupyter-token",
}

# The provider puts auto-tmux in front of everything else in root's .bashrc, and
# bash reads that file for `ssh box command` too.
_VAST_BASHRC = """\
if [ -n "$SSH_CONNECTION" ] && [ -z "$TMUX" ] && [ ! -e ~/.no_auto_tmux ]; then
  tmux attach-session -t ssh_tmux || tmux new-session -s ssh_tmux
fi
[ -z "$PS1" ] && return
PS1='(main) \\u@C.21843570:\\w\\$ '
### Entrypoint setup ###
cd ${WORKSPACE}
set -a
. /etc/environment
set +a
. /venv/main/bin/activate
### End entrypoint setup ###
"""

_VAST_ENVIRONMENT = (
    "# Template controlled environment for C.21843570\n"
    f'PATH="/opt/instance-tools/bin:{PATH}"\n'
    + "".join(f'{name}="{value}"\n' for name, value in _VAST_ENV.items())
)

_RUNPOD_ENV = {
    "RUNPOD_POD_ID": "k3x0rigpod7a1b",
    "RUNPOD_API_KEY": "rig-pod-key",
    "RUNPOD_GPU_COUNT": "1",
    "RUNPOD_DC_ID": "EU-RO-1",
    "RUNPOD_CPU_COUNT": "8",
    "RUNPOD_MEM_GB": "50",
    "RUNPOD_PUBLIC_IP": "203.0.113.9",
    "RUNPOD_TCP_PORT_22": "22022",
    "RUNPOD_VOLUME_ID": "rigvolume",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
}

_RUNPOD_BASHRC = """\
source /etc/rp_environment
cat /etc/rig-banner
"""

_RUNPOD_BANNER = r"""
 ____              ____           _
|  _ \ _   _ _ __ |  _ \ ___   __| |
| |_) | | | | '_ \| |_) / _ \ / _` |
|_| \_\\__,_|_| |_|_|   \___/ \__,_|

For detailed documentation and guides, read the provider's pages.
"""

# A start-up file of somebody who likes to be greeted: output on both streams, in
# colours, without a last newline, an alias and a function that shadow tools, an
# unfriendly umask and options, and a question to a terminal that isn't there.
_NOISY_RC = """\
printf '\\033[1;32mWelcome back!\\033[0m\\r\\n'
echo 'warning: your quota is 97 % full' >&2
stty erase '^H'
alias ls='ls --color=always' cat='cat -n' git='echo git'
rm() { echo "rm is disabled"; }
export -f rm
umask 0077
export GREP_OPTIONS=--color=always LC_ALL=xx_YY.UTF-8 PYTHONSTARTUP=/nowhere BASH_ENV=
printf 'no newline at the end'
"""

_NOISY_BUILD = """
printf 'echo "profile of $USER"\\n' >>~/.bash_profile
printf '. ~/.bashrc\\n' >>~/.bash_profile
printf 'Banner /etc/ssh/banner\\nPrintMotd yes\\n' >>/etc/ssh/sshd_config.d/noise.conf
printf 'Authorized use only.\\n' >/etc/ssh/banner
printf 'News of the day\\n' >/etc/motd
"""


def _user(name: str, *, sudo: bool) -> str:
    """Make an ordinary user with number 1000; the rig's key goes into its home later."""
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
        files={"/root/.bashrc": _VAST_BASHRC, "/etc/environment": _VAST_ENVIRONMENT},
        build="mkdir -p /workspace /opt/instance-tools/bin; python3 -m venv /venv/main\n",
        environ=_VAST_ENV,
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
            "/root/.bashrc": _RUNPOD_BASHRC,
            "/etc/rig-banner": _RUNPOD_BANNER,
            "/etc/rp_environment": "".join(
                f'export {name}="{value}"\n'
                for name, value in {**_RUNPOD_ENV, "PATH": PATH}.items()
            ),
        },
        build="mkdir -p /workspace\n",
        environ=_RUNPOD_ENV,
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
        files={"/root/.bashrc": _NOISY_RC},
        build=_NOISY_BUILD,
    ),
    Kind(
        "rohome",
        "an ordinary account whose home can't be written",
        extends="nosudo",
        build="mkdir -m 0777 /scratch\n",
        mounts=("ro /home/student",),
    ),
    Kind(
        "tmpfshome",
        "an ordinary account whose home is a small tmpfs",
        extends="nosudo",
        mounts=("tmpfs /home/student 300m",),
    ),
    Kind(
        "smallshm",
        "a Vast.ai container with the 64 MB of shared memory that containers have by default",
        extends="vast",
        mounts=("tmpfs /dev/shm 64m",),
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
    """A kind with what it inherits; KeyError lists the kinds there are."""
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
