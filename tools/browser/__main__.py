"""Proofs in a real browser: python -m tools.browser [PROOF…]   (make browser-proof)

A proof is a module next to this one; its `main()` raises AssertionError if something is wrong.
"""

from __future__ import annotations

import importlib
import sys
import time

from tools.browser import MissingError

PROOFS = ("report", "tunnels")


def main(names: list[str]) -> None:
    """Run these proofs; all if none is named."""
    for name in names or PROOFS:
        began = time.monotonic()
        importlib.import_module(f"tools.browser.{name}").main()
        print(f"{name}: right, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MissingError as error:
        sys.exit(str(error))
