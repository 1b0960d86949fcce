"""From Kafka records to rows of the wire layout: plain functions DataFrame -> DataFrame.

`query` puts them into the streaming query; tests run them on small static frames. Everything here is Spark's
own expressions, apart from the keyed state, which is the JVM class `NewestAccount`.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program uses

from topicbinding.api import ColumnType, JoinType, Tables
from topicbinding_job import wire
from topicbinding_job.wire import WireColumn

_CORRUPT: Final = "__tb_corrupt"
_KEY: Final = "__tb_key"

# Spark's reader is lenient by default; these make it read JSON and nothing else.
_STRICT: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}

# RFC 3339, and the same without a zone, which is then UTC.
_TIME: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$"

# Milliseconds of the years 1 to 9999: what every reader of the tables can show.
_TIMES: Final = (-62_135_596_800_000, 253_402_300_799_999)

_PARSED_AS: Final = {
    ColumnType.STRING: "string",
    ColumnType.LONG: "bigint",
    ColumnType.DOUBLE: "double",
    ColumnType.BOOLEAN: "boolean",
    # A time is a text or a number of milliseconds; which one it was decides how it is read.
    ColumnType.TIMESTAMP: "variant",
}


def rows_of(records: DataFrame, tables: Tables, side: int) -> DataFrame:
    """Kafka records (value, partition, offset, timestamp) as rows of one side, every record kept."""
    columns = wire.side_columns(tables, side)
    names = {each.name: each.column.name for each in columns}
    text = F.col("value").cast("string")
    fields = ", ".join(f"`{each.column.name}` {_PARSED_AS[each.column.type]}" for each in columns)
    raw = records.select(
        F.col("partition").alias("part"),
        F.col("offset").alias("off"),
        F.unix_millis("timestamp").alias("ts"),
        F.col("value").isNull().alias("tombstone"),
        text.alias("text"),
        F.from_json(text, f"{fields}, `{_CORRUPT}` string", _STRICT).alias("parsed"),
    )
    # What Spark's reader lets pass although it is no JSON object: nothing at all, and text after the object.
    value = F.col("text")
    object_like = F.coalesce(
        (value.startswith("{") | value.rlike(r"^\s*\{")) & (value.endswith("}") | value.rlike(r"\}\s*$")),
        F.lit(False),
    )
    taken = raw.select(
        "part",
        "off",
        "ts",
        "tombstone",
        "text",
        (object_like & F.col("parsed").isNotNull()).alias("whole"),
        F.col(f"parsed.{_CORRUPT}").isNotNull().alias("corrupt"),
        *(F.col(f"parsed.`{names[each.name]}`").alias(f"p_{each.name}") for each in columns),
    )
    checked = taken.select(
        "part",
        "off",
        "ts",
        "tombstone",
        "text",
        "whole",
        "corrupt",
        *(F.when(F.col("whole"), _checked(each)).alias(each.name) for each in columns),
        *(_said(each).alias(f"seen_{each.name}") for each in columns),
    )
    lost = reduce(
        lambda left, right: left | right,
        (F.col(f"seen_{each.name}") & F.col(each.name).isNull() for each in columns),
    )
    bad = ~F.col("tombstone") & (~F.col("whole") | F.col("corrupt") | lost)
    flags = F.when(F.col("tombstone"), F.lit(wire.TOMBSTONE)).when(bad, F.lit(wire.BAD)).otherwise(F.lit(0))
    return checked.select(
        F.lit(side).alias("side"),
        "part",
        "off",
        "ts",
        flags.alias("flags"),
        F.when(bad, F.make_valid_utf8(F.substring("text", 1, wire.RAW_LENGTH))).alias("raw"),
        *(each.name for each in columns),
    )


def _said(column: WireColumn) -> SparkColumn:
    """Whether the JSON object has a value for the field, of whatever type."""
    parsed = F.col(f"p_{column.name}")
    if column.column.type is ColumnType.TIMESTAMP:
        return parsed.isNotNull() & ~F.is_variant_null(parsed)
    return parsed.isNotNull()


def _checked(column: WireColumn) -> SparkColumn:
    """The parsed field, or null where the JSON held a value of another type."""
    parsed = F.col(f"p_{column.name}")
    if column.column.type is ColumnType.STRING:
        token = F.from_json("text", f"`{column.column.name}` variant", {"allowSingleQuotes": "false"})
        is_text = F.schema_of_variant(token[column.column.name]) == "STRING"
        return F.when(~_maybe_no_text(parsed) | is_text, parsed)
    if column.column.type is ColumnType.TIMESTAMP:
        kind = F.schema_of_variant(parsed)
        text = F.try_variant_get(parsed, "$", "string")
        number = F.try_variant_get(parsed, "$", "bigint")
        return F.when((kind == "STRING") & text.rlike(_TIME), F.unix_millis(F.try_to_timestamp(text))).when(
            (kind == "BIGINT") & number.between(*_TIMES), number
        )
    return parsed


def _maybe_no_text(parsed: SparkColumn) -> SparkColumn:
    """A text column takes any token ("5" from 5, "true" from true). Only a text that could have come from
    such a token needs the second, slower look at what the token was; its first and last characters tell,
    without a regular expression."""
    first, last = F.ascii(parsed), F.ascii(F.substring(parsed, -1, 1))
    number = (first.between(ord("0"), ord("9")) | (first == ord("-"))) & last.between(ord("0"), ord("9"))
    nested = ((first == ord("[")) & (last == ord("]"))) | ((first == ord("{")) & (last == ord("}")))
    return number | nested | parsed.isin("true", "false")


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
