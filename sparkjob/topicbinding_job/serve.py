"""The driver's HTTP API: tables as answers and as streams, health, readiness, figures. Protocol:
docs/protocol.md.

Runs in an event loop of its own, in a thread beside Spark; it only reads what the driver's state and the
table log publish. `driver` starts it before anything else, so that a driver in trouble can be asked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import WSCloseCode, web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from topicbinding.api import Phase
from topicbinding.auth import NotAuthorized, TokenVerifier, bearer
from topicbinding.tables import formats, frames
from topicbinding.tables.query import Query, QueryError
from topicbinding.tables.schema import describe
from topicbinding_job.log import LogTable, TableLog
from topicbinding_job.metrics import Metrics
from topicbinding_job.state import DriverState
from topicbinding_job.stream import Changed, Frames, follow

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN: Final = frozenset({"/healthz", "/readyz", "/metrics"})
SEND_SECONDS: Final = 10.0
MAX_CLIENTS: Final = 256
"""Streams at once. Readers are gateways, of which there are a handful; more means that something loops."""


class Server:
    """The API in its thread."""

    def __init__(self, state: DriverState, verifier: TokenVerifier | None, host: str, port: int) -> None:
        self._state = state
        self._verifier = verifier
        self._host = host
        self.port = port
        self.metrics = Metrics(state)
        self._loop = asyncio.new_event_loop()
        self._changed: Changed | None = None
        self._made = Frames(state, self.metrics)
        self._sockets: set[web.WebSocketResponse] = set()
        self._watching: TableLog | None = None
        self._runner: web.AppRunner | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="serve", daemon=True)

    def start(self) -> None:
        """Listen; raises if the address is taken."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)

    def watch(self, log: TableLog) -> None:
        """Streams follow this log from now on."""
        if self._changed is not None and self._watching is not log:
            self._watching = log
            log.on_change(self._changed.ring)

    def close(self, reason: str, seconds: float = 3.0) -> None:
        """Say goodbye to every stream, then stop. A second time there is nobody left."""
        if self._closed:
            return
        self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._bye(reason), self._loop).result(seconds)
        except TimeoutError:
            logger.warning("some streams did not take the goodbye in time")
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _open(self) -> None:
        self._changed = Changed()
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/v1/tables", self._tables),
                web.get("/v1/tables/{name}", self._table),
                web.get("/v1/tables/{name}/stream", self._stream),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _bye(self, reason: str) -> None:
        header = self._made.header("bye", None, 0, 0) | {"reason": reason}
        goodbye = frames.encode(header)

        async def leave(socket: web.WebSocketResponse) -> None:
            try:
                async with asyncio.timeout(1.0):
                    await socket.send_bytes(goodbye)
                    await socket.close(code=WSCloseCode.GOING_AWAY, message=reason.encode()[:120])
            except (TimeoutError, ConnectionError, RuntimeError):
                return

        await asyncio.gather(*(leave(socket) for socket in tuple(self._sockets)))
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._verifier is not None and request.path not in OPEN:
            try:
                token = bearer(request.headers.get("Authorization"))
                await asyncio.to_thread(self._verifier.verify, token)
            except NotAuthorized as refusal:
                return _error(401, str(refusal))
        try:
            return await handler(request)
        except web.HTTPException as answer:
            return _error(answer.status, answer.text or answer.reason)

    async def _healthz(self, _: web.Request) -> web.Response:
        # Neither Kafka nor the API server decide whether this process lives.
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        ready = self._state.phase is Phase.CAUGHT_UP
        return web.Response(status=200 if ready else 503, text=f"{self._state.phase.value}\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _tables(self, _: web.Request) -> web.Response:
        log = self._state.log
        tables = [] if log is None else list(log.tables.values())
        return web.json_response(
            {
                "generation": self._state.number,
                "phase": self._state.phase.value,
                "tables": [_described(table, log.epoch) for table in tables if log is not None],
            }
        )

    async def _table(self, request: web.Request) -> web.StreamResponse:
        log, table = self._found(request)
        try:
            query = Query.from_params(request.query, ignore=["format"])
            form = formats.choose(request.query.get("format"), request.headers.get("Accept"))
            seq, rows = table.at()
            # Without a filter or an order only the page itself has to be read.
            plain = query.condition is None and not query.order
            start = min(query.offset, rows) if plain else 0
            stop = min(rows, start + query.limit) if plain else rows
            page = Query(columns=query.columns, limit=query.limit) if plain else query
            answer = await asyncio.to_thread(lambda: page.run(table.read(start, stop)))
        except (QueryError, formats.FormatError) as refusal:
            return _error(400, str(refusal))
        total = rows if plain else answer.total
        meta: dict[str, Any] = {
            "generation": self._state.number, "epoch": log.epoch, "seq": seq, "total": total,
        }  # fmt: skip
        response = web.StreamResponse(
            headers={
                "Content-Type": formats.CONTENT_TYPES[form],
                "Cache-Control": "no-store",
                **{f"X-Topicbinding-{name.capitalize()}": str(value) for name, value in meta.items()},
            }
        )
        await response.prepare(request)
        pieces = formats.write(answer.rows, form, meta)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await response.write(piece)
        await response.write_eof()
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        log, table = self._found(request)
        resume = _resume(request)
        if len(self._sockets) >= MAX_CLIENTS:
            return _error(503, f"{MAX_CLIENTS} streams are open already")
        socket = web.WebSocketResponse(heartbeat=20.0, compress=False, max_msg_size=64 * 1024)
        await socket.prepare(request)
        self._sockets.add(socket)
        clients = self.metrics.clients.labels(table.name)
        clients.inc()
        changed = self._changed or Changed()
        sending = asyncio.create_task(
            follow(socket, table, resume, log.epoch, self._made, changed, self.metrics)
        )
        try:
            # Readers say nothing; reading notices when they leave.
            receiving = asyncio.create_task(_until_closed(socket))
            done, pending = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, ConnectionError):
                    logger.error("a stream of %s failed", table.name, exc_info=error)
        finally:
            self._sockets.discard(socket)
            clients.dec()
            if not socket.closed:
                await socket.close()
        return socket

    def _found(self, request: web.Request) -> tuple[TableLog, LogTable]:
        log = self._state.log
        if log is None:
            raise web.HTTPServiceUnavailable(text=f"no tables yet: {self._state.phase.value}")
        name = request.match_info["name"]
        table = log.tables.get(name)
        if table is None:
            raise web.HTTPNotFound(text=f"there is no table {name[:80]!r}: {', '.join(log.tables)}")
        return log, table


async def _until_closed(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        pass


def _resume(request: web.Request) -> tuple[str, int] | None:
    epoch, seq = request.query.get("epoch"), request.query.get("seq")
    if not epoch or not seq:
        return None
    if not (seq.isascii() and seq.isdigit() and len(seq) <= 18):
        raise web.HTTPBadRequest(text="seq must be a whole number that is not negative")
    return epoch, int(seq)


def _described(table: LogTable, epoch: str) -> dict[str, Any]:
    seq, rows = table.at()
    return {
        "name": table.name, "columns": describe(table.schema), "rows": rows, "seq": seq, "epoch": epoch,
    }  # fmt: skip


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
