"""The rows of one topic, in arrival order: what `users_ui` and `accounts_ui` show, and what the joins refer
to.

Called by `tablelog`. A row's number is its place here. Every partition is taken in the order of its offsets,
and an offset is taken once: what is replayed after a restart of the query is recognised and left out.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topicbinding.api import ColumnType, Tables
from topicbinding.tables.schema import arrow_type
from topicbinding_job import wire
from topicbinding_job.log.columns import Chunks, Numbers
from topicbinding_job.log.keys import Ints, KeyIds

_OFFSET_BITS: Final = 48
"""A place is one number, partition above offset: 2^48 records of one partition are out of anybody's reach."""

SAMPLES: Final = 5
"""Bad rows kept to be shown, for each topic."""


class Offsets:
    """Offsets of one partition, ascending."""

    def __init__(self) -> None:
        self._known = Numbers(np.int64)

    @property
    def nbytes(self) -> int:
        return self._known.nbytes

    def has(self, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Whether each of these is known already."""
        known = self._known.view
        if len(known) == 0:
            return np.zeros(len(offsets), dtype=bool)
        found: npt.NDArray[np.bool_] = (
            known[np.minimum(np.searchsorted(known, offsets), len(known) - 1)] == offsets
        )
        return found

    def add(self, offsets: Ints) -> None:
        """Offsets that are not known, ascending."""
        known = self._known.view
        if len(known) and len(offsets) and offsets[0] < known[-1]:
            # A straggler: no promise of Spark's says that it cannot happen, and it must not be taken for a
            # replay.
            merged = np.sort(np.concatenate((known, offsets)))
            self._known = Numbers(np.int64)
            offsets = merged
        self._known.append(offsets)


class Partition:
    """What has been taken of one partition."""

    def __init__(self) -> None:
        self.rows = Offsets()
        self.tombstones = Offsets()
        self.taken = -1
        """The greatest offset seen, shown or not (a tombstone is seen and not shown)."""

    def has(self, offsets: Ints) -> npt.NDArray[np.bool_]:
        return self.rows.has(offsets) | self.tombstones.has(offsets)


class Added(NamedTuple):
    """New rows: the first one's number, and for each its key's number and whether Spark marked it as
    newest."""

    first: int
    keys: Ints
    newest: npt.NDArray[np.bool_]


class SideRows:
    """All rows of one side."""

    def __init__(self, tables: Tables, side: int, keys: KeyIds) -> None:
        self._side = side
        self._keys = keys
        self._wire = wire.side_columns(tables, side)
        self._key_at = next(at for at, each in enumerate(self._wire) if each.column.name == tables.key)
        self.chunks = Chunks(
            pa.schema([(each.column.name, arrow_type(each.column.type.value)) for each in self._wire])
        )
        self.key_ids = Numbers(np.int64)
        self._times = Numbers(np.int64)
        self._places = Numbers(np.int64)
        self.partitions: dict[int, Partition] = {}
        self.null_keys = 0
        self.bad = 0
        self.tombstones = 0
        self.samples: list[tuple[int, int, str]] = []
        """(partition, offset, beginning of the value) of the first bad rows."""
        self.newest_event = 0
        """Greatest timestamp seen, ms."""

    @property
    def rows(self) -> int:
        return self.chunks.rows

    @property
    def nbytes(self) -> int:
        positions = sum(each.rows.nbytes + each.tombstones.nbytes for each in self.partitions.values())
        return self.chunks.nbytes + 3 * self.key_ids.nbytes + positions

    def next_offset(self, partition: int) -> int:
        """The offset after the last one taken; 0 if none was."""
        known = self.partitions.get(partition)
        return known.taken + 1 if known else 0

    def age(self, rows: Ints) -> tuple[Ints, Ints]:
        """What decides which of two rows is newer, least important first."""
        return self._places.view[rows], self._times.view[rows]

    def newer(self, rows: Ints, than: Ints) -> npt.NDArray[np.bool_]:
        """Whether each row is newer than its counterpart: greater (timestamp, partition, offset)."""
        places, times = self.age(rows)
        other_places, other_times = self.age(than)
        newer: npt.NDArray[np.bool_] = (times > other_times) | (
            (times == other_times) & (places > other_places)
        )
        return newer

    def append(self, batch: pa.RecordBatch) -> Added:
        """Take wire rows of this side, those that are new."""
        batch = self._fresh(batch)
        flags = _numpy(batch, "flags")
        if flags.any():
            self._count(batch, flags)
            shown = (flags & wire.TOMBSTONE) == 0
            if not shown.all():
                gone = batch.filter(pa.array(~shown))
                for number, offsets in _by_partition(gone):
                    self.partitions[number].tombstones.add(offsets)
                batch, flags = batch.filter(pa.array(shown)), flags[shown]
        first = self.rows
        if batch.num_rows == 0:
            return Added(first, np.empty(0, dtype=np.int64), np.empty(0, dtype=bool))
        parts, offsets, times = _numpy(batch, "part"), _numpy(batch, "off"), _numpy(batch, "ts")
        self.newest_event = max(self.newest_event, int(times.max()))
        for number, taken in _by_partition(batch):
            self.partitions[number].rows.add(taken)
        self._times.append(times)
        self._places.append((parts.astype(np.int64) << _OFFSET_BITS) | offsets)
        keys = self._keys.of(batch.column(self._wire[self._key_at].name))
        self.null_keys += int((keys < 0).sum())
        self.key_ids.append(keys)
        self.chunks.append(
            pa.RecordBatch.from_arrays(
                [_declared(batch.column(each.name), each.column.type) for each in self._wire],
                schema=self.chunks.schema,
            )
        )
        return Added(first, keys, (flags & wire.NEWEST) != 0)

    def _fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What has not been taken before, each partition in the order of its offsets."""
        parts, offsets = _numpy(batch, "part"), _numpy(batch, "off")
        numbers = np.unique(parts)
        order = np.lexsort((offsets, parts))
        if len(numbers) > 1:
            # Across partitions the time decides, as far as it can without disturbing a partition's own order.
            times = _numpy(batch, "ts")[order]
            starts = np.flatnonzero(np.append(True, np.diff(parts[order]) != 0))
            for start, stop in zip(starts, [*starts[1:], len(times)], strict=True):
                times[start:stop] = np.maximum.accumulate(times[start:stop])
            order = order[np.argsort(times, kind="stable")]
        if not (np.diff(order) == 1).all():
            batch = batch.take(pa.array(order))
            parts, offsets = parts[order], offsets[order]
        keep = np.ones(len(parts), dtype=bool)
        for number in numbers:
            partition = self.partitions.setdefault(int(number), Partition())
            mine = parts == number
            mine_offsets = offsets[mine]
            if mine_offsets[0] <= partition.taken:
                # At or before what was seen: a replay, unless it was never taken.
                keep[mine] = (mine_offsets > partition.taken) | ~partition.has(mine_offsets)
            partition.taken = max(partition.taken, int(mine_offsets[-1]))
        return batch if keep.all() else batch.filter(pa.array(keep))

    def _count(self, batch: pa.RecordBatch, flags: npt.NDArray[Any]) -> None:
        self.tombstones += int(((flags & wire.TOMBSTONE) != 0).sum())
        bad = np.flatnonzero(flags & wire.BAD)
        self.bad += len(bad)
        for index in bad[: SAMPLES - len(self.samples)] if len(self.samples) < SAMPLES else ():
            row = batch.slice(int(index), 1).to_pylist()[0]
            self.samples.append((row["part"], row["off"], row["raw"] or ""))


def _by_partition(batch: pa.RecordBatch) -> list[tuple[int, Ints]]:
    parts, offsets = _numpy(batch, "part"), _numpy(batch, "off")
    return [(int(number), offsets[parts == number]) for number in np.unique(parts)]


def _numpy(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    return batch.column(name).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _declared(column: pa.Array, kind: ColumnType) -> pa.Array:
    return column.cast(arrow_type(kind.value)) if kind is ColumnType.TIMESTAMP else column
