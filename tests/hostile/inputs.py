"""Hosts and options from an attacker or a bad paste on the command line.

Each must be refused before anything is run or connected, with the option's name.
Values of profiles are in `tests/unit/profile/hostile.py`. CANARY is a file that
any of them would create if a shell, or an option of ssh or git, obeyed it.
"""

from __future__ import annotations

CANARY = "boxstrap-was-here"
LIBRARIES = ("invoke.py", "yaml.py", "git.py", "mcp.py", "fabric/__init__.py", "jinja2/__init__.py")
MODULES = (*LIBRARIES, "bootstrap/__init__.py", "bootstrap/__main__.py", "types.py", "secrets.py")
"""Files of a repository that Python would take for ours, a library's or its own."""
ADDRESS = "203.0.113.9"  # nobody's (RFC 5737)

_UNSEEN = ["\n", "\r", "\t", "\x1b[31m", "\x07", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b"]
_UNSEEN += ["\u2028", "\ufeff", "\u00a0", "\udcff"]
_SHELL = [f";touch {CANARY}", f"$(touch {CANARY})", f"`touch {CANARY}`", f"|touch {CANARY}"]
_SHELL += [f"&touch {CANARY}", f">{CANARY}", "'", '"', "\\", "{a,b}", "*", "?", "!!", "#", "<(x)"]

HOSTS = [
    "", "   ", f"-oProxyCommand=touch {CANARY}", f"-oProxyCommand=touch${{IFS}}{CANARY}",
    f"-oPermitLocalCommand=yes -oLocalCommand=touch {CANARY}", "-F/tmp/evil", "--", "-",
    f"me@-oProxyCommand=touch${{IFS}}{CANARY}", f"-l{ADDRESS}", "-l@box",
    f"ssh://-oProxyCommand=touch {CANARY}", f"ssh://me@-oProxyCommand=x:{22}",
    f"ssh -oProxyCommand=touch\\ {CANARY} box", f"ssh -o ProxyCommand=x {ADDRESS}",
    f"ssh -o LocalCommand=x -o PermitLocalCommand=yes {ADDRESS}", f"ssh -F /tmp/evil {ADDRESS}",
    f"ssh -J -oProxyCommand=x {ADDRESS}", f"ssh -J me@-oProxyCommand=x {ADDRESS}",
    f"ssh -W box:22 {ADDRESS}", f"ssh -R 1:localhost:1 {ADDRESS}", f"ssh -A {ADDRESS}",
    f"ssh -X {ADDRESS}", f"ssh {ADDRESS} reboot", f"ssh {ADDRESS} -- touch {CANARY}",
    f"ssh -- -oProxyCommand=touch\\ {CANARY}", f"ssh -i $(touch {CANARY}) {ADDRESS}",
    f"ssh -i `id` {ADDRESS}", f"ssh -L $(id):x:1 {ADDRESS}", f"ssh -L x {ADDRESS}",
    f"ssh -p 22;id {ADDRESS}", f"ssh -p 99999 {ADDRESS}", "ssh", "ssh -p 22", f"ssh\n{ADDRESS}",
    f"{ADDRESS}:0", f"{ADDRESS}:65536", f"{ADDRESS}:-1", f"{ADDRESS}:22:22",
    f"{ADDRESS}:\u0662\u0662", f"{ADDRESS}:" + "9" * 5000, "[::1", "[::1]x", "[$(id)]:22",
    f"fe80::1%$(touch {CANARY})", "a/b", "../box", "a%h", "file:///etc/passwd",
    "https://console.example/", "ext::sh -c id", f"two words@{ADDRESS}", f"@{ADDRESS}", "me@",
    f"-x@{ADDRESS}", f"me:secret@{ADDRESS}:22", "x" * 100_000 + ";",
    *(f"{ADDRESS}{bad}x" for bad in _UNSEEN), *(f"me{bad}@{ADDRESS}" for bad in _SHELL),
    *(f"{ADDRESS}{bad}" for bad in _SHELL),
]  # fmt: skip

# Option -> values.
OPTIONS: dict[str, list[str]] = {
    "name": [
        "", "-x", "..", "../../x", "a/b", "a b", "a\nb", "a\x1b[31m", f"$(touch {CANARY})", "a;id",
        "\u202ea", "x" * 64, "x" * 100_000, "Host *", ".hidden",
    ],
    "host_key": [
        "", "SHA256:", "SHA256:short", "MD5:16:27", f"SHA256:{'A' * 42}$", f"SHA256:{'A' * 44}",
        f"$(touch {CANARY})", "-oX", "a\x1b[31m", "x" * 100_000,
    ],
    "identity": [
        "/nowhere/id", "-oProxyCommand=x", f"$(touch {CANARY})", f"`touch {CANARY}`", "a\nb",
        "a\x1b[31mb", "%h", "${HOME}/id", "/dev/null", "/", "x" * 5000,
    ],
    "profile": [
        "nobody-has-this", "", "-x", "../../../../etc/passwd", "/etc/passwd", "/dev/null",
        "/dev/zero", "/", "a\x1b[31mb", f"$(touch {CANARY})", "a\u202eb", "x" * 100_000, "nul\0",
    ],
    "repo": ["/nowhere", "-x", f"$(touch {CANARY})", "ext::sh -c id", "a\x1b[31mb", "/dev/null"],
}  # fmt: skip
