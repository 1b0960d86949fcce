"""Queries on a small table, checked row by row; nulls are the point of most of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicbinding.tables.query import MAX_LIMIT, Query, QueryError
from topicbinding.tables.schema import arrow_schema

TABLE = pa.table(
    {
        "_row": [10, 20, 30, 40],
        "userId": ["u1", "u2", "u3", None],
        "name": ["Anna", "hannes", None, ""],
        "age": [30, None, 41, 30],
        "balance": [1.5, -2.0, None, 100.0],
        "ok": [True, False, None, True],
        "at": [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)] + [None],
    },
    schema=arrow_schema(
        [
            ("userId", "string"),
            ("name", "string"),
            ("age", "long"),
            ("balance", "double"),
            ("ok", "boolean"),
            ("at", "timestamp"),
        ]
    ),
)


def ask(params: Mapping[str, str]) -> tuple[list[int], int]:
    """The `_row`s of the answer, in order, and the total."""
    answer = Query.from_params({"columns": "_row", **params}).run(TABLE)
    return answer.rows["_row"].to_pylist(), answer.total


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("age >= 30", [10, 30, 40]),
        ("not age >= 35", [10, 40]),
        ("age != 30", [30]),
        ("age > 30.5", [30]),
        ("age in (30, 41.0)", [10, 30, 40]),
        ("age in (41)", [30]),
        ("age not in (30)", [30]),
        ("age not in (30, 31)", [30]),
        ("age is null", [20]),
        ("age is not null and ok = true", [10, 40]),
        ('name ~ "AN"', [10, 20]),
        ('not name ~ "an"', [40]),
        ("name = ''", [40]),
        ("age ~ '4'", [30]),
        ("balance < 0 or userId = 'u3'", [20, 30]),
        ("balance = 100", [40]),
        ("userId in ('u1', 'u3', 'zz')", [10, 30]),
        ("at >= '2026-01-02'", [20, 30]),
        ("at = '2026-01-02T01:00:00+01:00'", [20]),
        ("ok != true", [20]),
        ("age < 99999999999999999999", [10, 30, 40]),
        ("_row > 20", [30, 40]),
        ("userId = 'u1' or age = 30 or name is null", [10, 30, 40]),
    ],
)
def test_where(where: str, rows: list[int]) -> None:
    assert ask({"where": where}) == (rows, len(rows))


@pytest.mark.parametrize(
    ("order", "rows"),
    [
        ("age", [10, 40, 30, 20]),
        ("-age", [30, 10, 40, 20]),
        ("-age,-balance", [30, 40, 10, 20]),
        ("+name", [40, 10, 20, 30]),
        ("-_row", [40, 30, 20, 10]),
        ("", [10, 20, 30, 40]),
    ],
)
def test_order_puts_nulls_last_and_keeps_arrival_order_among_equals(order: str, rows: list[int]) -> None:
    assert ask({"order": order})[0] == rows


def test_paging_keeps_the_total() -> None:
    assert ask({"offset": "1", "limit": "2"}) == ([20, 30], 4)
    assert ask({"offset": "1", "limit": "2", "order": "-balance"}) == ([10, 20], 4)
    assert ask({"offset": "9"}) == ([], 4)
    assert ask({"limit": "0"}) == ([], 4)


def test_columns_come_in_the_asked_order_and_without_the_row_identity() -> None:
    assert Query.from_params({"columns": "age, userId"}).run(TABLE).rows.column_names == ["age", "userId"]
    assert Query().run(TABLE).rows.column_names == ["userId", "name", "age", "balance", "ok", "at"]


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"colums": "a"}, "did you mean 'columns'"),
        ({"columns": "userid"}, "did you mean 'userId'"),
        ({"columns": "zzz"}, "known: age, at, balance"),
        ({"order": "-agee"}, "did you mean 'age'"),
        ({"where": "agee = 1"}, "did you mean 'age'"),
        ({"where": "agee is null"}, "did you mean 'age'"),
        ({"where": "agee ~ 'x'"}, "did you mean 'age'"),
        ({"where": "agee in (1)"}, "did you mean 'age'"),
        ({"where": "age = 'x'"}, "compared with a number"),
        ({"where": "name = 3"}, "a text in quotes"),
        ({"where": "ok = 1"}, "true or false"),
        ({"where": "ok > true"}, "only = and !="),
        ({"where": "age = true"}, "a number"),
        ({"where": "at > 'tomorrow'"}, "not an ISO 8601 time"),
        ({"where": "at > 3"}, "a time in quotes"),
        ({"where": "age >"}, "where: a value is expected"),
        ({"limit": "-1"}, "limit must be a whole number"),
        ({"limit": "1e3"}, "limit must be"),
        ({"limit": "٣"}, "limit must be"),
        ({"limit": str(MAX_LIMIT + 1)}, "at most"),
        ({"offset": "9" * 30}, "offset must be"),
    ],
)
def test_mistakes_are_answered(params: dict[str, str], complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        Query.from_params(params).run(TABLE)


def test_parameters_of_the_caller_are_let_through() -> None:
    assert Query.from_params({"format": "csv", "limit": "3"}, ignore=["format"]).limit == 3


def test_an_empty_table_answers() -> None:
    empty = TABLE.schema.empty_table()
    answer = Query.from_params({"where": "age > 1 and not name ~ 'x'", "order": "-age"}).run(empty)
    assert (answer.rows.num_rows, answer.total) == (0, 0)


VALUES = st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=12)


@given(values=VALUES, low=st.integers(-3, 3), high=st.integers(-3, 3))
def test_filters_agree_with_plain_python(values: list[Any], low: int, high: int) -> None:
    table = pa.table({"_row": range(len(values)), "n": pa.array(values, pa.int64())})
    got = Query.from_params({"columns": "n", "where": f"n >= {low} and not n > {high}"}).run(table)
    assert got.rows["n"].to_pylist() == [v for v in values if v is not None and low <= v <= high]
    ordered = Query.from_params({"order": "-n"}).run(table).rows["n"].to_pylist()
    assert ordered == sorted(values, key=lambda v: (v is None, -(v or 0)))
