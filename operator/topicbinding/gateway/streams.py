"""Streams to viewers: the loop that asks a viewer's `next` and sends it, over a WebSocket or as server-sent
events.

Called by the routes. Everything that can be slow here is the viewer's own socket; a viewer that takes nothing
at all is disconnected after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import ClientConnectionResetError, WSCloseCode, WSMsgType, web

from topicbinding.gateway.access import SUBPROTOCOL
from topicbinding.gateway.channel import Channel
from topicbinding.gateway.metrics import Metrics
from topicbinding.gateway.mirror import Frame
from topicbinding.gateway.viewer import Place, Viewer

MAX_MESSAGE: Final = 4096
"""Viewers have nothing to say; whoever sends more than this is not one."""
PING_SECONDS: Final = 20.0
BUFFER_BYTES: Final = 128 * 1024
"""What may wait in a viewer's transport before it counts as slow."""

Send = Callable[[Frame], Awaitable[None]]
StillAllowed = Callable[[], Awaitable[bool]]
Rest = Callable[[float], Awaitable[None]]


class Revoked(Exception):  # noqa: N818
    """The right to see the table was taken away while it was watched."""


async def pump(
    channel: Channel, viewer: Viewer, send: Send, still_allowed: StillAllowed, rest: Rest | None = None
) -> None:
    """Send everything, for ever. Ends by cancellation, by a broken socket, or by Revoked. `rest` is how to
    wait when there is nothing to send; without it, for the channel's signal."""
    loop = asyncio.get_running_loop()
    checked = loop.time()
    while True:
        signal = channel.signal.arm()
        frames = viewer.next(channel)
        for frame in frames:
            async with asyncio.timeout(channel.settings.send_seconds):
                await send(frame)
        if loop.time() - checked > max(1.0, channel.settings.review_seconds):
            checked = loop.time()
            if not await still_allowed():
                raise Revoked
        if frames:
            continue
        if rest is not None:
            await rest(max(1.0, channel.settings.review_seconds))
        else:
            # Shielded: one viewer that leaves must not cancel the signal of all.
            await asyncio.shield(signal)


class Parked:
    """A WebSocket viewer between its own turns: small frames go straight into its transport.

    Two hundred tasks woken for every few rows cost more than sending the rows. The viewer's task takes over
    again for whatever may be large or slow: a snapshot, a swap, a full buffer.
    """

    def __init__(self, viewer: Viewer, transport: asyncio.Transport, metrics: Metrics) -> None:
        self._viewer = viewer
        self._transport = transport
        self._metrics = metrics
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def push(self, channel: Channel) -> None:
        busy = self._transport.is_closing() or self._transport.get_write_buffer_size() > BUFFER_BYTES
        if busy or self._viewer.needs_all(channel):
            self.wake()
            return
        for frame in self._viewer.next(channel):
            self._transport.write(frame.wire)
            self._metrics.sent.add(frame.header["type"], "arrow", len(frame.wire))

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


async def park(
    channel: Channel, viewer: Viewer, transport: asyncio.Transport, metrics: Metrics, seconds: float
) -> None:
    """Wait until the viewer's task is needed, or until it is time to ask again whether it may look."""
    parked = Parked(viewer, transport, metrics)
    channel.parked.add(parked)
    try:
        await asyncio.wait([parked.woken], timeout=seconds)
    finally:
        channel.parked.discard(parked)


async def websocket(
    request: web.Request,
    channel: Channel,
    viewer: Viewer,
    metrics: Metrics,
    still_allowed: StillAllowed,
    *,
    as_json: bool,
) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(
        heartbeat=PING_SECONDS, max_msg_size=MAX_MESSAGE, compress=False, protocols=(SUBPROTOCOL,)
    )
    await socket.prepare(request)

    async def send(frame: Frame) -> None:
        if as_json:
            text = await _json(frame)
            await socket.send_str(text)
            metrics.sent.add(frame.header["type"], "json", len(text))
        else:
            await socket.send_bytes(frame.binary)
            metrics.sent.add(frame.header["type"], "arrow", len(frame.binary))

    async def listen() -> None:
        # Reading is what notices a viewer that has left.
        async for message in socket:
            if message.type in (WSMsgType.ERROR, WSMsgType.CLOSE):
                return

    async def rest(seconds: float) -> None:
        transport = request.transport
        if transport is None:
            raise ClientConnectionResetError("the viewer left")
        await park(channel, viewer, transport, metrics, seconds)

    channel.join(viewer)
    tasks = [
        asyncio.create_task(pump(channel, viewer, send, still_allowed, None if as_json else rest)),
        asyncio.create_task(listen()),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        reason = _farewell(done)
    finally:
        channel.leave(viewer)
        metrics.fallbacks.inc(viewer.snapshots)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(2):
            await socket.close(code=reason[0], message=reason[1])
    return socket


def _farewell(done: set[asyncio.Task[None]]) -> tuple[int, bytes]:
    for task in done:
        error = task.exception()
        if isinstance(error, Revoked):
            return WSCloseCode.POLICY_VIOLATION, b"access was revoked"
        if isinstance(error, TimeoutError):
            return WSCloseCode.GOING_AWAY, b"too slow"
        if error is not None and not isinstance(error, ConnectionError | ClientConnectionResetError):
            raise error
    return WSCloseCode.GOING_AWAY, b""


async def events(
    request: web.Request, channel: Channel, viewer: Viewer, metrics: Metrics, still_allowed: StillAllowed
) -> web.StreamResponse:
    response = event_stream()
    await response.prepare(request)

    async def send(frame: Frame) -> None:
        place = Place.of(frame)
        data = event(frame.header["type"], await _json(frame), place)
        await response.write(data)
        metrics.sent.add(frame.header["type"], "json", len(data))

    channel.join(viewer)
    try:
        await pump(channel, viewer, send, still_allowed)
    except (ConnectionError, TimeoutError, Revoked):
        pass
    finally:
        channel.leave(viewer)
        metrics.fallbacks.inc(viewer.snapshots)
    return response


def event_stream() -> web.StreamResponse:
    return web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
    )


def event(kind: str, data: str, identity: str | None = None) -> bytes:
    """One server-sent event. JSON holds no line breaks, so one data line is enough."""
    lines = [f"event: {kind}", f"data: {data}"]
    if identity is not None:
        lines.insert(0, f"id: {identity}")
    return ("\n".join(lines) + "\n\n").encode()


async def _json(frame: Frame) -> str:
    return await asyncio.to_thread(lambda: frame.json) if frame.heavy else frame.json
