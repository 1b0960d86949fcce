"""Warms a session with throw-away queries of the real one's shape, because most of a cold start is a JVM
that has not compiled anything yet.

`driver` runs it on a standby, while there is nothing to read. Made-up rows go the same way as real ones:
parsing, the keyed state, Arrow, a table log of their own.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program uses

from topicbinding.api import JoinType, Tables
from topicbinding_job import transform
from topicbinding_job.log import TableLog

logger = logging.getLogger(__name__)

ROWS: Final = 50_000
"""Rows of each topic in one batch: enough that the JIT compiles what a backlog needs."""
SECONDS: Final = 12.0
"""The longest warm-up; on a busy machine it ends early rather than delay a swap."""
BATCHES: Final = 6

_CLASSES: Final = (
    "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
    "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer",
    "org.apache.kafka.clients.consumer.KafkaConsumer",
    "org.apache.kafka.clients.admin.KafkaAdminClient",
    "dev.topicbinding.job.RowSender",
)


def warm(session: SparkSession, scratch: Path, seconds: float = SECONDS) -> float:
    """Run the throw-away query, at most for `seconds`; returns how long it took."""
    started = time.monotonic()
    tables = Tables()
    for name in _CLASSES:
        session._jvm.java.lang.Class.forName(name)  # type: ignore[union-attr]
    log = TableLog(tables, JoinType.LEFT, max_rows=100_000_000)
    checkpoint = tempfile.mkdtemp(prefix="warmup-", dir=scratch)
    batches = 0

    def take(rows: DataFrame, _: int) -> None:
        nonlocal batches
        log.apply(rows.toArrow())
        batches += 1

    query = (
        transform.joined(_made_up(session, "users"), _made_up(session, "accounts"), tables, JoinType.LEFT)
        .writeStream.foreachBatch(take)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        while batches < BATCHES and time.monotonic() - started < seconds:
            if not query.isActive:
                break
            time.sleep(0.05)
        final = log.tables["final_ui"]
        final.read(0, min(1000, final.rows))
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return time.monotonic() - started


def _made_up(session: SparkSession, side: str) -> DataFrame:
    """Kafka-like records of one topic."""
    number = F.col("value")
    key = F.concat(F.lit('{"userId":"u'), number % 20_000, F.lit('"'))
    if side == "users":
        rest = F.concat(
            F.lit(',"name":"name '),
            number,
            F.lit('","email":"'),
            number,
            F.lit('@example.org","age":'),
            number % 90,
        )
    else:
        rest = F.concat(
            F.lit(',"accountType":"type '), number % 5, F.lit('","balance":'), number, F.lit(".5")
        )
    return (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
        .select(
            F.concat(key, rest, F.lit("}")).cast("binary").alias("value"),
            F.lit(0).alias("partition"),
            number.alias("offset"),
            F.col("timestamp"),
        )
    )
