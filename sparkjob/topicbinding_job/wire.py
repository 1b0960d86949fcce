"""The rows that leave Spark for the table log: one layout for both speeds of the query.

`transform` produces it, `ingest` (real time) and `query` (micro-batches) hand it over, `log` takes it in.
Each record is one Kafka record: whose side it is, where it stands, and its parsed columns; the columns of
the other side are null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from topicbinding.api import Column, ColumnType, Tables

USERS: Final = 0
ACCOUNTS: Final = 1
SIDES: Final = ("users", "accounts")

# Bits of `flags`.
BAD: Final = 1  # no JSON object, or a field of the wrong type
TOMBSTONE: Final = 2  # no value at all
NEWEST: Final = 4  # an account that Spark's state found to be its key's newest when it came by

RAW_LENGTH: Final = 200
"""Characters of a bad value that are kept to be shown; longer ones would make one bad producer fill the
status."""

META: Final = (
    ("side", "int", pa.int32()),
    ("part", "int", pa.int32()),
    ("off", "bigint", pa.int64()),
    ("ts", "bigint", pa.int64()),
    ("flags", "int", pa.int32()),
    ("raw", "string", pa.utf8()),
)
META_NAMES: Final = tuple(name for name, _, _ in META)

# Times travel as milliseconds, so that no session time zone can move them on the way.
_SPARK: Final = {
    ColumnType.STRING: "string",
    ColumnType.LONG: "bigint",
    ColumnType.DOUBLE: "double",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TIMESTAMP: "bigint",
}
_ARROW: Final = {
    ColumnType.STRING: pa.utf8(),
    ColumnType.LONG: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.int64(),
}


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A declared column under the name it travels by: declared names may clash, these cannot."""

    name: str
    column: Column

    @property
    def spark_type(self) -> str:
        return _SPARK[self.column.type]

    @property
    def arrow_type(self) -> pa.DataType:
        return _ARROW[self.column.type]


def side_columns(tables: Tables, side: int) -> tuple[WireColumn, ...]:
    schema = tables.users if side == USERS else tables.accounts
    prefix = "u" if side == USERS else "a"
    return tuple(WireColumn(f"{prefix}{index}", column) for index, column in enumerate(schema.columns))


def schema(tables: Tables) -> pa.Schema:
    """The layout in Arrow's types."""
    fields = [(name, kind) for name, _, kind in META]
    for side in (USERS, ACCOUNTS):
        fields += [(each.name, each.arrow_type) for each in side_columns(tables, side)]
    return pa.schema(fields)
