"""A question to a table: which columns, which rows, in which order, how many of them. Evaluated with pyarrow.

`Query.from_params` reads the query string of a request (strictly: an unknown parameter or column is an error
with a did-you-mean, never ignored); `Query.run` answers it. Called by the driver's and the gateway's table
routes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from topicbinding.tables import where
from topicbinding.tables.schema import ROW_ID, type_word, visible_names

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 1_000_000
"""One answer is built in memory; more rows than this are read in pages or from the stream."""

PARAMETERS: Final = ("columns", "where", "order", "offset", "limit")

_KERNELS: Final = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class QueryError(ValueError):
    """The question cannot be answered as it was asked. The message is for the person who asked (HTTP 400)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`rows` holds the asked columns and page; `total` is how many rows the filter matched before paging."""

    rows: pa.Table
    total: int


@dataclass(frozen=True, slots=True)
class Query:
    """None in `columns` means every visible column. Rows without an `order` keep their order of arrival."""

    columns: tuple[str, ...] | None = None
    condition: where.Condition | None = None
    order: tuple[tuple[str, bool], ...] = ()
    offset: int = 0
    limit: int = DEFAULT_LIMIT

    @classmethod
    def from_params(cls, params: Mapping[str, str], *, ignore: Iterable[str] = ()) -> Query:
        """Read a request's parameters. `ignore` names those which mean something to the caller (format,
        generation)."""
        known = {*PARAMETERS, *ignore}
        for name in params:
            if name not in known:
                raise QueryError(f"unknown parameter {name!r}{_did_you_mean(name, known)}")
        text = params.get("where", "").strip()
        try:
            condition = where.parse(text) if text else None
        except where.WhereError as error:
            raise QueryError(f"where: {error}") from None
        columns = tuple(_names(params.get("columns", "")))
        return cls(
            columns=columns or None,
            condition=condition,
            order=tuple(
                (name.lstrip("-+"), name.startswith("-")) for name in _names(params.get("order", ""))
            ),
            offset=_number(params, "offset", 0, None),
            limit=_number(params, "limit", DEFAULT_LIMIT, MAX_LIMIT),
        )

    def run(self, table: pa.Table) -> Answer:
        """Answer from `table`, which must hold each row once."""
        columns = list(self.columns) if self.columns is not None else visible_names(table.schema)
        for name in (*columns, *(name for name, _ in self.order)):
            _require(table.schema, name)
        if self.condition is not None:
            mask = _evaluate(self.condition, table)
            if isinstance(mask, pa.Scalar):
                mask = pa.repeat(mask, table.num_rows)
            table = table.filter(mask)
        total = table.num_rows
        if self.order:
            keys = [(name, "descending" if down else "ascending") for name, down in self.order]
            if ROW_ID in table.schema.names and ROW_ID not in {name for name, _ in self.order}:
                keys.append((ROW_ID, "ascending"))
            # Only the page's rows are gathered; nulls come last in both directions, as people expect of a
            # grid.
            indices = pc.sort_indices(table, sort_keys=keys)
            table = table.select(_unique(columns)).take(indices.slice(self.offset, self.limit))
        else:
            table = table.slice(self.offset, self.limit)
        return Answer(rows=table.select(columns), total=total)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _number(params: Mapping[str, str], name: str, default: int, maximum: int | None) -> int:
    text = params.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise QueryError(f"{name} must be a whole number that is not negative")
    value = int(text)
    if maximum is not None and value > maximum:
        raise QueryError(f"{name} may be at most {maximum}")
    return value


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    candidates = sorted(known)
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else f"; known: {', '.join(candidates)}"


def _require(schema: pa.Schema, name: str) -> pa.DataType:
    if name not in schema.names:
        raise QueryError(f"there is no column {name!r}{_did_you_mean(name, visible_names(schema))}")
    return schema.field(name).type


def _evaluate(condition: where.Condition, table: pa.Table) -> pa.ChunkedArray:
    """A mask in three-valued logic: a comparison with null is null, and null does not pass the filter."""
    match condition:
        case where.And(parts):
            mask = _evaluate(parts[0], table)
            for part in parts[1:]:
                mask = pc.and_kleene(mask, _evaluate(part, table))
            return mask
        case where.Or(parts):
            mask = _evaluate(parts[0], table)
            for part in parts[1:]:
                mask = pc.or_kleene(mask, _evaluate(part, table))
            return mask
        case where.Not(part):
            return pc.invert(_evaluate(part, table))
        case where.IsNull(column):
            _require(table.schema, column)
            return pc.is_null(table[column])
        case where.Contains(column, text):
            _require(table.schema, column)
            return pc.match_substring(_as_text(table[column]), text, ignore_case=True)
        case where.In(column, values):
            data_type = _require(table.schema, column)
            mask = pc.equal(table[column], _scalar(column, data_type, values[0]))
            if len(values) > 1:
                scalars = [_scalar(column, data_type, value) for value in values]
                kinds = {scalar.type for scalar in scalars}
                common = data_type if kinds == {data_type} else pa.float64()
                haystack = pa.array([scalar.as_py() for scalar in scalars], type=common)
                column_values = (
                    table[column] if common == data_type else table[column].cast(common, safe=False)
                )
                found = pc.is_in(column_values, value_set=haystack)
                # is_in calls a null "not found"; here it is unknown, so that `not in` does not select it.
                mask = pc.if_else(pc.is_null(table[column]), pa.scalar(None, pa.bool_()), found)
            return mask
        case where.Compare(column, operator, value):
            data_type = _require(table.schema, column)
            if pa.types.is_boolean(data_type) and operator not in ("=", "!="):
                raise QueryError(f"column {column!r} is true or false and knows only = and !=")
            return _KERNELS[operator](table[column], _scalar(column, data_type, value))
    raise AssertionError(f"unhandled condition {condition!r}")


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column if pa.types.is_string(column.type) else column.cast(pa.utf8())


def _scalar(column: str, data_type: pa.DataType, value: where.Value) -> pa.Scalar:
    """The literal in the column's type, or an error that says what the column holds."""
    word = type_word(data_type)
    if word == "boolean" and isinstance(value, bool):
        return pa.scalar(value, data_type)
    if word in ("long", "double") and isinstance(value, int | float) and not isinstance(value, bool):
        if word == "long" and isinstance(value, int) and -(2**63) <= value < 2**63:
            return pa.scalar(value, data_type)
        return pa.scalar(float(value), pa.float64())
    if word == "timestamp" and isinstance(value, str):
        return pa.scalar(_time(column, value), data_type)
    if word == "string" and isinstance(value, str):
        return pa.scalar(value, data_type)
    expected = {
        "boolean": "true or false",
        "long": "a number",
        "double": "a number",
        "timestamp": "a time in quotes, such as '2026-01-31T12:00:00Z'",
        "string": "a text in quotes",
    }[word]
    raise QueryError(f"column {column!r} is compared with {expected}, not with {value!r}")


def _time(column: str, text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(f"column {column!r}: {text!r} is not an ISO 8601 time") from None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
