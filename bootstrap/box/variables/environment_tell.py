"""Which variables a shell hands on: their salted digests, never their values.

`python box/environment_tell.py FOLDER WAY` reads `asked` in FOLDER, the salt and then a name a
line, and writes down a line NAME DIGEST for each that is set here. Every kind of shell starts one,
all at the same time, while a training begins: so it imports next to nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys


def tell(folder: str, way: str) -> None:
    """Write down the digest of each variable that is set here: of its bytes, behind the salt."""
    with open(f"{folder}/asked", "rb") as asked:
        salt, *names = asked.read().splitlines()
    with open(f"{folder}/{way}.new", "wb") as new:
        for name in names:
            if name in os.environb:
                digest = hashlib.sha256(salt + os.environb[name]).hexdigest()
                new.write(b"%s %s\n" % (name, digest.encode()))
    os.replace(f"{folder}/{way}.new", f"{folder}/{way}")


if __name__ == "__main__":
    tell(*sys.argv[1:])
