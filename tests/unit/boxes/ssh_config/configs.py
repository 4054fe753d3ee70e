"""Thirty realistic ssh configs by name, with the exact bytes of the file."""

from __future__ import annotations

import textwrap


def _text(text: str) -> bytes:
    return textwrap.dedent(text).lstrip("\n").encode()


USUAL = _text("""
    Host gpu
        HostName 10.1.2.3
        User ubuntu
        IdentityFile ~/.ssh/id_gpu

    Host *
        ServerAliveInterval 60
        ForwardAgent yes
""")
HUGE = b"".join(
    b"Host h%d\n  HostName 10.%d.%d.%d\n  Port %d\n" % (n, n >> 16, n >> 8 & 255, n & 255, 1024 + n)
    for n in range(20_000)
)

CONFIGS: dict[str, bytes] = {
    "usual": USUAL,
    "empty": b"",
    "one newline": b"\n",
    "only comments": b"# my hosts\n#\n# none yet\n",
    "comments on top": b"# vim: ft=sshconfig\n# -*- conf -*-\n\n" + USUAL,
    "no final newline": USUAL.rstrip(b"\n"),
    "CRLF": USUAL.replace(b"\n", b"\r\n"),
    "CRLF without an end": USUAL.replace(b"\n", b"\r\n").rstrip(b"\r\n"),
    "CRLF below the first line": b"# made on Linux\n" + USUAL.replace(b"\n", b"\r\n"),
    "tabs": USUAL.replace(b"    ", b"\t").replace(b" ", b"\t"),
    "equals signs": _text("""
        Host=gpu
        HostName=10.1.2.3
        User = ubuntu
        Port =2222
    """),
    "quoted": _text("""
        Host "gpu" "gpu two"
            HostName "10.1.2.3"
            IdentityFile "~/.ssh/my key"
            ProxyCommand sh -c "exec nc '%h' %p"
    """),
    "global options first": _text("""
        ServerAliveInterval 30
        IdentitiesOnly yes
        Compression yes

        Host gpu
            HostName 10.1.2.3
    """),
    "ends inside a Host": b"Host gpu\n    HostName 10.1.2.3\n    Port 2222",
    "ends inside a Match": b"Match host *.lan\n    User me\nMatch all\n    Port 2200\n",
    "begins with Match": _text("""
        Match host 10.*,gpu user root
            Port 2222
        Host gpu
            HostName 10.1.2.3
    """),
    "Match exec": _text("""
        Match exec "test -d /tmp && test %h = office"
            ProxyJump bastion
        Match originalhost gpu !exec "false"
            User nobody
        Host office gpu bastion
            Port 2022
    """),
    "Match final": _text("""
        CanonicalizeHostname no
        Match final host *.example.org
            User late
        Host short
            HostName short.example.org
    """),
    "Match localuser": b"Match localuser root,me\n  User rooty\nMatch !localuser root\n  Port 9\n",
    "wildcards and negations": _text("""
        Host *.example.org !secret.example.org
            User worker
        Host 10.0.?.* 192.168.*
            StrictHostKeyChecking no
            UserKnownHostsFile /dev/null
        Host secret.example.org a.example.org 10.0.1.9
            Port 2200
    """),
    "jumps": _text("""
        Host bastion
            HostName bastion.example.org
        Host inner-*
            ProxyJump bastion
        Host inner-1
            HostName 172.16.0.1
        Host odd
            ProxyCommand ssh -W %h:%p bastion
    """),
    "its own Include": b"Include more/*.conf\nInclude /nowhere/at/all\n\n" + USUAL,
    "Include inside a Host": b"Host gpu\n  Include more/gpu.conf\n  User me\n\nHost *\n  Port 9\n",
    "ControlMaster": _text("""
        Host *
            ControlMaster auto
            ControlPath ~/.ssh/cm-%C
            ControlPersist 5m
            HashKnownHosts yes
            AddKeysToAgent yes
    """),
    "unknown options, ignored": _text("""
        IgnoreUnknown UseKeychain,AddKeysToAgentMac
        Host *
            UseKeychain yes
        Host gpu
            HostName 10.1.2.3
    """),
    "remote command and forwards": _text("""
        Host gpu
            HostName 10.1.2.3
            RemoteCommand tmux new -A -s work
            RequestTTY force
            LocalForward 8888 localhost:8888
            SetEnv LANG=C
    """),
    "odd letters": "# Schlüssel für März 🚀\nHost büro\n  HostName büro.example.org\n".encode(),
    "not UTF-8": b"# caf\xe9\nHost gpu\n  HostName 10.1.2.3\n",
    "form feeds and trailing blanks": b"\n\n  \nHost gpu  \x0c\n  HostName 10.1.2.3 \t \n\n\n",
    "upper and lower case": b"HOST gpu\n  HOSTNAME 10.1.2.3\n  pOrT 2222\nhost Two\n  user x\n",
    "twenty thousand hosts": HUGE,
}
