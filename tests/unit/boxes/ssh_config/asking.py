"""Ask the real ssh how it understands a config."""

import re
import subprocess
from pathlib import Path

_WORD = re.compile(rb"[\w.-]+")


def meaning(config: Path, host: str) -> tuple[int, str]:
    """`ssh -G` of a host: exit code, and every option that ssh would use."""
    done = subprocess.run(
        ["ssh", "-G", "-F", config, "--", host],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def options(config: Path, host: str) -> dict[str, str]:
    """The options of a host, the first value of each."""
    code, text = meaning(config, host)
    assert code == 0, text
    pairs = (line.partition(" ") for line in reversed(text.splitlines()))
    return {name: value for name, _, value in pairs}


def hosts_in(data: bytes, most: int = 2) -> list[str]:
    """Hosts that the config names, some that its patterns match, and one unknown to it."""
    named: list[str] = []
    for line in data.splitlines():
        words = line.replace(b"=", b" ").replace(b'"', b"").split()
        if words and words[0].lower() in (b"host", b"match", b"hostname"):
            found = (word.replace(b"*", b"1").replace(b"?", b"2") for word in words[1:])
            named += [w.decode() for w in found if _WORD.fullmatch(w) and w.isascii()]
    return [*dict.fromkeys(named[: most // 2] + named[-most // 2 :]), "random-host-81724"]
