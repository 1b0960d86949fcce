"""The columns of a table in the words of the binding's spec, and the same in Arrow's types.

Called by the driver (to build batches), by the gateway (to describe tables) and by the query and format
modules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypedDict

import pyarrow as pa

ROW_ID: Final = "_row"
"""Identity of a row inside one (generation, epoch, table). Ascending order is arrival order."""


class ColumnInfo(TypedDict):
    """One column as every API answer shows it."""

    name: str
    type: str


_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.utf8(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
}


class UnknownTypeError(ValueError):
    """A column type that the tables do not know."""


def arrow_type(word: str) -> pa.DataType:
    """Arrow's type for a word of the spec (string, long, double, boolean, timestamp)."""
    try:
        return _ARROW_TYPES[word]
    except KeyError:
        raise UnknownTypeError(
            f"unknown column type {word!r}: one of {', '.join(_ARROW_TYPES)} is expected"
        ) from None


def type_word(data_type: pa.DataType) -> str:
    """The spec's word for an Arrow type; the inverse of `arrow_type`, tolerant of Arrow's narrower
    siblings."""
    if pa.types.is_boolean(data_type):
        return "boolean"
    if pa.types.is_integer(data_type):
        return "long"
    if pa.types.is_floating(data_type):
        return "double"
    if pa.types.is_timestamp(data_type):
        return "timestamp"
    return "string"


def arrow_schema(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """The Arrow schema of a table with these (name, type word) columns: `_row` first, then the declared
    ones."""
    return pa.schema([(ROW_ID, pa.int64())] + [(name, arrow_type(word)) for name, word in columns])


def visible_names(schema: pa.Schema) -> list[str]:
    """The columns people asked for: everything but the row's identity."""
    return [name for name in schema.names if name != ROW_ID]


def describe(schema: pa.Schema) -> list[ColumnInfo]:
    """The columns as API answers list them, in the schema's order."""
    return [
        ColumnInfo(name=field.name, type=type_word(field.type)) for field in schema if field.name != ROW_ID
    ]
