"""Tables as bytes that other programs read: JSON, NDJSON, CSV and Arrow, in pieces so that a large answer can
stream.

In all of them null is null: JSON `null`, an empty CSV field without quotes (an empty text is `""`), an Arrow
null. Times are ISO 8601 in UTC with milliseconds. Numbers that JSON cannot say (NaN, infinities) become null
there. Called by the driver's and the gateway's table routes, and by the gateway for SSE.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from topicbinding.tables.schema import describe

CHUNK_ROWS: Final = 10_000
"""Rows turned into text at once: large enough to be quick, small enough that one answer does not hold
everything twice."""


class Format(StrEnum):
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"


CONTENT_TYPES: Final = {
    Format.JSON: "application/json",
    Format.NDJSON: "application/x-ndjson",
    Format.CSV: "text/csv",
    Format.ARROW: "application/vnd.apache.arrow.stream",
}


class FormatError(ValueError):
    """Nobody can answer in the format that was asked for (HTTP 406 or 400)."""


def choose(parameter: str | None, accept: str | None) -> Format:
    """The format of an answer: `?format=` first, then the Accept header, then JSON."""
    if parameter:
        try:
            return Format(parameter.strip().lower())
        except ValueError:
            raise FormatError(
                f"unknown format {parameter!r}: one of {', '.join(Format)} is expected"
            ) from None
    for content_type in _accepted(accept or ""):
        if content_type in ("*/*", "application/*", "text/*", "text/html", ""):
            return Format.JSON
        for known, name in CONTENT_TYPES.items():
            if content_type == name:
                return known
    if accept and accept.strip():
        raise FormatError(f"none of the accepted types can be given: {', '.join(CONTENT_TYPES.values())} can")
    return Format.JSON


def _accepted(header: str) -> list[str]:
    """The media types of an Accept header, most wanted first."""
    wanted: list[tuple[float, int, str]] = []
    for index, item in enumerate(header.split(",")):
        content_type, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if content_type and quality > 0:
            wanted.append((-quality, index, content_type))
    return [content_type for _, _, content_type in sorted(wanted)]


def rows_to_json(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as objects that `json.dumps` can say: ISO times, no NaN."""
    columns: dict[str, list[Any]] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            columns[field.name] = _iso(column).to_pylist()
        elif pa.types.is_floating(field.type):
            columns[field.name] = [
                value if value is None or math.isfinite(value) else None for value in column.to_pylist()
            ]
        else:
            columns[field.name] = column.to_pylist()
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def write(table: pa.Table, form: Format, meta: Mapping[str, Any] | None = None) -> Iterator[bytes]:
    """The table in `form`, piece by piece. `meta` (generation, seq, ...) stands before the rows in JSON only;
    the other formats have no place for it, so servers repeat it in response headers."""
    match form:
        case Format.JSON:
            return _write_json(table, meta or {})
        case Format.NDJSON:
            return _write_ndjson(table)
        case Format.CSV:
            return _write_csv(table)
        case Format.ARROW:
            return _write_arrow(table)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, CHUNK_ROWS):
        yield table.slice(start, CHUNK_ROWS)


def _write_json(table: pa.Table, meta: Mapping[str, Any]) -> Iterator[bytes]:
    head = _dumps({**meta, "columns": describe(table.schema)})
    yield f'{head[:-1]},"rows":['.encode()
    separator = ""
    for chunk in _chunks(table):
        yield (separator + _dumps(rows_to_json(chunk))[1:-1]).encode()
        separator = ","
    yield b"]}\n"


def _write_ndjson(table: pa.Table) -> Iterator[bytes]:
    for chunk in _chunks(table):
        yield "".join(_dumps(row) + "\n" for row in rows_to_json(chunk)).encode()


def _write_csv(table: pa.Table) -> Iterator[bytes]:
    options = pa.csv.WriteOptions(include_header=True, quoting_style="needed")
    if table.num_rows == 0:
        yield _csv(table, options)
    for chunk in _chunks(table):
        yield _csv(chunk, options)
        options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")


def _csv(table: pa.Table, options: pa.csv.WriteOptions) -> bytes:
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, _iso(table.column(index)))
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink, options)
    return bytes(sink.getvalue())


def _write_arrow(table: pa.Table) -> Iterator[bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=CHUNK_ROWS)
    yield bytes(sink.getvalue())


def _iso(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as text. strftime prints the seconds with the column's own precision, which `ms` makes three
    digits."""
    return pc.strftime(column.cast(pa.timestamp("ms", tz="UTC"), safe=False), format="%Y-%m-%dT%H:%M:%SZ")
