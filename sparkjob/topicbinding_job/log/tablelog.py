"""The table log: `users_ui`, `accounts_ui` and `final_ui` as they are now, and what changed since any recent
moment.

`query` and `ingest` write (one thread at a time, `apply` sees to it), `serve` and `stream` read. What it
promises:

- readers never wait for the writer and never see half a change: a table is read at a published (sequence
  number, row count), and what is published never shrinks;
- the same rows given twice change nothing, so a replay after a crash is harmless;
- what changed after sequence number S is answered from a bounded window, older questions with "read
  everything";
- a table that grows beyond its limit raises `TableTooLarge` before memory runs out.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from topicbinding.api import JoinType, Tables, TableSchema, names
from topicbinding.tables.schema import ROW_ID, arrow_schema
from topicbinding_job import wire
from topicbinding_job.log.joins import InnerJoin, Join, LeftJoin, side_by_side
from topicbinding_job.log.keys import Ints, KeyIds
from topicbinding_job.log.rows import SideRows

WINDOW_CHANGES: Final = 8_192
"""Changes that can still be told apart; at 300 a second a reader may be away for half a minute and still
resume."""
WINDOW_KEYS: Final = 2_000_000
"""Changed keys remembered over the whole window, so that a storm of updates cannot fill the memory."""


KEY_BYTES: Final = 160
"""What Python takes for a short text in a dictionary."""


class TableTooLarge(Exception):  # noqa: N818 - a condition people see, not a fault of the program
    """The tables would exceed a limit; the message says which, and what helps."""

    reason = "TableTooLarge"

    @classmethod
    def of_rows(cls, table: str, rows: int, limit: int) -> TableTooLarge:
        return cls(
            f"{table} would hold {rows:,} rows, the limit is {limit:,}: start later (startingOffsets), "
            "choose topics with fewer rows, or raise spark.maxRows together with spark.memory"
        )

    @classmethod
    def of_memory(cls, used: int, limit: int) -> TableTooLarge:
        return cls(
            f"the tables take {used >> 20:,} MiB, the pod has room for {limit >> 20:,} MiB of them: "
            "start later (startingOffsets), choose topics with fewer rows, or raise spark.memory"
        )


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be taken as it was."""

    side: str
    partition: int
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that are new (`start` to `stop`) or changed since some sequence number, as of `seq`."""

    seq: int
    start: int
    stop: int
    updated: Ints

    @property
    def rows(self) -> int:
        return self.stop - self.start + len(self.updated)


@dataclass(frozen=True, slots=True)
class _Step:
    seq: int
    rows: int
    keys: Ints | None


class LogTable:
    """One table as readers see it."""

    def __init__(self, name: str, schema: pa.Schema, read: Callable[[Ints], pa.Table]) -> None:
        self.name = name
        self.schema = schema
        self._read = read
        self._published = _Step(0, 0, None)
        self._window: deque[_Step] = deque([self._published])
        self._window_keys = 0

    @property
    def seq(self) -> int:
        return self._published.seq

    @property
    def rows(self) -> int:
        return self._published.rows

    def at(self) -> tuple[int, int]:
        """(sequence number, rows) that belong together."""
        step = self._published
        return step.seq, step.rows

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows `start` to `stop`, as they are now."""
        return self.take(np.arange(start, stop, dtype=np.int64))

    def take(self, rows: Ints) -> pa.Table:
        """These rows, as they are now, with their numbers in front."""
        table = self._read(rows).add_column(0, ROW_ID, pa.array(rows))
        return table.cast(self.schema)

    def changes(self, since: int) -> Changes | None:
        """What is new after sequence number `since`; None if that is too long ago, or never was."""
        steps = tuple(self._window)
        now = steps[-1]
        if not steps[0].seq <= since <= now.seq:
            return None
        before = steps[since - steps[0].seq]
        touched = [step.keys for step in steps[since - steps[0].seq + 1 :] if step.keys is not None]
        updated = np.empty(0, dtype=np.int64)
        if touched:
            found = self._rows_of_keys(np.unique(np.concatenate(touched)))
            # Rows appended since then are sent anyway.
            updated = np.sort(found[found < before.rows])
        return Changes(now.seq, before.rows, now.rows, updated)

    def _rows_of_keys(self, keys: Ints) -> Ints:
        raise AssertionError(f"{self.name} has no rows that change")

    def _publish(self, rows: int, keys: Ints | None = None) -> bool:
        if rows == self._published.rows and (keys is None or len(keys) == 0):
            return False
        step = _Step(self._published.seq + 1, rows, keys)
        window = self._window
        window.append(step)
        self._window_keys += 0 if keys is None else len(keys)
        while len(window) > WINDOW_CHANGES or (self._window_keys > WINDOW_KEYS and len(window) > 1):
            gone = window.popleft()
            self._window_keys -= 0 if gone.keys is None else len(gone.keys)
        self._published = step
        return True


class _FinalTable(LogTable):
    def __init__(self, schema: pa.Schema, read: Callable[[Ints], pa.Table], join: Join) -> None:
        super().__init__(names.FINAL_TABLE, schema, read)
        self._join = join

    def _rows_of_keys(self, keys: Ints) -> Ints:
        return self._join.rows_of_keys(keys)


