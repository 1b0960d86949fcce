"""A driver's HTTP side without Spark: the real protocol over real sockets, with rows that a test puts in.

One server holds any number of drivers under `/{namespace}/{generation}`, so that the gateway's `driver_url`
can point at loopback. It authenticates, resumes, splits snapshots into parts, sends heartbeats and can be
restarted, silenced and killed, as the real one can.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from aiohttp import WSCloseCode, web

from topicbinding.api import names
from topicbinding.tables import frames
from topicbinding.tables.schema import ROW_ID, arrow_schema

SCHEMAS = {
    names.USERS_TABLE: arrow_schema(
        [("userId", "string"), ("name", "string"), ("email", "string"), ("age", "long")]
    ),
    names.ACCOUNTS_TABLE: arrow_schema(
        [("userId", "string"), ("accountType", "string"), ("balance", "double")]
    ),
    names.FINAL_TABLE: arrow_schema(
        [
            ("userId", "string"),
            ("name", "string"),
            ("email", "string"),
            ("age", "long"),
            ("accountType", "string"),
            ("balance", "double"),
        ]
    ),
}
TOKEN = "a-token-that-the-stand-in-accepts"


class DriverTable:
    """Rows by `_row`, a log of deltas, and the sockets that follow it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows: dict[int, dict[str, Any]] = {}
        self.seq = 0
        self.log: list[tuple[int, pa.Table]] = []
        self.changed = asyncio.Event()

    def put(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Upsert rows; those without `_row` are appended."""
        made = []
        for row in rows:
            number = row.get(ROW_ID, len(self.rows))
            self.rows[number] = {**row, ROW_ID: number}
            made.append(self.rows[number])
        self.seq += 1
        self.log.append((self.seq, pa.Table.from_pylist(made, schema=self.schema)))
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def table(self) -> pa.Table:
        return pa.Table.from_pylist([self.rows[number] for number in sorted(self.rows)], schema=self.schema)


class Driver:
    def __init__(self, generation: int, *, part_rows: int = 64_000, keep: int = 1000) -> None:
        self.generation = generation
        self.epoch = uuid.uuid4().hex
        self.phase = "CaughtUp"
        self.part_rows = part_rows
        self.keep = keep
        self.silent = False
        """Alive but saying nothing: a stuck process, or a network that swallows."""
        self.slow_snapshot: asyncio.Event | None = None
        """When set, snapshots wait for it: a generation that takes its time."""
        self.tables = {name: DriverTable(schema) for name, schema in SCHEMAS.items()}
        self.sockets: set[web.WebSocketResponse] = set()
        self.connections: list[str] = []
        """Every stream ever opened, with what it asked for."""

    def restart(self, phase: str = "CaughtUp", *, empty: bool = False) -> None:
        """What a new process looks like: a new epoch, and the rows read again (or not yet)."""
        self.epoch = uuid.uuid4().hex
        self.phase = phase
        for table in self.tables.values():
            table.seq = 0
            table.log.clear()
            if empty:
                table.rows.clear()

    def caught_up(self) -> None:
        self.phase = "CaughtUp"
        for table in self.tables.values():
            table.wake()

    async def drop_connections(self) -> None:
        for socket in list(self.sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY)


class DriverServer:
    def __init__(self, heartbeat_seconds: float = 1.0) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        self.drivers: dict[tuple[str, str], Driver] = {}
        self.control: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{namespace}/{generation}/v1/tables/{table}/stream", self._stream)
        app.router.add_get("/{namespace}/{bridge}/v1/control_raw", self._control)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        for driver in self.drivers.values():
            await driver.drop_connections()
        if self._runner is not None:
            await self._runner.cleanup()

    def add(self, namespace: str, binding: str, number: int, **options: Any) -> Driver:
        driver = Driver(number, **options)
        self.drivers[namespace, names.generation_name(binding, number)] = driver
        return driver

    async def remove(self, namespace: str, binding: str, number: int) -> None:
        """The pod is gone: its connections break and new ones find nothing."""
        driver = self.drivers.pop((namespace, names.generation_name(binding, number)))
        await driver.drop_connections()

    async def _control(self, request: web.Request) -> web.StreamResponse:
        self._authenticate(request)
        found = self.control.get((request.match_info["namespace"], request.match_info["bridge"]))
        if found is None:
            raise web.HTTPServiceUnavailable
        return web.json_response({"messages": found})

    @staticmethod
    def _authenticate(request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise web.HTTPUnauthorized

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self._authenticate(request)
        info = request.match_info
        driver = self.drivers.get((info["namespace"], info["generation"]))
        if driver is None or info["table"] not in driver.tables:
            raise web.HTTPNotFound
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        driver.sockets.add(socket)
        driver.connections.append(f"{info['table']}?{request.query_string}")
        sender = asyncio.create_task(self._send(socket, driver, driver.tables[info["table"]], request.query))
        try:
            async for _ in socket:
                pass
        finally:
            driver.sockets.discard(socket)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
        return socket

    async def _send(
        self, socket: web.WebSocketResponse, driver: Driver, table: DriverTable, query: Mapping[str, str]
    ) -> None:
        place = -1
        if query.get("epoch") == driver.epoch:
            place = int(query["seq"])
            if table.log and table.log[0][0] > place + 1:
                place = -1
        if place < 0:
            place = await self._snapshot(socket, driver, table)
        while True:
            changed = table.changed
            if driver.silent:
                await asyncio.sleep(0.05)
                continue
            pending = [(seq, rows) for seq, rows in table.log if seq > place]
            for seq, rows in pending:
                await socket.send_bytes(frames.encode(self._header("delta", driver, table, seq), rows))
                place = seq
            if len(table.log) > 2 * driver.keep:
                del table.log[: -driver.keep]
            if not pending:
                try:
                    async with asyncio.timeout(self.heartbeat_seconds):
                        await changed.wait()
                except TimeoutError:
                    pass
                if table.seq == place and not driver.silent:
                    await socket.send_bytes(frames.encode(self._header("heartbeat", driver, table, place)))

    async def _snapshot(self, socket: web.WebSocketResponse, driver: Driver, table: DriverTable) -> int:
        if driver.slow_snapshot is not None:
            await driver.slow_snapshot.wait()
        whole, seq = table.table(), table.seq
        starts = range(0, max(1, whole.num_rows), driver.part_rows)
        for part, start in enumerate(starts, start=1):
            header = self._header("snapshot", driver, table, seq) | {"part": part, "parts": len(starts)}
            await socket.send_bytes(frames.encode(header, whole.slice(start, driver.part_rows)))
        return seq

    @staticmethod
    def _header(kind: str, driver: Driver, table: DriverTable, seq: int) -> dict[str, Any]:
        return {
            "type": kind,
            "generation": driver.generation,
            "epoch": driver.epoch,
            "seq": seq,
            "rows": len(table.rows),
            "phase": driver.phase,
            "ts": int(time.time() * 1000),
            "newestEventTime": int(time.time() * 1000),
        }
