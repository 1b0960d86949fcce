"""One table's stream to one reader: a snapshot, then what changed, as fast as this reader takes it.

`serve` runs one for every WebSocket. There is no queue: while a reader is busy its changes add up in the
log, and the next frame holds them all at their newest; a reader that stays away longer than the log
remembers gets a snapshot.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any, Final

import pyarrow as pa
from aiohttp import web

from topicbinding.tables import frames
from topicbinding_job.log import Changes, LogTable
from topicbinding_job.metrics import Metrics
from topicbinding_job.state import DriverState

PART_ROWS: Final = 64_000
"""Most rows of one frame: what a browser takes in without a hitch."""
HEARTBEAT_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.002
"""Changes that come within this time of each other share a frame."""
INLINE_ROWS: Final = 2_000
"""Larger frames are made in another thread, so that nobody else's stream waits for them."""
SHARED_FRAMES: Final = 16


class Changed:
    """Wakes every stream when the log has changed; made for the event loop, rung from the writer's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._rung = False

    def ring(self) -> None:
        # Once per turn of the loop is enough, however often the writer rings.
        if not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._rung = False
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seconds: float) -> None:
        """Until the next change, or so many seconds."""
        event = self._event
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return


class Frames:
    """Makes frames; streams that stand at the same place share them."""

    def __init__(self, state: DriverState, metrics: Metrics) -> None:
        self._state = state
        self._metrics = metrics
        self._made: OrderedDict[tuple[str, str, int, int], pa.Buffer] = OrderedDict()

    def header(self, kind: str, table: LogTable | None, seq: int, rows: int) -> dict[str, Any]:
        log = self._state.log
        return {
            "type": kind,
            "table": table.name if table else None,
            "generation": self._state.number,
            "phase": self._state.phase.value,
            "epoch": log.epoch if log else "",
            "seq": seq,
            "rows": rows,
            "ts": int(time.time() * 1000),
            "newestEventTime": log.newest_event if log else 0,
        }

    async def part(self, table: LogTable, start: int, stop: int) -> pa.Buffer:
        return await _made(lambda: frames.encode_rows(table.read(start, stop)), stop - start)

    async def delta(self, table: LogTable, epoch: str, since: int, changes: Changes) -> list[pa.Buffer]:
        """The rows of the changes, in pieces."""
        place = (epoch, table.name, since, changes.seq)
        if (known := self._made.get(place)) is not None:
            return [known]
        pieces = []
        for start in range(0, len(changes.updated), PART_ROWS):
            rows = changes.updated[start : start + PART_ROWS]
            pieces.append(await _made(lambda rows=rows: frames.encode_rows(table.take(rows)), len(rows)))
        for start in range(changes.start, changes.stop, PART_ROWS):
            pieces.append(await self.part(table, start, min(changes.stop, start + PART_ROWS)))
        if len(pieces) == 1 and pieces[0].size < 1_000_000:
            self._made[place] = pieces[0]
            if len(self._made) > SHARED_FRAMES:
                self._made.popitem(last=False)
        return pieces

    def sent(self) -> None:
        """A live frame has left: how old is what it carries?"""
        log = self._state.log
        if log is not None and log.newest_event:
            self._metrics.freshness.observe(max(0.0, time.time() - log.newest_event / 1000))


async def follow(
    socket: web.WebSocketResponse,
    table: LogTable,
    resume: tuple[str, int] | None,
    epoch: str,
    made: Frames,
    changed: Changed,
    metrics: Metrics,
) -> None:
    """Serve one reader until it goes away or the socket is closed."""
    seq = resume[1] if resume and resume[0] == epoch and table.changes(resume[1]) is not None else None
    if seq is None:
        seq = await _send_snapshot(socket, table, made)
    last = time.monotonic()
    while not socket.closed:
        if table.seq == seq:
            await changed.wait(max(0.0, last + HEARTBEAT_SECONDS - time.monotonic()))
            if table.seq == seq:
                if time.monotonic() - last >= HEARTBEAT_SECONDS:
                    await socket.send_bytes(frames.encode(made.header("heartbeat", table, seq, table.rows)))
                    last = time.monotonic()
                continue
        started = time.monotonic()
        changes = table.changes(seq)
        # More changed than half of a large table: the table itself is the shorter message.
        if changes is None or (changes.rows > PART_ROWS and changes.rows > table.rows // 2 and changes.start):
            metrics.dropped.labels(table.name).inc()
            seq = await _send_snapshot(socket, table, made)
        else:
            pieces = await made.delta(table, epoch, seq, changes)
            for number, piece in enumerate(pieces, start=1):
                # Only the last piece completes the step: a reader that resumes in between gets all of it
                # again.
                done = changes.seq if number == len(pieces) else seq
                header = made.header("delta", table, done, changes.stop)
                await socket.send_bytes(frames.join(header, piece))
            seq = changes.seq
            made.sent()
        last = time.monotonic()
        # A costly frame (a key with a million rows) may take half of the time, never all of it.
        await asyncio.sleep(max(GATHER_SECONDS, last - started))


async def _send_snapshot(socket: web.WebSocketResponse, table: LogTable, made: Frames) -> int:
    seq, rows = table.at()
    parts = [(start, min(rows, start + PART_ROWS)) for start in range(0, max(rows, 1), PART_ROWS)]
    for number, (start, stop) in enumerate(parts, start=1):
        header = made.header("snapshot", table, seq, rows) | {"part": number, "parts": len(parts)}
        await socket.send_bytes(frames.join(header, await made.part(table, start, stop)))
    return seq


async def _made(make: Any, rows: int) -> pa.Buffer:
    return make() if rows <= INLINE_ROWS else await asyncio.to_thread(make)
