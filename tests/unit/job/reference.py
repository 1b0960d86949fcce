"""The meaning of the three tables in plain Python: slow, obvious, and independent of the job's code.

Every test of the joins compares with this. Input is a list of Kafka records in the order they arrived.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from topicbinding.api import ColumnType, JoinType, Tables, TableSchema

Row = dict[str, Any]
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?")


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record; `side` is "users" or "accounts"."""

    side: str
    partition: int
    offset: int
    timestamp: int
    value: bytes | None


@dataclass
class Expected:
    """What the tables must show."""

    users: list[Row] = field(default_factory=list)
    accounts: list[Row] = field(default_factory=list)
    final: list[Row] = field(default_factory=list)
    bad: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    null_keys: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    tombstones: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def tables_of(records: list[Record], tables: Tables, join: JoinType) -> Expected:
    expected = Expected()
    users: list[Row] = []
    accounts: list[tuple[tuple[int, int, int], Row]] = []
    for record in records:
        if record.value is None:
            expected.tombstones[record.side] += 1
            continue
        schema = tables.users if record.side == "users" else tables.accounts
        row, bad = parse(record.value, schema)
        expected.bad[record.side] += bad
        expected.null_keys[record.side] += row[tables.key] is None
        if record.side == "users":
            users.append(row)
        else:
            accounts.append(((record.timestamp, record.partition, record.offset), row))
    expected.users = users
    expected.accounts = [row for _, row in accounts]
    others = [name for name in tables.accounts.names if name != tables.key]
    by_key: dict[Any, list[tuple[tuple[int, int, int], Row]]] = defaultdict(list)
    for age, row in accounts:
        if row[tables.key] is not None:
            by_key[row[tables.key]].append((age, row))
    for user in users:
        matches = by_key.get(user[tables.key], []) if user[tables.key] is not None else []
        if join is JoinType.INNER:
            chosen: list[Row] = [row for _, row in matches]
        else:
            chosen = [max(matches, key=lambda each: each[0])[1]] if matches else [dict.fromkeys(others)]
        for account in chosen:
            expected.final.append({**user, **{name: account[name] for name in others}})
    return expected


def parse(value: bytes, schema: TableSchema) -> tuple[Row, bool]:
    """The row of a value, and whether anything was wrong with it."""
    nothing: Row = dict.fromkeys(schema.names)
    text = value.decode("utf-8", errors="replace")
    try:
        parsed = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return nothing, True
    if not isinstance(parsed, dict):
        return nothing, True
    row: Row = {}
    bad = False
    for column in schema.columns:
        given = parsed.get(column.name)
        row[column.name] = _typed(given, column.type)
        bad = bad or (given is not None and row[column.name] is None)
    return row, bad


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _typed(value: Any, kind: ColumnType) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case ColumnType.STRING:
            return value if isinstance(value, str) else None
        case ColumnType.LONG:
            fits = isinstance(value, int) and is_number and -(2**63) <= value < 2**63
            return value if fits else None
        case ColumnType.DOUBLE:
            return float(value) if is_number and math.isfinite(value) else None
        case ColumnType.BOOLEAN:
            return value if isinstance(value, bool) else None
        case ColumnType.TIMESTAMP:
            return _time(value, is_number)


def _time(value: Any, is_number: bool) -> datetime | None:
    if is_number and isinstance(value, int):
        if not -62_135_596_800_000 <= value <= 253_402_300_799_999:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
