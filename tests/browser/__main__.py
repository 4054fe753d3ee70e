"""What is seen in a browser: python -m tests.browser [PROOF…]   (make browser-proof)

A proof is a module beside this one; its `main()` raises AssertionError where something is wrong.
"""

from __future__ import annotations

import importlib
import sys
import time

from tests.browser import MissingError

PROOFS = ("report", "tunnels")


def main(names: list[str]) -> None:
    """Do these proofs, or all."""
    for name in names or PROOFS:
        began = time.monotonic()
        importlib.import_module(f"tests.browser.{name}").main()
        print(f"{name}: right, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MissingError as error:
        sys.exit(str(error))
