"""What shells start with in providers' and users' images: variables, start-up files, a banner."""

from __future__ import annotations

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

BOX_ID = "21843570"
"""The id that a vast box has for itself."""
VAST_ENV = {
    "CONTAINER_ID": BOX_ID,
    "CONTAINER_API_KEY": "rig-container-key",
    "VAST_CONTAINERLABEL": f"C.{BOX_ID}",
    "PUBLIC_IPADDR": "203.0.113.7",
    "VAST_TCP_PORT_22": "46769",
    "GPU_COUNT": "1",
    "DATA_DIRECTORY": "/workspace/",
    "WORKSPACE": "/workspace",
    "JUPYTER_TOKEN": "rig-jupyter-token",
}

# The provider puts auto-tmux in front of everything else in root's .bashrc, and
# bash reads that file for `ssh box command` too.
VAST_BASHRC = """\
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

VAST_ENVIRONMENT = (
    "# Template controlled environment for C.21843570\n"
    f'PATH="/opt/instance-tools/bin:{PATH}"\n'
    + "".join(f'{name}="{value}"\n' for name, value in VAST_ENV.items())
)

RUNPOD_ENV = {
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

RUNPOD_BASHRC = """\
source /etc/rp_environment
cat /etc/rig-banner
"""

RUNPOD_BANNER = r"""
 ____              ____           _
|  _ \ _   _ _ __ |  _ \ ___   __| |
| |_) | | | | '_ \| |_) / _ \ / _` |
|_| \_\\__,_|_| |_|_|   \___/ \__,_|

For detailed documentation and guides, read the provider's pages.
"""

# A start-up file with many traps: coloured output on both streams without a final newline,
# an alias and a function that shadow tools, a hostile umask and options, and a terminal
# setting where there is no terminal.
NOISY_RC = """\
printf '\\033[1;32mWelcome back!\\033[0m\\r\\n'
echo 'warning: your quota is 97 % full' >&2
stty erase '^H'
alias ls='ls --color=always' cat='cat -n' git='echo git'
rm() { echo "rm is disabled"; }
export -f rm
umask 0077
export GREP_OPTIONS=--color=always LC_ALL=xx_YY.UTF-8 PYTHONSTARTUP=/nowhere BASH_ENV=/etc/noise
export CDPATH=/ GLOBIGNORE='*' POSIXLY_CORRECT=1 TMOUT=1 TMPDIR=/nowhere LC_NUMERIC=de_DE.UTF-8
set -o noglob && export SHELLOPTS
printf 'no newline at the end'
"""

NOISY_BUILD = """
printf 'echo noise\\nset -f\\n' >/etc/noise
printf 'echo "profile of $USER"\\n' >>~/.bash_profile
printf '. ~/.bashrc\\n' >>~/.bash_profile
printf 'Banner /etc/ssh/banner\\nPrintMotd yes\\n' >>/etc/ssh/sshd_config.d/noise.conf
printf 'Authorized use only.\\n' >/etc/ssh/banner
printf 'News of the day\\n' >/etc/motd
"""
