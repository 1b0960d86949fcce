"""Wire rows as Spark would make them, from records: lets the table log be tested without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.unit.job.reference import Record, parse
from topicbinding.api import ColumnType, JoinType, Tables
from topicbinding_job import wire


class Marker:
    """The keyed state in plain Python: which account is its key's newest so far."""

    def __init__(self) -> None:
        self._newest: dict[Any, tuple[int, int, int]] = {}

    def mark(self, key: Any, age: tuple[int, int, int]) -> bool:
        if key is None or age <= self._newest.get(key, (-(2**62), 0, 0)):
            return False
        self._newest[key] = age
        return True


def wire_table(records: list[Record], tables: Tables, join: JoinType, marker: Marker) -> pa.Table:
    schema = wire.schema(tables)
    rows: list[dict[str, Any]] = []
    for record in records:
        side = wire.SIDES.index(record.side)
        row: dict[str, Any] = dict.fromkeys(schema.names)
        row |= {
            "side": side,
            "part": record.partition,
            "off": record.offset,
            "ts": record.timestamp,
            "flags": 0,
        }
        if record.value is None:
            row["flags"] = wire.TOMBSTONE
        else:
            declared = tables.users if side == wire.USERS else tables.accounts
            parsed, bad = parse(record.value, declared)
            if bad:
                row["flags"] |= wire.BAD
                row["raw"] = record.value.decode(errors="replace")[: wire.RAW_LENGTH]
            for column in wire.side_columns(tables, side):
                value = parsed[column.column.name]
                if column.column.type is ColumnType.TIMESTAMP and value is not None:
                    value = int(value.timestamp() * 1000)
                row[column.name] = value
            age = (record.timestamp, record.partition, record.offset)
            marks = side == wire.ACCOUNTS and join is not JoinType.INNER
            if marks and marker.mark(parsed[tables.key], age):
                row["flags"] |= wire.NEWEST
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=schema)
