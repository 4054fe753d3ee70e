"""Runs rows of the table that mostly wait in parallel, each with its own box and user."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Case = TypeVar("_Case")


def at_once(do: Callable[[_Case], object], cases: Iterable[_Case]) -> None:
    """Call `do` for all cases in parallel; after all have ended, raise the first failure."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        for ended in [pool.submit(do, case) for case in cases]:
            ended.result()
