"""Which binding is looked at when: one pass at a time for each, many bindings at once, errors with back-off.

Handlers and timers call `wake`; a pass that asks to look again later is woken then. A binding woken while
its pass
runs gets another pass, because nobody knows what that one has already seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from topicbinding.controller.cache import Key
from topicbinding.controller.ports import KubeError, StaleError

log = logging.getLogger("topicbinding.controller")


class WakeQueue:
    def __init__(
        self,
        work: Callable[[Key], float | None],
        *,
        workers: int,
        error_base: float,
        error_cap: float,
        done: Callable[[float, str], None] = lambda seconds, outcome: None,
    ) -> None:
        self._work = work
        self._workers = workers
        self._base, self._cap = error_base, error_cap
        self._done = done
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._errors: dict[Key, int] = {}
        self._news = asyncio.Event()
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="pass")
        self.beat = time.monotonic()  # when the loop last went round, for /healthz

    def __len__(self) -> int:
        return len(self._due) + len(self._running)

    def wake(self, key: Key, delay: float = 0.0) -> None:
        """From the event loop only. The earliest wish wins."""
        at = time.monotonic() + delay
        if key in self._running and delay == 0:
            self._again.add(key)
            return
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        heapq.heappush(self._heap, (at, key))
        self._news.set()

    async def run(self) -> None:
        """For ever."""
        try:
            while True:
                self.beat = time.monotonic()
                self._start_what_is_due()
                self._news.clear()
                wait = self._until_next()
                if wait > 0:
                    # Not wait_for: it may swallow a cancellation that comes together with the news.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(wait, 5.0)):
                            await self._news.wait()
                else:
                    await asyncio.sleep(0)  # never keep the loop to oneself
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _until_next(self) -> float:
        if len(self._running) >= self._workers or not self._heap:
            return 5.0
        return self._heap[0][0] - time.monotonic()

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now and len(self._running) < self._workers:
            at, key = heapq.heappop(self._heap)
            if self._due.get(key) != at:
                continue  # woken earlier since; this entry is old
            del self._due[key]
            if key in self._running:
                self._again.add(key)
                continue
            self._running.add(key)
            task = asyncio.get_running_loop().run_in_executor(self._pool, self._pass, key)
            task.add_done_callback(lambda future, key=key: self._finished(key, future))  # type: ignore[misc]

    def _pass(self, key: Key) -> tuple[float | None, bool]:
        """In a worker thread. An error is a value here: the next wait and whether it counts as one."""
        begun = time.monotonic()
        outcome = "ok"
        try:
            return self._work(key), True
        except StaleError as error:
            outcome = "stale"
            log.debug("%s/%s: the view was too old: %s", *key, error)
        except KubeError as error:
            outcome = "error"
            log.debug("%s/%s: %s, again later", *key, error.reason)  # the pass itself has told of it
        except Exception:
            outcome = "bug"
            log.exception("%s/%s: a pass failed", *key)
        finally:
            self._done(time.monotonic() - begun, outcome)
        return None, False

    def _finished(self, key: Key, future: asyncio.Future[tuple[float | None, bool]]) -> None:
        self._running.discard(key)
        self._news.set()
        if future.cancelled():
            return
        wait, good = future.result()
        if good:
            self._errors.pop(key, None)
        else:
            tried = self._errors[key] = self._errors.get(key, 0) + 1
            wait = min(self._base * 2 ** min(tried - 1, 16), self._cap)
        if key in self._again:
            self._again.discard(key)
            self.wake(key, 0.0 if good else wait or 0.0)
        if wait is not None:
            self.wake(key, wait)
