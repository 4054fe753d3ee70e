"""Turn a script into one command line that works the same under any login shell.

It travels in one single-quoted word that bash, dash, zsh, fish, tcsh and busybox ash pass on
unchanged: each character that one of them would interpret is replaced by an unused one, or
all of it is sent as base64. `/bin/sh` decodes and runs it (docs/adr/0028).
"""

from __future__ import annotations

import base64
import re

_TAKEN = "'!\\\n"
"""Characters that some login shell interprets even between single quotes."""
_STAND_INS = "QXJZKVWYUGjzq" + "^@,%+78460" + "BCDFLNPRST"
_PLAIN = re.compile("[ -~\t\n]*")
_DECODE = (
    'r() {{ IFS=$1 j=$2; set -f; set -- $s; IFS=$j; s="$*"; }}; '
    'i=$IFS s=$4; r "{}" "$1"; r "{}" "$2"; r "{}" "$3"; r "{}" "${{i#??}}"; '
    'set +f; set --; IFS=$i; unset -f r; eval "unset i j s; $s"'
)
"""Splitting at one character and joining with another starts no process; `base64` does. The newline
is restored last: splitting drops a separator at the end, and the script ends with a newline."""


def shell_command(script: str, shell: str = "/bin/sh") -> str:
    """Return a command line that runs `script` in `shell`, the same under any login shell.

    The script's standard input is the command's. `shell` is a plain path or name.
    """
    text = script.rstrip("\n") + "\n"
    spare = [character for character in _STAND_INS if character not in text]
    if len(spare) < len(_TAKEN) or not _PLAIN.fullmatch(text):
        encoded = base64.b64encode(script.encode(errors="surrogateescape")).decode()
        return f"exec {shell} -c 'eval \"$(echo {encoded} | base64 -d)\"'"
    for character, stand_in in zip(_TAKEN, spare, strict=False):
        text = text.replace(character, stand_in)
    decode = _DECODE.format(*spare)
    return f"exec {shell} -c '{decode}' {shell.split(maxsplit=1)[0]} \"'\" \\! \\\\ '{text}'"
