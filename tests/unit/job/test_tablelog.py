"""The table log against the reference: random stories in random batches, replays, streams of changes,
limits."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.job.reference import Record, tables_of
from tests.unit.job.stories import cut, story
from tests.unit.job.wirerows import Marker, wire_table
from topicbinding.api import Column, ColumnType, JoinType, Tables, TableSchema
from topicbinding_job.log import LogTable, TableLog, TableTooLarge, tablelog

TABLES = Tables()


def shown(table: LogTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.read(0, table.rows).drop_columns(["_row"]).to_pylist()
    return rows


def unordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


class Follower:
    """A reader that knows the table only by its changes."""

    def __init__(self, table: LogTable) -> None:
        self.table = table
        self.seq = 0
        self.rows: dict[int, dict[str, Any]] = {}

    def follow(self) -> None:
        changes = self.table.changes(self.seq)
        assert changes is not None
        for part in (self.table.read(changes.start, changes.stop), self.table.take(changes.updated)):
            for row in part.to_pylist():
                self.rows[row.pop("_row")] = row
        self.seq = changes.seq

    def shown(self) -> list[dict[str, Any]]:
        return [self.rows[number] for number in sorted(self.rows)]


@pytest.mark.parametrize("join", list(JoinType))
@pytest.mark.parametrize("seed", range(6))
def test_random_stories_in_random_batches(join: JoinType, seed: int) -> None:
    rng = random.Random(seed)
    records = story(seed, length=250, partitions=rng.choice((1, 2, 3)))
    log = TableLog(TABLES, join)
    marker = Marker()
    followers = [Follower(table) for table in log.tables.values()]
    so_far: list[Record] = []
    for batch in cut(rng, records):
        # Sometimes the query starts again and gives a stretch a second time before it goes on.
        replayed = so_far[-rng.randrange(1, 60) :] if rng.random() < 0.2 else []
        mixed = [*replayed, *batch]
        rng.shuffle(mixed)
        log.apply(wire_table(mixed, TABLES, join, marker))
        so_far += batch
        for follower in rng.sample(followers, 2):
            follower.follow()
    expected = tables_of(records, TABLES, join)
    users, accounts, final = (shown(log.tables[name]) for name in ("users_ui", "accounts_ui", "final_ui"))
    assert unordered(users) == unordered(expected.users)
    assert unordered(accounts) == unordered(expected.accounts)
    assert unordered(final) == unordered(expected.final)
    for follower, rows in zip(followers, (users, accounts, final), strict=True):
        follower.follow()
        assert follower.shown() == rows
    for side, rows_of_side in zip(("users", "accounts"), log.side_rows, strict=True):
        assert rows_of_side.bad == expected.bad[side]
        assert rows_of_side.null_keys == expected.null_keys[side]
        assert rows_of_side.tombstones == expected.tombstones[side]


def test_one_partition_keeps_the_order_of_its_offsets() -> None:
    records = story(1, length=300, partitions=1)
    log = TableLog(TABLES, JoinType.LEFT)
    for batch in cut(random.Random(1), records):
        log.apply(wire_table(batch[::-1], TABLES, JoinType.LEFT, Marker()))
    expected = tables_of(records, TABLES, JoinType.LEFT)
    assert shown(log.tables["users_ui"]) == expected.users
    assert shown(log.tables["accounts_ui"]) == expected.accounts


def test_an_account_that_comes_later_changes_rows_in_place() -> None:
    log = TableLog(TABLES, JoinType.LEFT)
    marker = Marker()

    def give(*records: Record) -> None:
        log.apply(wire_table(list(records), TABLES, JoinType.LEFT, marker))

    give(Record("users", 0, 0, 1, b'{"userId":"a","name":"first"}'))
    give(Record("users", 0, 1, 2, b'{"userId":"a","name":"second"}'))
    final = log.tables["final_ui"]
    seq = final.seq
    give(Record("accounts", 0, 0, 3, b'{"userId":"a","accountType":"gold","balance":1}'))
    changes = final.changes(seq)
    assert changes is not None
    assert (changes.start, changes.stop, changes.updated.tolist()) == (2, 2, [0, 1])
    assert [row["accountType"] for row in shown(final)] == ["gold", "gold"]
    # An older one that comes late changes nothing at all.
    seq = final.seq
    give(Record("accounts", 1, 0, 2, b'{"userId":"a","accountType":"old","balance":9}'))
    assert final.seq == seq
    assert [row["accountType"] for row in shown(final)] == ["gold", "gold"]


def test_a_replay_never_takes_the_newest_account_back() -> None:
    log = TableLog(TABLES, JoinType.LEFT)
    old = Record("accounts", 0, 0, 1, b'{"userId":"a","accountType":"old"}')
    new = Record("accounts", 0, 1, 2, b'{"userId":"a","accountType":"new"}')
    log.apply(wire_table([Record("users", 0, 0, 0, b'{"userId":"a"}')], TABLES, JoinType.LEFT, Marker()))
    log.apply(wire_table([old, new], TABLES, JoinType.LEFT, Marker()))
    log.apply(wire_table([old], TABLES, JoinType.LEFT, Marker()))
    assert [row["accountType"] for row in shown(log.tables["final_ui"])] == ["new"]


def test_a_straggler_is_a_row_and_not_a_replay() -> None:
    log = TableLog(TABLES, JoinType.LEFT)
    for offset in (0, 2, 1):
        record = Record("users", 0, offset, offset, b'{"userId":"a","age":%d}' % offset)
        log.apply(wire_table([record], TABLES, JoinType.LEFT, Marker()))
    assert sorted(row["age"] for row in shown(log.tables["users_ui"])) == [0, 1, 2]


def test_a_straggling_tombstone_is_counted_once() -> None:
    log = TableLog(TABLES, JoinType.LEFT)
    late = Record("accounts", 0, 5, 10, None)
    for record in (Record("accounts", 0, 6, 11, b'{"userId":"a"}'), late, late):
        log.apply(wire_table([record], TABLES, JoinType.LEFT, Marker()))
    assert (log.accounts.rows, log.accounts.tombstones) == (1, 1)


def test_changes_are_told_from_a_bounded_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablelog, "WINDOW_CHANGES", 200)
    log = TableLog(TABLES, JoinType.LEFT)
    for offset in range(300):
        row = wire_table([Record("users", 0, offset, 1, b'{"userId":"a"}')], TABLES, JoinType.LEFT, Marker())
        log.apply(row)
    table = log.tables["users_ui"]
    assert table.changes(0) is None
    assert table.changes(table.seq + 1) is None
    recent = table.changes(table.seq - 100)
    assert recent is not None
    assert recent.stop - recent.start == 100


@pytest.mark.parametrize("join", [JoinType.LEFT, JoinType.INNER])
def test_a_hundred_thousand_rows_of_one_key(join: JoinType) -> None:
    """The cost must not grow with the square: a batch late in the story may take a few times one of the
    beginning."""
    log = TableLog(TABLES, join)
    rows = pa.Table.from_pylist(
        [{"side": 0, "part": 0, "off": 0, "ts": 0, "flags": 0, "u0": "hot", "u1": "x"}] * 1000,
        schema=wire_table([], TABLES, join, Marker()).schema,
    )
    for number in range(100):
        offsets = pa.array(np.arange(number * 1000, (number + 1) * 1000))
        log.apply(rows.set_column(2, "off", offsets))
        account = Record("accounts", 0, number, number, b'{"userId":"hot","accountType":"a"}')
        if join is JoinType.LEFT or number < 10:
            log.apply(wire_table([account], TABLES, join, Marker()))
    final = log.tables["final_ui"]
    if join is JoinType.LEFT:
        assert final.rows == 100_000
        assert set(final.read(99_000, 100_000).column("accountType").to_pylist()) == {"a"}
    else:
        assert final.rows == 1_000_000


@pytest.mark.parametrize(
    ("join", "table", "limit"), [(JoinType.LEFT, "users_ui", 1000), (JoinType.INNER, "final_ui", 5000)]
)
def test_a_table_beyond_its_limit_says_so_before_memory_runs_out(
    join: JoinType, table: str, limit: int
) -> None:
    log = TableLog(TABLES, join, max_rows=limit)
    users = [Record("users", 0, number, 1, b'{"userId":"hot"}') for number in range(limit // 2)]
    accounts = [Record("accounts", 0, number, 1, b'{"userId":"hot"}') for number in range(20)]
    log.apply(wire_table(users, TABLES, join, Marker()))
    log.apply(wire_table(accounts[:1], TABLES, join, Marker()))
    more = [Record("users", 0, limit + number, 1, b'{"userId":"hot"}') for number in range(limit)]
    with pytest.raises(TableTooLarge, match=table):
        log.apply(wire_table(more if join is JoinType.LEFT else accounts[1:], TABLES, join, Marker()))


def test_tables_beyond_the_memory_say_so() -> None:
    log = TableLog(TABLES, JoinType.LEFT, max_bytes=200_000)

    def give(count: int) -> None:
        for number in range(count):
            record = Record("users", 0, number, 1, b'{"userId":"k%d"}' % number)
            log.apply(wire_table([record], TABLES, JoinType.LEFT, Marker()))

    with pytest.raises(TableTooLarge, match=r"spark\.memory"):
        give(3000)


def test_readers_see_whole_changes_while_the_writer_writes() -> None:
    """A reader beside the writer: every row it is told of is there, and no account ever goes back."""
    log = TableLog(TABLES, JoinType.LEFT)
    marker = Marker()
    problems: list[str] = []
    done = threading.Event()

    def watch() -> None:
        final = log.tables["final_ui"]
        newest: dict[int, float] = {}
        while not done.is_set():
            _, rows = final.at()
            table = final.read(0, rows)
            if table.num_rows != rows:
                problems.append(f"{rows} rows promised, {table.num_rows} found")
            for number, balance in zip(
                table.column("_row").to_pylist(), table.column("balance").to_pylist(), strict=True
            ):
                if (balance or 0) < newest.get(number, 0):
                    problems.append(f"row {number} went back")
                newest[number] = balance or 0

    reader = threading.Thread(target=watch)
    reader.start()
    for number in range(400):
        records = [
            Record("users", 0, number, number, b'{"userId":"k%d"}' % (number % 50)),
            Record("accounts", 0, number, number, b'{"userId":"k%d","balance":%d}' % (number % 50, number)),
        ]
        log.apply(wire_table(records, TABLES, JoinType.LEFT, marker))
    done.set()
    reader.join()
    assert problems == []


def test_declared_columns_of_every_type() -> None:
    columns = tuple(Column(name=f"c_{kind.value}", type=kind) for kind in ColumnType)
    key = Column(name="id", type=ColumnType.LONG)
    tables = Tables(
        key="id",
        users=TableSchema(columns=(*columns, key)),
        accounts=TableSchema(columns=(key, Column(name="when", type=ColumnType.TIMESTAMP))),
    )
    records = [
        Record(
            "users",
            0,
            0,
            1,
            b'{"id":1,"c_timestamp":"2026-01-31T12:00:00.250Z","c_boolean":true,"c_double":1}',
        ),
        Record("accounts", 0, 0, 1, b'{"id":1,"when":1700000000123}'),
    ]
    log = TableLog(tables, JoinType.NATURAL)
    log.apply(wire_table(records, tables, JoinType.NATURAL, Marker()))
    assert shown(log.tables["final_ui"]) == tables_of(records, tables, JoinType.NATURAL).final
    assert log.tables["final_ui"].schema.names[:3] == ["_row", "id", "c_string"]
