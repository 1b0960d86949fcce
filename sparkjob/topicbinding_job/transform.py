"""From Kafka records to rows of the wire layout: plain functions DataFrame -> DataFrame.

`query` puts them into the streaming query; tests run them on small static frames. The parsing and the keyed
state are JVM classes of ours (`RecordParser`, `NewestAccount`), the rest Spark's own expressions.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program uses

from topicbinding.api import JoinType, Tables
from topicbinding_job import wire

_KEY: Final = "__tb_key"


def rows_of(records: DataFrame, tables: Tables, side: int) -> DataFrame:
    """Kafka records (value, partition, offset, timestamp) as rows of one side, every record kept."""
    columns = wire.side_columns(tables, side)
    types = ", ".join(f"{each.name} {each.spark_type}" for each in columns)
    session = records.sparkSession
    jvm: Any = session._jvm
    parsed = jvm.dev.topicbinding.job.RecordParser.parse(
        records._jdf,
        [each.column.name for each in columns],
        [each.column.type.value for each in columns],
        jvm.org.apache.spark.sql.types.StructType.fromDDL(f"flags int, raw string, {types}"),
        wire.BAD,
        wire.TOMBSTONE,
        wire.RAW_LENGTH,
    )
    return DataFrame(parsed, session).select(
        F.lit(side).alias("side"),
        F.col("partition").alias("part"),
        F.col("offset").alias("off"),
        F.unix_millis("timestamp").alias("ts"),
        "parsed.*",
    )


def newest_marked(rows: DataFrame, tables: Tables) -> DataFrame:
    """Rows, with `NEWEST` on each accounts row that is its key's newest so far. Stateful in a streaming
    query."""
    key = next(each for each in wire.side_columns(tables, wire.ACCOUNTS) if each.column.name == tables.key)
    # The empty text stands for "nothing to remember": a users row, or an account without a key.
    keyed = rows.withColumn(
        _KEY,
        F.when((F.col("side") == wire.USERS) | F.col(key.name).isNull(), F.lit("")).otherwise(
            F.concat(F.lit("k"), F.col(key.name).cast("string"))
        ),
    )
    session = rows.sparkSession
    jvm: Any = session._jvm
    marking = jvm.dev.topicbinding.job.NewestAccount
    return DataFrame(marking.mark(keyed._jdf, _KEY, wire.NEWEST), session).drop(_KEY)


def joined(
    users: DataFrame, accounts: DataFrame, tables: Tables, join_type: JoinType, realtime: bool = False
) -> DataFrame:
    """Both sides in the wire layout, from their Kafka records: what the streaming query writes.

    The same rows and the same state in both forms. Real time allows no stateful step before a union, so
    there the users rows take the way through it as well; in micro-batches they are spared that.
    """
    user_rows = _widened(rows_of(users, tables, wire.USERS), tables)
    account_rows = rows_of(accounts, tables, wire.ACCOUNTS)
    if join_type is JoinType.INNER:
        return user_rows.unionAll(_widened(account_rows, tables))
    if realtime:
        return newest_marked(user_rows.unionAll(_widened(account_rows, tables)), tables)
    return user_rows.unionAll(_widened(newest_marked(account_rows, tables), tables))


def _widened(rows: DataFrame, tables: Tables) -> DataFrame:
    """All columns of the layout: the other side's are null."""
    present = set(rows.columns)
    columns = [
        F.col(name) if name in present else F.lit(None).cast(kind).alias(name)
        for name, kind in (
            *((name, kind) for name, kind, _ in wire.META),
            *(
                (each.name, each.spark_type)
                for side in (wire.USERS, wire.ACCOUNTS)
                for each in wire.side_columns(tables, side)
            ),
        )
    ]
    return rows.select(*columns)
