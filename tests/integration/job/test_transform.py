"""The transformations on small static frames and on streams from files, compared with the reference."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.waiting import eventually
from tests.unit.job.reference import Record, parse, tables_of
from tests.unit.job.stories import cut, story, value
from tests.unit.job.test_tablelog import shown, unordered
from topicbinding.api import Column, ColumnType, JoinType, Source, Tables, TableSchema
from topicbinding_job import transform, wire
from topicbinding_job.log import TableLog
from topicbinding_job.query import Query, Reading
from topicbinding_job.topics import Plan, Positions, Span

RECORDS = "value binary, partition int, offset bigint, timestamp timestamp"
EVERY_TYPE = TableSchema(
    columns=(
        Column(name="s", type=ColumnType.STRING),
        Column(name="l", type=ColumnType.LONG),
        Column(name="d", type=ColumnType.DOUBLE),
        Column(name="b", type=ColumnType.BOOLEAN),
        Column(name="t", type=ColumnType.TIMESTAMP),
    )
)
TOKENS = [
    "null", "true", "false", "0", "-1", "30", '"30"', "3.0", "3.5", "1e2", "-0", "9223372036854775807",
    "9223372036854775808", '""', '"true"', '"null"', '"{}"', '"[1]"', "{}", "[]", '{"a":[1]}', '"text"',
    '"-5x"',
    '"2026-01-31T12:00:00Z"', '"2026-01-31T12:00:00.250+02:00"', '"2026-01-31 12:00:00"',
    '"2026-02-30T12:00:00Z"',
    '"12:00"', "1700000000123", '"\\u00e9\\n\\""',
]  # fmt: skip


def records_frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    rows = [
        (each.value, each.partition, each.offset, datetime.fromtimestamp(each.timestamp / 1000, UTC))
        for each in records
    ]
    return spark.createDataFrame(rows, RECORDS)


def test_every_token_in_every_type_of_column(spark: SparkSession) -> None:
    tables = Tables(key="s", users=EVERY_TYPE, accounts=TableSchema(columns=(Column(name="s"),)))
    values = [
        f'{{"{column.name}":{token}, "other": {token}}}'.encode()
        for column in EVERY_TYPE.columns
        for token in TOKENS
    ]
    values += [f'{{"s":{one},"l":{two}}}'.encode() for one in TOKENS[:12] for two in TOKENS[:12]]
    rng = random.Random(3)
    values += [each for each in (value(rng, "users", number, 3) for number in range(300)) if each is not None]
    records = [Record("users", 0, number, 0, each) for number, each in enumerate(values)]
    got = transform.rows_of(records_frame(spark, records), tables, wire.USERS).orderBy("off").collect()
    wrong = []
    for row, given in zip(got, values, strict=True):
        expected, bad = parse(given, EVERY_TYPE)
        if expected["t"] is not None:
            expected["t"] = int(expected["t"].timestamp() * 1000)
        found = [row[f"u{number}"] for number in range(5)]
        if (
            found != list(expected.values())
            or bool(row["flags"] & wire.BAD) != bad
            or (row["raw"] is None) == bad
        ):
            wrong.append((given, found, row["flags"], expected, bad))
    assert wrong == []


def test_a_tombstone_is_no_bad_row(spark: SparkSession) -> None:
    frame = records_frame(spark, [Record("users", 0, 0, 5, None)])
    (row,) = transform.rows_of(frame, Tables(), wire.USERS).collect()
    assert (row["flags"], row["raw"], row["u0"], row["ts"]) == (wire.TOMBSTONE, None, None, 5)


def test_the_shown_part_of_a_bad_value_is_short_and_valid(spark: SparkSession) -> None:
    frame = records_frame(spark, [Record("users", 0, 0, 5, b"\xff" + b"x" * 1000)])
    (row,) = transform.rows_of(frame, Tables(), wire.USERS).collect()
    assert row["flags"] == wire.BAD
    assert len(row["raw"]) <= wire.RAW_LENGTH
    row["raw"].encode()


class FileQuery(Query):
    """The real query on directories of files instead of topics: quick, and every batch is ours to choose."""

    def _records(self, topic: str, start: Positions, realtime: bool) -> DataFrame:
        reader = self._session.readStream.schema(RECORDS).option("maxFilesPerTrigger", 1)
        return reader.parquet(topic)


def write_batch(directory: Path, name: str, records: list[Record]) -> None:
    table = pa.table(
        {
            "value": pa.array([each.value for each in records], pa.binary()),
            "partition": pa.array([each.partition for each in records], pa.int32()),
            "offset": pa.array([each.offset for each in records], pa.int64()),
            "timestamp": pa.array([each.timestamp * 1000 for each in records], pa.timestamp("us", tz="UTC")),
        }
    )
    hidden = directory / f".{name}"
    pq.write_table(table, hidden)
    hidden.rename(directory / f"{name}.parquet")


@pytest.mark.parametrize(("join", "seed"), [(JoinType.LEFT, 1), (JoinType.INNER, 2), (JoinType.NATURAL, 3)])
def test_random_batches_with_restarts_from_the_checkpoint(
    spark: SparkSession, tmp_path: Path, join: JoinType, seed: int
) -> None:
    rng = random.Random(seed)
    records = story(seed, length=400)
    places = {side: tmp_path / side for side in wire.SIDES}
    for place in places.values():
        place.mkdir()
    source = Source.model_validate(
        {
            "usersTopic": "users", "accountsTopic": "accounts", "joinType": join.value,
            "kafka": {"bootstrapServers": "none:1"},
        }
    )  # fmt: skip
    source = source.model_copy(
        update={"users_topic": str(places["users"]), "accounts_topic": str(places["accounts"])}
    )
    plan = Plan(Span({}, {}), Span({}, {}))
    reading = Reading(source, plan, {}, str(tmp_path / "checkpoint"), 1000, 2)
    log = TableLog(source.tables, join)
    query = FileQuery(spark, reading, log.apply)
    query.start_microbatches()
    given: list[Record] = []
    for number, batch in enumerate(cut(rng, records)):
        for side, place in places.items():
            mine = [each for each in batch if each.side == side]
            if mine:
                write_batch(place, f"{number:05d}", mine)
        given += batch
        if rng.random() < 0.06:
            # Stopped in the middle of whatever it was doing; the next one goes on from the checkpoint.
            query.stop()
            query.start_microbatches()
    compare(log, given, source.tables, join, query.check)
    query.stop()


def compare(
    log: TableLog, records: list[Record], tables: Tables, join: JoinType, check: Callable[[], None]
) -> None:
    expected = tables_of(records, tables, join)
    wanted: dict[str, list[dict[str, Any]]] = {
        "users_ui": expected.users, "accounts_ui": expected.accounts, "final_ui": expected.final,
    }  # fmt: skip

    wanted_tombstones = [expected.tombstones[side] for side in wire.SIDES]

    def counted() -> list[int]:
        return [rows.tombstones for rows in log.side_rows]

    def complete() -> bool:
        check()
        # Tombstones stand in no table: without them the last batch may still be on its way.
        return counted() == wanted_tombstones and all(
            unordered(shown(log.tables[name])) == unordered(rows) for name, rows in wanted.items()
        )

    def first_difference() -> str:
        for name, rows in wanted.items():
            got, want = unordered(shown(log.tables[name])), unordered(rows)
            if got != want:
                extra, missing = sorted(set(got) - set(want)), sorted(set(want) - set(got))
                return (
                    f"{name}: {len(got)} rows, {len(want)} wanted; extra {extra[:3]}, missing {missing[:3]}"
                )
        return f"none in the tables; tombstones {counted()}, {wanted_tombstones} wanted"

    try:
        eventually(complete, 90, "the tables of the reference")
    except AssertionError as error:
        raise AssertionError(f"{error}: {first_difference()}") from None
    for side, rows in zip(wire.SIDES, log.side_rows, strict=True):
        assert (side, rows.bad) == (side, expected.bad[side])
        assert (side, rows.null_keys) == (side, expected.null_keys[side])
