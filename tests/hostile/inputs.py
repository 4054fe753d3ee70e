"""Options from an attacker or a bad paste on the command line.

Each must be refused before anything is run or connected, with the option's name.
CANARY is a file that any of them would create if a shell, or an option of ssh or git, obeyed it.
Hosts: `tests/unit/link/test_target.py`; values of profiles: `tests/unit/profile/hostile.py`.
"""

CANARY = "boxstrap-was-here"
LIBRARIES = ("invoke.py", "yaml.py", "git.py", "mcp.py", "fabric/__init__.py", "jinja2/__init__.py")
MODULES = (*LIBRARIES, "bootstrap/__init__.py", "bootstrap/__main__.py", "types.py", "secrets.py")
"""Files of a repository that Python would take for ours, a library's or its own."""
ADDRESS = "203.0.113.9"  # nobody's (RFC 5737)

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
