"""The frame codec: what goes in comes out, and whatever is not a frame is refused by name."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicbinding.tables import frames
from topicbinding.tables.schema import arrow_schema

SCHEMA = arrow_schema(
    [("userId", "string"), ("age", "long"), ("balance", "double"), ("ok", "boolean"), ("at", "timestamp")]
)
TABLE = pa.table(
    {
        "_row": [1, 2],
        "userId": ["u1", None],
        "age": [None, 2**62],
        "balance": [0.5, None],
        "ok": [True, None],
        "at": [datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), None],
    },
    schema=SCHEMA,
)


def test_a_frame_with_rows_comes_back_whole() -> None:
    header, table = frames.decode(frames.encode({"type": "delta", "seq": 7}, TABLE))
    assert header == {"type": "delta", "seq": 7}
    assert table is not None
    assert table.equals(TABLE)
    assert table.schema == SCHEMA


def test_a_frame_without_rows_has_none() -> None:
    assert frames.decode(frames.encode({"type": "heartbeat"})) == ({"type": "heartbeat"}, None)


def test_an_empty_table_keeps_its_schema() -> None:
    _, table = frames.decode(frames.encode({"type": "snapshot"}, SCHEMA.empty_table()))
    assert table is not None
    assert table.num_rows == 0
    assert table.schema == SCHEMA


def test_the_layout_is_length_header_rows() -> None:
    data = frames.encode({"type": "delta"}, TABLE)
    (length,) = struct.unpack(">I", data[:4])
    assert json.loads(data[4 : 4 + length]) == {"type": "delta"}
    assert pa.ipc.open_stream(data[4 + length :]).read_all().equals(TABLE)


@pytest.mark.parametrize("seq", [1, 12, 123, 1234, 12345, 123456, 1234567, 12345678])
def test_rows_begin_where_numbers_can_be_read_in_place(seq: int) -> None:
    data = frames.encode({"type": "delta", "seq": seq}, TABLE)
    (length,) = struct.unpack(">I", data[:4])
    assert (4 + length) % 8 == 0


def test_rows_travel_under_a_new_header_untouched() -> None:
    _, rows = frames.split(frames.encode({"type": "snapshot", "part": 1}, TABLE))
    header, table = frames.decode(frames.join({"type": "swap", "from": 1, "to": 2}, rows))
    assert header["type"] == "swap"
    assert table is not None
    assert table.equals(TABLE)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "no room"),
        (b"\x00\x00", "no room"),
        (struct.pack(">I", 10) + b"{}", "only 2 follow"),
        (struct.pack(">I", 2**31), "at most"),
        (struct.pack(">I", 2) + b"{]", "not JSON"),
        (struct.pack(">I", 2) + b"\xff\xfe", "not JSON"),
        (struct.pack(">I", 2) + b"[]", "not a JSON object"),
        (struct.pack(">I", 2) + b"{}", "not a JSON object with a type"),
        (struct.pack(">I", 12) + b'{"type":"x"}' + b"rows?", "not an Arrow stream"),
    ],
)
def test_what_is_not_a_frame_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(frames.FrameError, match=complaint):
        frames.decode(data)


def test_a_truncated_frame_is_refused() -> None:
    data = frames.encode({"type": "delta"}, TABLE)
    with pytest.raises(frames.FrameError):
        frames.decode(data[:-200])


def test_a_header_that_is_too_long_is_never_sent() -> None:
    with pytest.raises(frames.FrameError, match="at most"):
        frames.encode({"type": "bye", "reason": "x" * frames.MAX_HEADER_BYTES})


@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    try:
        frames.decode(data)
    except frames.FrameError:
        return


@given(st.data())
def test_a_damaged_frame_is_refused_or_decoded_but_never_crashes(data: st.DataObject) -> None:
    frame = bytearray(frames.encode({"type": "delta", "seq": 1}, TABLE))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        frames.decode(bytes(frame))
    except frames.FrameError:
        return
