"""Report which variables a shell passes on: their salted digests, never their values.

`python box/environment_tell.py FOLDER WAY` reads `asked` in FOLDER (the salt, then one name per
line), and writes a line NAME DIGEST for each variable that is set. Every kind of shell starts one,
all at the same time, while a training may be starting: so it imports next to nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys


def tell(folder: str, way: str) -> None:
    """Write the digest of each variable that is set: SHA-256 of the salt and its bytes."""
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
