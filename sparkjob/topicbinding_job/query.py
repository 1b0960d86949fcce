"""The streaming query and its two speeds: micro-batches for the backlog, real time for what comes after.

`driver` starts and watches it. Both speeds run the same transformation on the same checkpoint and hand the
same rows to the same log, so a change of speed is a stop and a start; what is replayed, the log recognises.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from topicbinding.api import Source
from topicbinding_job import transform
from topicbinding_job.sink import write_in_real_time
from topicbinding_job.topics import Plan, Positions

logger = logging.getLogger(__name__)

MICROBATCH: Final = "microbatch"
REALTIME: Final = "realtime"


class QueryFailed(Exception):  # noqa: N818 - it carries the condition reason that it becomes
    """The query ended by itself; `reason` is the class of Spark's error."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read and where to keep its state."""

    source: Source
    plan: Plan
    kafka: Mapping[str, str]
    """Options of Kafka's Java client, by its own names. Holds secrets."""
    checkpoint: str
    batch_rows: int
    tasks: int
    """Into how many tasks one topic's rows are split in a micro-batch: the cores there are."""


class Query:
    """The one query of a generation. Restarting it, at either speed, goes on where it was."""

    def __init__(self, session: SparkSession, reading: Reading, take: Callable[[pa.Table], None]) -> None:
        self._session = session
        self._reading = reading
        self._take = take
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self.mode = MICROBATCH
        self.batch_seconds = 0.0
        """How long the last micro-batch took."""

    def start_microbatches(self) -> None:
        self.mode = MICROBATCH
        rows = self._rows(realtime=False)
        self._query = (
            rows.writeStream.foreachBatch(self._batch)
            .outputMode("update")
            .queryName("tables")
            .option("checkpointLocation", self._reading.checkpoint)
            .start()
        )

    def start_realtime(self, host: str, port: int, token: str, batch: str) -> None:
        """Rows leave through the JVM's own writer, which connects to `host`:`port` and says `token` first."""
        self.mode = REALTIME
        rows = self._rows(realtime=True)
        self._query = write_in_real_time(rows, self._reading.checkpoint, batch, host, port, token)

    def stop(self) -> None:
        """Stop reading; an open batch is read again by the next start."""
        query, self._query = self._query, None
        if query is not None:
            self._stopping = True
            try:
                query.stop()
            finally:
                self._stopping = False

    def check(self) -> None:
        """Raise what ended the query, if anything did."""
        if self._failure is not None:
            raise self._failure
        query = self._query
        if query is None or query.isActive:
            return
        error = query.exception()
        raise _failed(error) if error else QueryFailed("QueryEnded", "the query ended without an error")

    def reached(self) -> tuple[Positions, Positions] | None:
        """End offsets of the last finished batch, by side; None before the first."""
        query = self._query
        progress: Any = query._jsq.lastProgress() if query is not None else None
        if progress is None:
            return None
        ends: list[Positions] = []
        topics = (self._reading.source.users_topic, self._reading.source.accounts_topic)
        sources = progress.sources()
        if len(sources) != len(topics):
            return None
        for source, topic in zip(sources, topics, strict=True):
            text = source.endOffset()
            ends.append(_positions(text, topic) if text else {})
        return ends[0], ends[1]

    def _batch(self, rows: DataFrame, number: int) -> None:
        started = time.monotonic()
        try:
            self._take(rows.toArrow())
        except Exception as error:
            # An error that crosses into Spark loses its type; ours is what people must see.
            if not self._stopping:
                self._failure = self._failure or error
            raise
        self.batch_seconds = time.monotonic() - started

    def _rows(self, realtime: bool) -> DataFrame:
        source = self._reading.source
        return transform.joined(
            self._records(source.users_topic, self._reading.plan.users.start, realtime),
            self._records(source.accounts_topic, self._reading.plan.accounts.start, realtime),
            source.tables,
            source.join_type,
            realtime,
        )

    def _records(self, topic: str, start: Positions, realtime: bool) -> DataFrame:
        reader = self._session.readStream.format("kafka")
        for name, value in self._reading.kafka.items():
            reader = reader.option(f"kafka.{name}", value)
        options = {
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: {str(number): at for number, at in start.items()}}),
            # What was deleted cannot be read by any error; the plan has told people about it.
            "failOnDataLoss": "false",
            "fetchOffset.numRetries": "1",
            "fetchOffset.retryIntervalMs": "100",
            "kafka.metadata.max.age.ms": "5000",
            "kafka.max.poll.records": "5000",
            # A task of a micro-batch asks for the topic's ends behind its last fetch, on the same connection:
            # that fetch, which finds nothing, must not wait for half a second as it does by default.
            "kafka.fetch.max.wait.ms": "50" if realtime else "10",
        }
        if not realtime:
            options["maxOffsetsPerTrigger"] = str(self._reading.batch_rows)
            if self._reading.tasks > len(start):
                options["minPartitions"] = str(self._reading.tasks)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()


def _positions(text: str, topic: str) -> Positions:
    """`{"topic": {"0": 5}}`, sometimes as JSON inside a JSON string."""
    parsed = json.loads(text)
    if isinstance(parsed, str):
        parsed = json.loads(parsed)
    return {int(number): int(at) for number, at in (parsed or {}).get(topic, {}).items()}


def _failed(error: StreamingQueryException) -> QueryFailed:
    """Spark's error as one word and one sentence."""
    text = str(error)
    java = [line.strip() for line in text.splitlines() if line.strip()]
    word = getattr(error, "getCondition", lambda: None)() or "QueryFailed"
    return QueryFailed(str(word), (java[0] if java else "the query failed")[:1000])
