"""Warms a session with throw-away queries of the real one's shape, because most of a cold start is a JVM
that has not compiled anything yet.

`driver` runs it on a standby, while there is nothing to read. Made-up rows go the same way as real ones, at
both speeds: parsing, the keyed state, Arrow or the JVM's writer, a table log of their own.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program uses
from pyspark.sql.streaming.query import StreamingQuery

from topicbinding.api import JoinType, Mode, Tables
from topicbinding_job import transform, wire
from topicbinding_job.ingest import Ingest
from topicbinding_job.log import TableLog
from topicbinding_job.sink import write_in_real_time

logger = logging.getLogger(__name__)

ROWS: Final = 50_000
"""Rows of each topic in one batch: enough that the JIT compiles what a backlog needs."""
SECONDS: Final = 12.0
"""The longest warm-up of one speed; on a busy machine it ends early rather than delay a swap."""
BATCHES: Final = 6
LIVE_ROWS: Final = 300
"""Rows of each topic in one step of real time: the source in memory hands them over one by one."""
LIVE_STEPS: Final = 10

_CLASSES: Final = (
    "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
    "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer",
    "org.apache.kafka.clients.consumer.KafkaConsumer",
    "org.apache.kafka.clients.admin.KafkaAdminClient",
    "dev.topicbinding.job.RowSender",
)


def warm(session: SparkSession, scratch: Path, mode: Mode, seconds: float = SECONDS) -> float:
    """Run the throw-away queries, each at most for `seconds`; returns how long they took."""
    started = time.monotonic()
    _kafka_clients(session)
    _microbatches(session, scratch, seconds)
    if mode is not Mode.MICROBATCH:
        _real_time(session, scratch, seconds)
    return time.monotonic() - started


def _kafka_clients(session: SparkSession) -> None:
    """Make the clients that the Kafka source makes, a few times; nobody answers, and nobody has to."""
    jvm: Any = session._jvm
    for name in _CLASSES:
        jvm.java.lang.Class.forName(name)
    properties = jvm.java.util.HashMap()
    for name, value in {
        "bootstrap.servers": "127.0.0.1:1",
        "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        "group.id": "nobody",
    }.items():
        properties.put(name, value)
    for _ in range(3):
        jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties).close()
        jvm.org.apache.kafka.clients.admin.AdminClient.create(properties).close()


def _microbatches(session: SparkSession, scratch: Path, seconds: float) -> None:
    tables = Tables()
    log = TableLog(tables, JoinType.LEFT, max_rows=100_000_000)
    checkpoint = tempfile.mkdtemp(prefix="warmup-", dir=scratch)
    batches = 0

    def take(rows: DataFrame, _: int) -> None:
        nonlocal batches
        log.apply(rows.toArrow())
        batches += 1

    users, accounts = (
        _records(
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", ROWS)
            .option("numPartitions", 2)
            .load(),
            side,
        )
        for side in (wire.USERS, wire.ACCOUNTS)
    )
    query = (
        transform.joined(users, accounts, tables, JoinType.LEFT)
        .writeStream.foreachBatch(take)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        _until(lambda: batches >= BATCHES, query, seconds)
        final = log.tables["final_ui"]
        final.read(0, min(1000, final.rows))
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _real_time(session: SparkSession, scratch: Path, seconds: float) -> None:
    """The same with a source in memory: real time takes no made-up one."""
    tables = Tables()
    log = TableLog(tables, JoinType.LEFT, max_rows=100_000_000)
    ingest = Ingest("127.0.0.1", 0, wire.schema(tables), log.apply)
    checkpoint = tempfile.mkdtemp(prefix="warmup-", dir=scratch)
    jvm: Any = session._jvm
    memory = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
    java: Any = session._jsparkSession
    numbers = getattr(getattr(jvm.scala.collection.immutable, "Range$"), "MODULE$")
    sources = [memory.apply(java, 1, jvm.org.apache.spark.sql.Encoders.INT()) for _ in range(2)]
    users, accounts = (
        _records(
            DataFrame(source.toDF(), session).select(
                F.col("value").cast("long"), F.current_timestamp().alias("timestamp")
            ),
            side,
        )
        for side, source in zip((wire.USERS, wire.ACCOUNTS), sources, strict=True)
    )
    rows = transform.joined(users, accounts, tables, JoinType.LEFT, realtime=True)
    query = write_in_real_time(rows, checkpoint, "60 seconds", ingest.host, ingest.port, ingest.token)
    try:
        for step in range(LIVE_STEPS):
            for source in sources:
                source.addData(0, numbers.apply(step * LIVE_ROWS, (step + 1) * LIVE_ROWS, 1))
            whole = (step + 1) * LIVE_ROWS
            if not _until(partial(_has_rows, log, whole), query, seconds):
                break
    finally:
        query.stop()
        ingest.close()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _has_rows(log: TableLog, rows: int) -> bool:
    return log.tables["final_ui"].rows >= rows


def _until(done: Callable[[], bool], query: StreamingQuery, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end or not query.isActive:
            return False
        time.sleep(0.02)
    return True


def _records(numbers: DataFrame, side: int) -> DataFrame:
    """Kafka-like records of one topic, made of numbers."""
    number = F.col("value")
    key = F.concat(F.lit('{"userId":"u'), number % 20_000, F.lit('"'))
    return numbers.select(
        F.concat(key, _rest(number, side), F.lit("}")).cast("binary").alias("value"),
        F.lit(0).alias("partition"),
        number.alias("offset"),
        F.col("timestamp"),
    )


def _rest(number: SparkColumn, side: int) -> SparkColumn:
    if side == wire.ACCOUNTS:
        return F.concat(
            F.lit(',"accountType":"type '), number % 5, F.lit('","balance":'), number, F.lit(".5")
        )
    return F.concat(
        F.lit(',"name":"name '),
        number,
        F.lit('","email":"'),
        number,
        F.lit('@example.org","age":'),
        number % 90,
    )