class TableLog:
    """All three tables of one generation, in one run of its driver."""

    def __init__(
        self, tables: Tables, join_type: JoinType, max_rows: int = 5_000_000, max_bytes: int = 1 << 62
    ) -> None:
        self.epoch = uuid.uuid4().hex
        self._key = tables.key
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._keys = KeyIds()
        self.users = SideRows(tables, wire.USERS, self._keys)
        self.accounts = SideRows(tables, wire.ACCOUNTS, self._keys)
        self._join: Join = InnerJoin() if join_type is JoinType.INNER else LeftJoin(self.users, self._keys)
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._users_table = LogTable(
            names.USERS_TABLE, arrow_schema(_pairs(tables.users)), lambda rows: _picked(self.users, rows)
        )
        self._accounts_table = LogTable(
            names.ACCOUNTS_TABLE,
            arrow_schema(_pairs(tables.accounts)),
            lambda rows: _picked(self.accounts, rows),
        )
        self._final_table = _FinalTable(arrow_schema(_pairs(tables.final)), self._read_final, self._join)
        self.tables: dict[str, LogTable] = {
            each.name: each for each in (self._users_table, self._accounts_table, self._final_table)
        }

    @property
    def side_rows(self) -> tuple[SideRows, SideRows]:
        return self.users, self.accounts

    @property
    def nbytes(self) -> int:
        sides = self.users.nbytes + self.accounts.nbytes
        return sides + self._join.nbytes + len(self._keys) * KEY_BYTES

    @property
    def newest_event(self) -> int:
        """Greatest timestamp taken, ms since 1970; 0 before the first row."""
        return max(self.users.newest_event, self.accounts.newest_event)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, from the writer's thread: it must return at once."""
        self._listeners.append(listener)

    def bad_rows(self) -> Sequence[BadRow]:
        return [
            BadRow(side, *sample)
            for side, rows in zip(wire.SIDES, self.side_rows, strict=True)
            for sample in tuple(rows.samples)
        ]

    def apply(self, rows: pa.Table) -> None:
        """Take rows of the wire layout, from any thread, in any order of sides."""
        if rows.num_rows == 0:
            return
        with self._lock:
            used = self.nbytes
            if used > self._max_bytes:
                raise TableTooLarge.of_memory(used, self._max_bytes)
            batch = _one_batch(rows)
            side = batch.column("side").to_numpy()
            self._apply_side(batch, side, wire.USERS)
            keys = self._apply_side(batch, side, wire.ACCOUNTS)
            changed = [
                self._users_table._publish(self.users.rows),
                self._accounts_table._publish(self.accounts.rows),
                self._final_table._publish(self._join.rows, keys),
            ]
        if any(changed):
            for listener in self._listeners:
                listener()

    def _apply_side(self, batch: pa.RecordBatch, sides: Ints, side: int) -> Ints:
        """Returns the keys whose newest account changed."""
        unchanged = np.empty(0, dtype=np.int64)
        mine = _only(batch, sides, side)
        if mine.num_rows == 0:
            return unchanged
        rows = self.side_rows[side]
        first, keys, newest = rows.append(mine)
        if len(keys) == 0:
            return unchanged
        table = (self._users_table, self._accounts_table)[side]
        self._limit(table.name, rows.rows)
        self._limit(names.FINAL_TABLE, self._join.rows_after(keys, side))
        if side == wire.USERS:
            self._join.users_added(first, keys)
            return unchanged
        self._join.accounts_added(first, keys)
        if not newest.any():
            return unchanged
        marked = first + np.flatnonzero(newest)
        marked_keys = keys[newest]
        # Of several marks of one key the newest counts.
        order = np.lexsort((*rows.age(marked), marked_keys))
        marked, marked_keys = marked[order], marked_keys[order]
        last = np.append(marked_keys[1:] != marked_keys[:-1], True)
        return self._join.newest_is(marked_keys[last], marked[last], rows)

    def _limit(self, table: str, rows: int) -> None:
        if rows > self._max_rows:
            raise TableTooLarge.of_rows(table, rows, self._max_rows)

    def _read_final(self, rows: Ints) -> pa.Table:
        # First which accounts, then the accounts: so every number is already there.
        wanted = self._join.sides(rows)
        return side_by_side(self.users.chunks.table(), self.accounts.chunks.table(), self._key, wanted)


def _pairs(schema: TableSchema) -> list[tuple[str, str]]:
    return [(column.name, column.type.value) for column in schema.columns]


def _picked(rows: SideRows, wanted: Ints) -> pa.Table:
    table = rows.chunks.table()
    if len(wanted) and (np.diff(wanted) == 1).all():
        return table.slice(int(wanted[0]), len(wanted))
    return table.take(pa.array(wanted))


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0]


def _only(batch: pa.RecordBatch, sides: Ints, side: int) -> pa.RecordBatch:
    mine = sides == side
    if mine.all():
        return batch
    return batch.filter(pa.array(mine)) if mine.any() else batch.slice(0, 0)
