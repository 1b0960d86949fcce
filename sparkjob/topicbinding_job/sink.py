"""The way out of real-time mode: rows leave the JVM through a writer of its own (`RowSender`).

`query` and `warmup` start such queries; `ingest` is the other end of the writer's connection.
"""

from __future__ import annotations

import secrets
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery


def write_in_real_time(
    rows: DataFrame, checkpoint: str, batch: str, host: str, port: int, token: str
) -> StreamingQuery:
    """Start the query whose rows leave through the JVM's own writer."""
    writer = rows.writeStream.outputMode("update").queryName("tables")
    # Known to pyspark, not yet to its annotations.
    in_real_time: Any = writer.option("checkpointLocation", checkpoint).trigger
    writer = in_real_time(realTime=batch)
    jvm: Any = rows.sparkSession._jvm
    writer._jwrite = writer._jwrite.foreach(jvm.dev.topicbinding.job.RowSender(host, port, token))
    started: StreamingQuery = writer.start()
    return started


def new_token() -> str:
    """Said by the JVM's writers to prove that they are ours."""
    return secrets.token_hex(16)
