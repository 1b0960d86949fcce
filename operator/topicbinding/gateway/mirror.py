"""The rows of one table of one generation as the gateway has last heard of them, ready to be sent to any
viewer.

A mirror holds a base (the last snapshot, in parts), a tail (deltas since) and a ring (recent deltas for
viewers that are a little behind). Frames are encoded once, whoever many viewers take them. Fed by `upstream`
and `builtin`, read by `viewer` and by the REST routes. No sockets and no tasks here; the clock is the
caller's.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from topicbinding.tables import formats, frames
from topicbinding.tables.rows import last_of_each, merge

PART_ROWS: Final = 64_000
"""Rows in one part of a snapshot: one frame stays a few megabytes, so that heartbeats pass between the
parts."""
TAIL_FRAMES: Final = 400
"""Deltas that may pile up on the base before both become one: bounds the work of every snapshot."""


class Frame:
    """One message to viewers, encoded at most once in each form."""

    def __init__(self, header: dict[str, Any], rows: pa.Table | None = None) -> None:
        self.header = header
        self.rows = rows

    @cached_property
    def binary(self) -> bytes:
        return frames.encode(self.header, self.rows)

    @cached_property
    def wire(self) -> bytes:
        """The binary form as a whole WebSocket message (RFC 6455, unmasked as a server's are)."""
        length = len(self.binary)
        if length < 126:
            head = struct.pack("!BB", 0x82, length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x82, 126, length)
        else:
            head = struct.pack("!BBQ", 0x82, 127, length)
        return head + self.binary

    @cached_property
    def json(self) -> str:
        """The header with the rows in it, as SSE and JSON viewers read it."""
        body = self.header if self.rows is None else {**self.header, "data": formats.rows_to_json(self.rows)}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @property
    def heavy(self) -> bool:
        """Whether turning it into JSON would hold up everybody else."""
        return self.rows is not None and self.rows.num_rows > 2000


class Delta(Frame):
    """A frame that takes a viewer from `after` (or anything later) to `seq`."""

    def __init__(self, header: dict[str, Any], rows: pa.Table, after: int) -> None:
        super().__init__(header, rows)
        self.after = after
        self.seq: int = header["seq"]


class Mirror:
    def __init__(self, generation: int, *, ring_frames: int, ring_bytes: int) -> None:
        self.generation = generation
        self.epoch = ""
        self.seq = 0
        self.version = 0
        """Counts full snapshots: a viewer of another version needs one too."""
        self.schema: pa.Schema | None = None
        self.sent_at: int | None = None
        self.newest_event_time: int | None = None
        self._ring_frames = ring_frames
        self._ring_bytes = ring_bytes
        self._parts: list[pa.Table] = []
        self._base_rows = 0
        self._base_seq = 0
        self._tail: list[Delta] = []
        self._ring: deque[Delta] = deque()
        self._ring_size = 0
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._frames: dict[tuple[str, int | None], list[Frame]] = {}
        self._asked: tuple[int, list[Delta]] | None = None
        self._merged: tuple[int, int, pa.Table] | None = None
        self._compacting = False

    @property
    def complete(self) -> bool:
        """Whether a whole snapshot has arrived: until then there is nothing to show."""
        return self.version > 0

    @property
    def rows(self) -> int:
        return self._rows

    # -- what comes in

    def reset(self, header: dict[str, Any], parts: list[pa.Table]) -> None:
        """A full snapshot: everything before it is forgotten."""
        self.epoch = str(header.get("epoch", ""))
        self.seq = self._base_seq = int(header["seq"])
        self.version += 1
        self.schema = parts[0].schema
        self._set_base([part for part in parts if part.num_rows] or parts[:1])
        self._rows = int(header.get("rows", self._base_rows))
        self._tail.clear()
        self._ring.clear()
        self._ring_size = 0
        self._waiting.clear()
        self._frames.clear()
        self._asked = None
        self._merged = None
        self._note(header)

    def add(self, header: dict[str, Any], rows: pa.Table) -> None:
        """Rows that change the table. They are shown with the next `flush`."""
        self._waiting.append(rows)
        self.seq = int(header["seq"])
        self._rows = int(header.get("rows", self._rows))
        self._note(header)

    def note(self, header: dict[str, Any]) -> None:
        """A heartbeat: no rows, but the driver's clock and the newest event's time."""
        self._rows = int(header.get("rows", self._rows))
        self._note(header)

    def _note(self, header: dict[str, Any]) -> None:
        self.sent_at = header.get("ts", self.sent_at)
        self.newest_event_time = header.get("newestEventTime", self.newest_event_time)

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def flush(self) -> None:
        """Make one delta of everything that waits."""
        if not self._waiting:
            return
        after = self._ring[-1].seq if self._ring else self._shown_seq()
        rows = self._waiting[0] if len(self._waiting) == 1 else _join(self._waiting)
        self._waiting.clear()
        delta = Delta(self._header("delta"), rows, after)
        self._tail.append(delta)
        self._ring.append(delta)
        self._ring_size += rows.nbytes
        while len(self._ring) > self._ring_frames or (
            self._ring_size > self._ring_bytes and len(self._ring) > 1
        ):
            self._ring_size -= self._ring.popleft().rows.nbytes  # type: ignore[union-attr]
        self._frames.clear()
        self._asked = None

    def _shown_seq(self) -> int:
        return self._tail[-1].seq if self._tail else self._base_seq

    # -- what goes out

    @property
    def shown(self) -> int:
        """The seq that a viewer has who took everything flushed so far."""
        return self._shown_seq()

    def since(self, seq: int) -> list[Delta] | None:
        """What a viewer at `seq` is missing; None when only a snapshot can help."""
        if seq == self._shown_seq():
            return []
        if self._asked is not None and self._asked[0] == seq:
            return self._asked[1]  # nearly all viewers are at the same place
        if seq > self._shown_seq() or not self._ring or self._ring[0].after > seq:
            return None
        missing: list[Delta] = []
        for delta in reversed(self._ring):
            if delta.seq <= seq:
                break
            missing.append(delta)
        missing.reverse()
        self._asked = (seq, missing)
        return missing

    def snapshot(self, kind: str, come_from: int | None = None) -> list[Frame]:
        """All rows, as frames of type `snapshot`, or `swap` from another generation. They apply with the last
        part; a later part may repeat a row of an earlier one, and wins."""
        cached = self._frames.get((kind, come_from))
        if cached is not None:
            return cached
        tables = list(self._parts)
        if self._tail:
            tables.append(_join([delta.rows for delta in self._tail]))
        made: list[Frame] = []
        for part, rows in enumerate(tables, start=1):
            header = self._header(kind, seq=self._shown_seq(), part=part, parts=len(tables))
            if kind == "swap":
                header |= {"from": come_from, "to": self.generation}
            made.append(Frame(header, rows))
        self._frames[kind, come_from] = made
        return made

    def forget_frames(self) -> None:
        """Give back the memory of encoded snapshots; called now and then, they are made again when needed."""
        self._frames.clear()

    def _header(self, kind: str, **more: Any) -> dict[str, Any]:
        header = {
            "type": kind,
            "generation": self.generation,
            "epoch": self.epoch,
            "seq": self.seq,
            "rows": self._rows,
            "ts": self.sent_at,
            "newestEventTime": self.newest_event_time,
        }
        return header | more

    async def table(self) -> pa.Table:
        """All rows as one table, each once, in order of arrival."""
        key = (self.version, self._shown_seq())
        if self._merged is None or self._merged[:2] != key:
            parts, tail = list(self._parts), [delta.rows for delta in self._tail]
            merged = await asyncio.to_thread(lambda: merge(_once(parts), tail))
            self._merged = (*key, merged)
            return merged
        return self._merged[2]

    # -- housekeeping

    @property
    def wants_compaction(self) -> bool:
        return not self._compacting and len(self._tail) >= TAIL_FRAMES

    async def compact(self) -> None:
        """Make base and tail one again, in a thread: a large table must not hold up the viewers."""
        self._compacting = True
        try:
            version, folded = self.version, len(self._tail)
            seq = self._tail[folded - 1].seq
            parts, tail = list(self._parts), [delta.rows for delta in self._tail]
            merged = await asyncio.to_thread(lambda: merge(_once(parts), tail).combine_chunks())
            if version == self.version:
                self._set_base(_slices(merged))
                self._base_seq = seq
                del self._tail[:folded]
                self._frames.clear()
                self._merged = None
        finally:
            self._compacting = False

    def _set_base(self, parts: list[pa.Table]) -> None:
        self._parts = parts
        self._base_rows = sum(part.num_rows for part in parts)


def _join(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _once(parts: list[pa.Table]) -> pa.Table:
    """The base as one table; a driver's parts may repeat rows just as ours may."""
    return last_of_each(pa.concat_tables(parts))


def _slices(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, PART_ROWS) for start in range(0, max(table.num_rows, 1), PART_ROWS)]
