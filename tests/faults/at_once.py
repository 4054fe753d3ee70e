"""Rows of the table that mostly wait, all at once: each with a box and a user of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Case = TypeVar("_Case")


def at_once(do: Callable[[_Case], object], cases: Iterable[_Case]) -> None:
    """Do it for every case at the same time; when all have ended, the first failure is raised."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        for ended in [pool.submit(do, case) for case in cases]:
            ended.result()
