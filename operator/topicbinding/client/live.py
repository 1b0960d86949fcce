"""One live table: keeps its stream up, applies frames to a replica and calls back. Made by
`Gateway.get_table`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Final, TypeVar

import aiohttp
import pyarrow as pa

from topicbinding.client.replica import Event, Replica, State, Swap, Update
from topicbinding.tables import frames

E = TypeVar("E", Update, Swap, State)

log = logging.getLogger(__name__)

SILENCE_SECONDS: Final = 7.0
"""The gateway sends a heartbeat every two seconds; after three missed ones the stream is opened anew."""
MAX_FRAME: Final = 256 << 20


class LiveTable:
    """Callbacks run in the event loop, in the order of the frames; what they raise is logged and stops
    nothing."""

    def __init__(self, http: aiohttp.ClientSession, url: str, parameters: dict[str, str]) -> None:
        self._http = http
        self._url = url
        self._parameters = parameters
        self._replica = Replica()
        self._on_update: list[Callable[[Update], object]] = []
        self._on_swap: list[Callable[[Swap], object]] = []
        self._on_state: list[Callable[[State], object]] = []
        self._changed = asyncio.Event()
        self.connections = 0
        self.snapshots = 0
        self._task = asyncio.create_task(self._run())

    @property
    def rows(self) -> pa.Table:
        """All rows now, in order of arrival."""
        return self._replica.rows

    @property
    def table(self) -> pa.Table:
        """All rows with their `_row`."""
        return self._replica.table

    @property
    def complete(self) -> bool:
        return self._replica.complete

    @property
    def generation(self) -> int | None:
        return self._replica.generation

    @property
    def state(self) -> State:
        return self._replica.state

    def on_update(self, callback: Callable[[Update], object]) -> None:
        self._on_update.append(callback)

    def on_swap(self, callback: Callable[[Swap], object]) -> None:
        self._on_swap.append(callback)

    def on_state(self, callback: Callable[[State], object]) -> None:
        self._on_state.append(callback)

    async def until(self, condition: Callable[[LiveTable], bool], seconds: float = 30.0) -> None:
        """Wait until something is true of the table; TimeoutError when it does not become so."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        pause = 0.1
        while True:
            try:
                before = self._replica.seq
                await self._follow()
                reason = "the gateway closed the stream"
                pause = 0.1 if self._replica.seq != before else min(pause * 2, 5.0)
            except aiohttp.WSServerHandshakeError as error:
                reason, pause = f"the gateway answered {error.status}", min(pause * 2, 5.0)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                reason, pause = f"the gateway cannot be reached ({type(error).__name__})", min(pause * 2, 5.0)
            except (frames.FrameError, KeyError, TypeError) as error:
                # Begin anew rather than show rows that may be wrong.
                reason, self._replica = f"the stream was not understood ({error})", Replica()
            self._tell(self._replica.lost(reason))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _follow(self) -> None:
        place = self._replica.place
        async with self._http.ws_connect(
            self._url,
            params={**self._parameters, **({"resume": place} if place else {})},
            max_msg_size=MAX_FRAME,
            protocols=("v1.topicbinding.dev",),
            timeout=aiohttp.ClientWSTimeout(ws_receive=SILENCE_SECONDS, ws_close=2),
        ) as socket:
            self.connections += 1
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    raise frames.FrameError("a message that is not binary")
                header, rows = frames.decode(message.data)
                self.snapshots += header["type"] == "snapshot" and header.get("part") == 1
                self._tell(self._replica.apply(header, rows))

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Update():
                    self._call(self._on_update, event)
                case Swap():
                    self._call(self._on_swap, event)
                case State():
                    self._call(self._on_state, event)
        self._changed.set()

    @staticmethod
    def _call(callbacks: list[Callable[[E], object]], event: E) -> None:
        for callback in callbacks:
            try:
                callback(event)
            except Exception:
                log.exception("a callback failed")
