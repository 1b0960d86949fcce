"""Bounds on what one client may ask: requests per second, open streams. Pure; the clock is the caller's.

A client is the user of a token, or an address where there are no users. Called by the routes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MAX_CLIENTS: Final = 10_000
"""Clients remembered; the one not seen for longest is forgotten first, which can only give it a fresh
allowance."""


class TooMany(Exception):  # noqa: N818 - said to the client in these words
    """A limit is reached. `retry_seconds` tells when to come back."""

    def __init__(self, message: str, retry_seconds: float) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class Rate:
    """A bucket of `burst` requests for each client, refilled at `per_second`."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now: float) -> None:
        left, at = self._buckets.get(client, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_second)
        if left < 1:
            raise TooMany("too many requests", (1 - left) / self._per_second)
        self._buckets[client] = (left - 1, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)


class Streams:
    """How many streams are open, altogether and for each client."""

    def __init__(self, most: int, most_per_client: int) -> None:
        self._most = most
        self._most_per_client = most_per_client
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        return self._open.total()

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        if self.open >= self._most:
            raise TooMany("this gateway has no room for another stream", 10)
        if self._open[client] >= self._most_per_client:
            raise TooMany("too many open streams", 10)
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]
