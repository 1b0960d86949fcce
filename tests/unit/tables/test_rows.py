"""Upserts against a plain dictionary."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from topicbinding.tables.rows import last_of_each, merge, warm_up

SCHEMA = pa.schema([("_row", pa.int64()), ("v", pa.utf8())])
BATCH = st.lists(st.tuples(st.integers(0, 12), st.text(max_size=3)), max_size=8)


def table(pairs: list[tuple[int, str]]) -> pa.Table:
    return pa.table({"_row": [row for row, _ in pairs], "v": [value for _, value in pairs]}, schema=SCHEMA)


def pairs(rows: pa.Table) -> list[tuple[int, str]]:
    return [(row["_row"], row["v"]) for row in rows.to_pylist()]


@given(BATCH, st.lists(BATCH, max_size=5))
def test_merge_is_a_dictionary_update_in_order_of_arrival(
    first: list[tuple[int, str]], later: list[list[tuple[int, str]]]
) -> None:
    truth = dict(first)
    base = last_of_each(table(first))
    assert pairs(base) == sorted(truth.items())
    for batch in later:
        truth |= dict(batch)
    merged = merge(base, [table(batch) for batch in later])
    assert pairs(merged) == sorted(truth.items())
    assert merged.schema == SCHEMA


def test_a_chunked_base_is_merged_too() -> None:
    base = pa.concat_tables([table([(1, "a")]), table([(2, "b"), (5, "e")])])
    assert pairs(merge(base, [table([(2, "B")]), table([(3, "c"), (1, "A")])])) == [
        (1, "A"),
        (2, "B"),
        (3, "c"),
        (5, "e"),
    ]


def test_warming_up_changes_nothing() -> None:
    warm_up()
    assert pairs(merge(table([(1, "a")]), [])) == [(1, "a")]
