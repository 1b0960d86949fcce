"""The binary frames of every table stream: a JSON header and, after it, rows as an Arrow IPC stream.

    4 bytes   length of the header, big-endian
    n bytes   header, UTF-8 JSON object with at least `type`, padded with spaces so that the rows are aligned
    the rest  Arrow IPC stream, or nothing

The driver encodes, the gateway passes frames on (often under a new header, without touching the rows: `split`
and `join`), the gateway, the Python client and the page decode.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

Header = dict[str, Any]

MAX_HEADER_BYTES: Final = 64 * 1024
"""A header is a few hundred bytes; more than this is a broken or hostile sender."""

_LENGTH: Final = struct.Struct(">I")


class FrameError(ValueError):
    """The bytes are not a frame. The message says what is wrong with them, never what they contain."""


def encode(header: Mapping[str, Any], table: pa.Table | pa.RecordBatch | None = None) -> bytes:
    """One frame. `table` None means a frame without rows (heartbeat, bye, state)."""
    return join(header, b"" if table is None else encode_rows(table))


def decode(data: bytes | bytearray | memoryview) -> tuple[Header, pa.Table | None]:
    """The header and the rows of a frame. The rows refer to `data` and are not copied."""
    header, rows = split(data)
    return header, decode_rows(rows) if len(rows) else None


def join(header: Mapping[str, Any], rows: bytes | memoryview | pa.Buffer) -> bytes:
    """Put a header before rows that are already encoded."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > MAX_HEADER_BYTES:
        raise FrameError(f"the header has {len(text)} bytes, at most {MAX_HEADER_BYTES} are allowed")
    # Spaces after the JSON let the rows begin at a multiple of eight, where Arrow reads its numbers in place.
    text += b" " * (-(_LENGTH.size + len(text)) % 8)
    return b"".join((_LENGTH.pack(len(text)), text, memoryview(rows)))


def split(data: bytes | bytearray | memoryview) -> tuple[Header, memoryview]:
    """The header, and the encoded rows as a view on `data` (empty when the frame carries none)."""
    view = memoryview(data)
    if len(view) < _LENGTH.size:
        raise FrameError(f"a frame of {len(view)} bytes has no room for the header's length")
    (length,) = _LENGTH.unpack_from(view)
    if length > MAX_HEADER_BYTES:
        raise FrameError(f"the header claims {length} bytes, at most {MAX_HEADER_BYTES} are allowed")
    end = _LENGTH.size + length
    if end > len(view):
        raise FrameError(f"the header claims {length} bytes, only {len(view) - _LENGTH.size} follow")
    try:
        header = json.loads(bytes(view[_LENGTH.size : end]))
    except (ValueError, RecursionError):
        raise FrameError("the header is not JSON") from None
    if not isinstance(header, dict) or not isinstance(header.get("type"), str):
        raise FrameError("the header is not a JSON object with a type")
    return header, view[end:]


def encode_rows(table: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """The rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


def decode_rows(rows: bytes | memoryview | pa.Buffer) -> pa.Table:
    """The rows of an Arrow IPC stream."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(rows)) as reader:
            table = reader.read_all()
        # Arrow trusts offsets in the stream; a sender we do not trust must not make us read outside of it.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FrameError(f"the rows are not an Arrow stream ({type(error).__name__})") from None
    return table
