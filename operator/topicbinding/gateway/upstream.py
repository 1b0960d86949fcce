"""One connection to one driver for one table, kept up for as long as somebody wants it. Feeds a mirror.

The connection resumes where it was (epoch and seq) and starts anew with a snapshot when the driver cannot.
When a driver was restarted (a new epoch) and is still reading its backlog, its rows are held back: the old
ones stay, shown as stale, until it has caught up. Called by `channel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pyarrow as pa

from topicbinding.gateway.mirror import Mirror
from topicbinding.tables import frames

log = logging.getLogger(__name__)

MAX_FRAME: Final = 256 << 20
"""A part of a snapshot is a few megabytes; a driver that sends more than this is not one of ours."""
SILENCE_SECONDS: Final = 5.0
"""Drivers send something every second; a connection without a frame for this long is given up and opened
anew."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
CAUGHT_UP: Final = "CaughtUp"


class TokenFile:
    """The gateway's token for drivers and bridges. The kubelet replaces the file; it is read anew when it
    changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: float | None = None
        self._token = ""

    def headers(self) -> dict[str, str]:
        try:
            changed = self._path.stat().st_mtime
            if changed != self._seen:
                self._token, self._seen = self._path.read_text().strip(), changed
        except OSError:
            # Without a token the driver refuses us, and its refusal is what people are shown.
            self._token = ""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


class Upstream:
    """`changed` is called whenever the mirror, the connection or the trouble changed."""

    def __init__(
        self,
        mirror: Mirror,
        url: str,
        http: aiohttp.ClientSession,
        token: TokenFile,
        changed: Callable[[], None],
        *,
        gather: Callable[[], float],
    ) -> None:
        self.mirror = mirror
        self.trouble = "connecting"
        """Why nothing is heard; empty while the connection is up."""
        self.heard: float | None = None
        """When the last frame about the shown rows arrived (monotonic)."""
        self.unavailable = False
        """The driver says that it has no such table or that it does not take our token: trying again is
        slow."""
        self._url = url
        self._http = http
        self._token = token
        self._changed = changed
        self._gather = gather
        self._parts: list[pa.Table] = []
        self._held: tuple[dict[str, Any], list[pa.Table]] | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._flushed = 0.0
        self._compaction: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run(), name=f"upstream {url}")

    async def close(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        for task in (self._task, self._compaction):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            before = self.heard
            try:
                await self._connect()
                self._say("the driver closed the connection")
            except aiohttp.WSServerHandshakeError as error:
                self._say(_refusal(error.status))
            except (aiohttp.ClientError, OSError) as error:
                self._say(f"the driver cannot be reached ({type(error).__name__})")
            except TimeoutError:
                self._say("the driver is silent")
            except (frames.FrameError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
                log.warning("driver at %s sent something that is not understood: %s", self._url, error)
                self._say("the driver sent something that is not understood")
                self.mirror.epoch = ""  # so that the next connection begins with a snapshot
            pause = FIRST_PAUSE if self.heard != before else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.7, 1.0))

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._changed()

    async def _connect(self) -> None:
        parameters = {"epoch": self.mirror.epoch, "seq": str(self.mirror.seq)} if self.mirror.epoch else {}
        self._parts.clear()
        self._held = None
        async with self._http.ws_connect(
            self._url,
            params=parameters,
            headers=self._token.headers(),
            max_msg_size=MAX_FRAME,
            compress=0,
            timeout=aiohttp.ClientWSTimeout(ws_receive=SILENCE_SECONDS, ws_close=2),
        ) as socket:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    raise frames.FrameError("a message that is not binary")
                self._take(message.data)

    def _take(self, data: bytes) -> None:
        header, rows = frames.decode(data)
        if int(header["generation"]) != self.mirror.generation:
            raise frames.FrameError(f"generation {header['generation']} answers for {self.mirror.generation}")
        match header["type"]:
            case "snapshot":
                self._take_snapshot(header, rows)
            case "delta":
                self._take_delta(header, rows)
            case "heartbeat":
                if self._held is not None:
                    self._release(header)
                    return
                self.mirror.note(header)
                self._hear()
            case "bye":
                self._say(str(header.get("reason") or "the driver says good-bye"))
            case other:
                # A newer driver may say more than we know; what we know still holds.
                log.debug("frame of unknown type %r ignored", other)

    def _hear(self) -> None:
        self.heard = time.monotonic()
        if self.trouble:
            self.trouble = ""
            self._changed()

    def _take_snapshot(self, header: dict[str, Any], rows: pa.Table | None) -> None:
        if rows is None:
            raise frames.FrameError("a snapshot without rows or schema")
        part, parts = int(header.get("part", 1)), int(header.get("parts", 1))
        if part != len(self._parts) + 1:
            raise frames.FrameError(f"part {part} of a snapshot came after {len(self._parts)} parts")
        self._parts.append(rows)
        if part < parts:
            return
        taken, self._parts = self._parts, []
        restarted = self.mirror.complete and header.get("epoch") != self.mirror.epoch
        if restarted and header.get("phase", CAUGHT_UP) != CAUGHT_UP:
            self._held = (header, taken)
            self._say("the driver was restarted and reads its topics again")
            return
        self._show(header, taken)

    def _show(self, header: dict[str, Any], parts: list[pa.Table]) -> None:
        self._held = None
        self.mirror.reset(header, parts)
        self._hear()
        self._changed()

    def _take_delta(self, header: dict[str, Any], rows: pa.Table | None) -> None:
        if rows is None:
            raise frames.FrameError("a delta without rows")
        if self._held is not None:
            self._held[1].append(rows)
            self._release(header)
            return
        if not self.mirror.complete or header.get("epoch") != self.mirror.epoch:
            raise frames.FrameError("a delta before its snapshot")
        if not rows.schema.equals(self.mirror.schema):
            raise frames.FrameError("a delta with other columns than its snapshot")
        self.mirror.add(header, rows)
        self._hear()
        self._flush_soon()

    def _release(self, header: dict[str, Any]) -> None:
        """Show the rows that were held back once the restarted driver has caught up."""
        if self._held is not None and header.get("phase", CAUGHT_UP) == CAUGHT_UP:
            self._show(header, self._held[1])

    def _flush_soon(self) -> None:
        """At once after a quiet moment; otherwise together with what else comes within the gathering time."""
        if self._flush is not None:
            return
        due = self._flushed + self._gather() - time.monotonic()
        if due <= 0:
            self._do_flush()
        else:
            self._flush = asyncio.get_running_loop().call_later(due, self._do_flush)

    def _do_flush(self) -> None:
        self._flush = None
        self._flushed = time.monotonic()
        self.mirror.flush()
        self._changed()
        if self.mirror.wants_compaction:
            self._compaction = asyncio.create_task(self.mirror.compact())


def _refusal(status: int) -> str:
    if status in (401, 403):
        return "the driver does not accept the gateway's token"
    if status == 404:
        return "the driver does not know this table"
    return f"the driver answered {status}"
