"""The reading itself: backlog in micro-batches, then live at the speed that was asked for, and back when
that fails.

`driver` makes one and runs it. It watches the query, tells progress and lag, restarts what can be restarted,
and gives up with the query's own error when it cannot.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from topicbinding.api import Mode, Phase, Source
from topicbinding.kafka.problems import UNREACHABLE
from topicbinding.kafka.records import KafkaProblem
from topicbinding_job import wire
from topicbinding_job.ending import jvm_exit_code
from topicbinding_job.ingest import Ingest
from topicbinding_job.log import TableLog, TableTooLarge
from topicbinding_job.query import MICROBATCH, REALTIME, Query, QueryFailed
from topicbinding_job.settings import Settings
from topicbinding_job.state import DriverState
from topicbinding_job.topics import Plan, Positions, Topics

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.05
"""Between two looks at the query while it catches up: what a swap waits at most for nothing."""
LIVE_LOOK_SECONDS: Final = 0.5
LAG_SECONDS: Final = 2.0
RESTARTS: Final = 5
"""Restarts of a failing query within RESTART_WINDOW seconds; then the trouble is no passing one."""
RESTART_WINDOW: Final = 600.0


OUT_OF_MEMORY: Final = 3
"""What a JVM with ExitOnOutOfMemoryError ends with."""


class JvmDied(Exception):  # noqa: N818 - it carries the condition reason that it becomes
    """There is nothing left to start a query in."""

    reason = "JvmDied"


@dataclass
class Live:
    """One generation's reading."""

    query: Query
    log: TableLog
    topics: Topics
    plan: Plan
    source: Source
    state: DriverState
    settings: Settings
    stop: threading.Event
    mode: Mode
    enough_slots: bool
    open_ingest: Callable[[], Ingest]
    _ingest: Ingest | None = None
    _restarts: list[float] = field(default_factory=list)
    _lag_at: float = 0.0
    _partitions: tuple[int, ...] = ()
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Until stopped; raises what could not be mended."""
        self.state.mode = MICROBATCH
        self.query.start_microbatches()
        while not self.stop.is_set() and not self._caught_up():
            self.stop.wait(LOOK_SECONDS)
        if self.stop.is_set():
            return
        self.state.percent, self.state.eta_seconds = 100, 0
        self.state.move(Phase.CAUGHT_UP, "CaughtUp", self._remarks())
        logger.info("caught up after %.1f s: %d rows", time.monotonic() - self._began, self.plan.backlog)
        if self.mode is not Mode.MICROBATCH:
            self._go_realtime()
        while not self.stop.wait(LIVE_LOOK_SECONDS):
            self._watch(self._check)
            self._measure_lag()

    def close(self) -> None:
        self.query.stop()
        if self._ingest is not None:
            self._ingest.close()

    def _caught_up(self) -> bool:
        """Whether every partition has been read up to the end that was captured; tells progress on the
        way."""
        self._watch(self._check)
        reached = self.query.reached()
        if reached is None:
            return False
        left = 0
        for span, ends in zip(self.plan.sides, reached, strict=True):
            for partition, end in span.end.items():
                left += max(0, end - max(ends.get(partition, 0), span.start.get(partition, 0)))
        whole = self.plan.backlog
        if whole:
            done = whole - left
            self.state.percent = min(99 if left else 100, done * 100 // whole)
            seconds = time.monotonic() - self._began
            self.state.eta_seconds = int(left * seconds / done) if done else None
        self.state.lag = left
        self.state.batch_seconds = self.query.batch_seconds
        return left == 0

    def _go_realtime(self) -> None:
        """Change to real time on the same checkpoint; `auto` goes on in micro-batches if that does not
        work."""
        if not self.enough_slots:
            message = "real time needs a task for every partition, and there are too few slots for that"
            if self.mode is Mode.REALTIME:
                raise QueryFailed("RealTimeImpossible", message)
            logger.info("%s: staying with micro-batches", message)
            return
        started = time.monotonic()
        try:
            self._start_realtime()
            while not self.stop.is_set() and not self._ingest_has_writers():
                self._check()
                if time.monotonic() - started > self.settings.change_over_seconds:
                    raise QueryFailed("RealTimeTooSlow", "real time did not start in time")
                self.stop.wait(LOOK_SECONDS)
        except (TableTooLarge, JvmDied):
            raise
        except Exception as error:
            if self.mode is Mode.REALTIME:
                raise
            logger.warning("real time does not work here, going on in micro-batches: %s", error)
            self._back_to_microbatches()
            return
        logger.info("real time after %.1f s", time.monotonic() - started)

    def _start_realtime(self) -> None:
        ingest = self._ingest or self.open_ingest()
        self._ingest = ingest
        self.query.stop()
        self.query.start_realtime(ingest.host, ingest.port, ingest.token, self.settings.realtime_batch)
        self.state.mode = REALTIME

    def _ingest_has_writers(self) -> bool:
        return self._ingest is not None and self._ingest.writers > 0

    def _back_to_microbatches(self) -> None:
        self.query.stop()
        if self._ingest is not None:
            self._ingest.close()
            self._ingest = None
        self.query.start_microbatches()
        self.state.mode = MICROBATCH

    def _check(self) -> None:
        if self._ingest is not None and self._ingest.failure is not None:
            raise self._ingest.failure
        ended = jvm_exit_code()
        if ended is not None:
            hint = ": it ran out of memory, raise spark.memory" if ended == OUT_OF_MEMORY else ""
            raise JvmDied(f"the JVM ended with {ended}{hint}")
        self.query.check()
        self.state.batch_seconds = self.query.batch_seconds

    def _watch(self, check: Callable[[], None]) -> None:
        """Run the check; a query that failed is started again, at most so often."""
        try:
            check()
        except (TableTooLarge, JvmDied):
            raise
        except Exception as error:
            now = time.monotonic()
            self._restarts = [moment for moment in self._restarts if now - moment < RESTART_WINDOW]
            if len(self._restarts) >= RESTARTS or self._is_hopeless():
                raise
            self._restarts.append(now)
            wait = min(10.0, 0.5 * 2 ** len(self._restarts))
            logger.warning("the query failed, starting it again in %.1f s: %s", wait, error)
            if self.stop.wait(wait):
                return
            if self.query.mode == REALTIME and self.mode is Mode.REALTIME:
                self._start_realtime()
            else:
                self._back_to_microbatches()

    def _is_hopeless(self) -> bool:
        """Whether Kafka itself says that reading on is impossible: then its reason is raised instead."""
        try:
            self.topics.plan(self.source, self.plan.start_offsets)
        except KafkaProblem as problem:
            if problem.reason != UNREACHABLE:
                raise
        return False

    def _measure_lag(self) -> None:
        now = time.monotonic()
        if now - self._lag_at < LAG_SECONDS:
            return
        self._lag_at = now
        reached = self.query.reached() or ({}, {})
        lags: dict[tuple[str, int], int] = {}
        topics = (self.source.users_topic, self.source.accounts_topic)
        partitions: list[int] = []
        for side, (topic, rows, ends) in enumerate(zip(topics, self.log.side_rows, reached, strict=True)):
            try:
                now_ends: Positions = self.topics.ends(topic)
            except KafkaProblem as problem:
                logger.info("the lag is not known: %s", problem)
                return
            partitions.append(len(now_ends))
            start = self.plan.sides[side].start
            for partition, end in now_ends.items():
                at = max(ends.get(partition, 0), rows.next_offset(partition), start.get(partition, 0))
                lags[(wire.SIDES[side], partition)] = max(0, end - at)
        self.state.lag_by_partition = lags
        self.state.lag = sum(lags.values())
        self._look_for_new_partitions(tuple(partitions))

    def _look_for_new_partitions(self, now: tuple[int, ...]) -> None:
        """Spark itself looks for them when a batch begins, and a real-time batch lasts for minutes."""
        before, self._partitions = self._partitions, now
        if before and now != before and self.query.mode == REALTIME:
            logger.info("partitions were added (%s -> %s): real time starts again with them", before, now)
            self._start_realtime()

    def _remarks(self) -> str:
        users, accounts = self.log.side_rows
        remarks = list(self.plan.notes)
        bad = users.bad + accounts.bad
        if bad:
            remarks.append(f"{bad} rows are not what the tables declare (see badSamples)")
        return "; ".join(remarks)
