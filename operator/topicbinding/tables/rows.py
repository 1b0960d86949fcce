"""Upserts: rows that replace rows with the same `_row`, as every delta frame means it.

Called by the gateway's mirror and by the Python client; pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from topicbinding.tables.schema import ROW_ID


def merge(base: pa.Table, deltas: Sequence[pa.Table]) -> pa.Table:
    """`base` after the deltas, in order of arrival (ascending `_row`). `base` itself holds each row once, in
    order.

    The cost is one hash look-up per row of `base`; nothing is sorted unless ids arrive out of order.
    """
    if not deltas:
        return base
    # Hundreds of small chunks cost more than their rows: make them one before anything is looked up.
    delta = last_of_each(pa.concat_tables(deltas).combine_chunks())
    base = base.combine_chunks()
    if delta.num_rows == 0:
        return base
    replaced_by = pc.index_in(base[ROW_ID], value_set=delta[ROW_ID])
    known = pc.drop_null(replaced_by)
    if len(known) == 0:
        return _in_order(pa.concat_tables([base, delta]))
    both = pa.concat_tables([base, delta]).combine_chunks()
    replaced_by = replaced_by.combine_chunks()
    shifted = pc.add(pc.cast(replaced_by, pa.int64()), base.num_rows)
    kept = pc.coalesce(shifted, _count(base.num_rows))
    positions = _count(delta.num_rows)
    fresh = positions.filter(pc.invert(pc.is_in(positions, value_set=known.cast(pa.int64()))))
    return _in_order(both.take(pa.concat_arrays([kept, pc.add(fresh, base.num_rows)])))


def warm_up() -> None:
    """Let Arrow load what a merge needs."""
    few = pa.table({ROW_ID: pa.array([1, 2], pa.int64())})
    merge(few, [few.slice(1), few.slice(0, 1), pa.table({ROW_ID: pa.array([3], pa.int64())})])


def last_of_each(table: pa.Table) -> pa.Table:
    """Each row once, as it was last sent, in order of arrival."""
    if _ascending(table[ROW_ID]):
        return table
    where = pa.table({"row": table[ROW_ID], "at": _count(table.num_rows)})
    last = where.group_by("row").aggregate([("at", "max")]).sort_by("row")
    return table.take(last["at_max"])


def _in_order(table: pa.Table) -> pa.Table:
    return table if _ascending(table[ROW_ID]) else table.sort_by(ROW_ID)


def _ascending(ids: pa.ChunkedArray) -> bool:
    if len(ids) < 2:
        return True
    return bool(pc.all(pc.less(ids.slice(0, len(ids) - 1), ids.slice(1))).as_py())


def _count(length: int) -> pa.Array:
    return pa.array(range(length), pa.int64())
