"""Waiting on a condition with a deadline: the only way a test waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T | None], seconds: float, what: str, every: float = 0.2) -> T:
    """The first truthy answer of `probe`; after `seconds` a failure that says what was waited for."""
    deadline = time.monotonic() + seconds
    seen: T | None = None
    while True:
        seen = probe()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}; last seen: {seen!r}")
        time.sleep(every)
