"""The driver's HTTP API on a log of its own: who may ask, what is answered, what a stream says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.unit.job.reference import Record
from tests.unit.job.wirerows import Marker, wire_table
from topicbinding.api import JoinType, Phase, Tables
from topicbinding.auth import NotAuthorized
from topicbinding.tables import frames
from topicbinding_job.log import TableLog
from topicbinding_job.serve import Server
from topicbinding_job.state import DriverState

TABLES = Tables()


class OneToken:
    """Takes the token `good` only."""

    def verify(self, token: str) -> None:
        if token != "good":
            raise NotAuthorized("the token is another account's")


class World:
    def __init__(self) -> None:
        self.state = DriverState(number=7)
        self.log = TableLog(TABLES, JoinType.LEFT)
        self.server = Server(self.state, OneToken(), "127.0.0.1", 0)  # type: ignore[arg-type]
        self.server.start()
        self._marker = Marker()
        self._offset = 0

    def live(self) -> None:
        self.server.watch(self.log)
        self.state.log = self.log
        self.state.move(Phase.CAUGHT_UP, "CaughtUp")

    def users(self, count: int, key: str = "a") -> None:
        records = [
            Record("users", 0, self._offset + each, each, b'{"userId":"%s","age":%d}' % (key.encode(), each))
            for each in range(count)
        ]
        self._offset += count
        self.log.apply(wire_table(records, TABLES, JoinType.LEFT, self._marker))

    def account(self, number: int, key: str = "a") -> None:
        record = Record(
            "accounts", 0, number, number, b'{"userId":"%s","balance":%d}' % (key.encode(), number)
        )
        self.log.apply(wire_table([record], TABLES, JoinType.LEFT, self._marker))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.server.close("test over")


async def get(world: World, path: str, bearer: str | None = "good") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with aiohttp.ClientSession() as session, session.get(world.url(path), headers=headers) as answer:
        kind = answer.headers.get("Content-Type", "")
        return answer.status, await answer.json() if "json" in kind else await answer.text()


async def test_only_the_gateway_may_read_tables(world: World) -> None:
    world.live()
    for token in (None, "bad"):
        status, body = await get(world, "/v1/tables", token)
        assert status == 401
        assert "token" in body["error"].lower()
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await get(world, path, None))[0] == 200


async def test_before_there_are_tables(world: World) -> None:
    assert (await get(world, "/readyz"))[0] == 503
    assert (await get(world, "/healthz"))[0] == 200
    assert await get(world, "/v1/tables") == (200, {"generation": 7, "phase": "Starting", "tables": []})
    assert (await get(world, "/v1/tables/final_ui"))[0] == 503


async def test_pages_and_formats(world: World) -> None:
    world.users(30)
    world.account(1)
    world.live()
    status, body = await get(world, "/v1/tables/final_ui?offset=28&limit=5&columns=age,balance")
    assert status == 200
    assert body["rows"] == [{"age": 28, "balance": 1.0}, {"age": 29, "balance": 1.0}]
    assert (body["total"], body["generation"], body["epoch"]) == (30, 7, world.log.epoch)
    assert (await get(world, "/v1/tables/final_ui?offset=99"))[1]["rows"] == []
    assert (
        (await get(world, "/v1/tables/users_ui?format=csv&limit=1"))[1].splitlines()[0].startswith('"userId"')
    )
    for path, status in (
        ("/v1/tables/users_ui?format=xml", 400),
        ("/v1/tables/users_ui?lmit=3", 400),
        ("/v1/tables/users_ui?where=age+~~", 400),
        ("/v1/tables/nothing", 404),
        ("/v2/tables", 404),
    ):
        assert (await get(world, path))[0] == status


async def test_a_stream_tells_changes_and_resumes(world: World) -> None:
    world.users(3)
    world.live()
    headers = {"Authorization": "Bearer good"}
    url = world.url("/v1/tables/final_ui/stream")
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.ws_connect(url) as socket:
            header, rows = frames.decode(await socket.receive_bytes(timeout=10))
            assert (header["type"], header["part"], header["parts"], header["phase"]) == (
                "snapshot",
                1,
                1,
                "CaughtUp",
            )
            assert rows is not None
            assert rows.num_rows == 3
            await asyncio.to_thread(world.account, 1)
            header, rows = frames.decode(await socket.receive_bytes(timeout=10))
            assert header["type"] == "delta"
            assert rows is not None
            assert rows.column("_row").to_pylist() == [0, 1, 2]
            assert rows.column("balance").to_pylist() == [1.0, 1.0, 1.0]
            beat, _ = frames.decode(await socket.receive_bytes(timeout=10))
            assert beat["type"] == "heartbeat"
        place = {"epoch": header["epoch"], "seq": str(header["seq"])}
        await asyncio.to_thread(world.users, 2)
        async with session.ws_connect(url, params=place) as socket:
            header, rows = frames.decode(await socket.receive_bytes(timeout=10))
            assert header["type"] == "delta"
            assert rows is not None
            assert rows.column("_row").to_pylist() == [3, 4]
        async with session.ws_connect(url, params={"epoch": "another", "seq": "1"}) as socket:
            header, _ = frames.decode(await socket.receive_bytes(timeout=10))
            assert header["type"] == "snapshot"


async def test_an_empty_table_is_a_snapshot_with_its_columns(world: World) -> None:
    world.live()
    headers = {"Authorization": "Bearer good"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(world.url("/v1/tables/accounts_ui/stream")) as socket,
    ):
        header, rows = frames.decode(await socket.receive_bytes(timeout=10))
        assert (header["type"], header["rows"]) == ("snapshot", 0)
        assert rows is not None
        assert rows.schema.names == ["_row", "userId", "accountType", "balance"]


async def test_a_slow_reader_gets_everything_at_its_newest(world: World) -> None:
    """While it reads nothing, changes add up; what it then gets is few frames, not one for each change."""
    world.users(1)
    world.live()
    headers = {"Authorization": "Bearer good"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(world.url("/v1/tables/final_ui/stream"), max_msg_size=0) as socket,
    ):
        await socket.receive_bytes(timeout=10)

        def write() -> None:
            for number in range(1, 500):
                world.account(number)
                world.users(20)

        writing = threading.Thread(target=write)
        writing.start()
        await asyncio.to_thread(writing.join)
        newest: dict[int, float | None] = {}
        count = 0
        while len(newest) < 1 + 499 * 20 or set(newest.values()) != {499.0}:
            _, rows = frames.decode(await socket.receive_bytes(timeout=10))
            count += 1
            if rows is not None:
                newest |= dict(
                    zip(rows.column("_row").to_pylist(), rows.column("balance").to_pylist(), strict=True)
                )
        assert count < 499


async def test_goodbye_has_a_reason(world: World) -> None:
    world.live()
    headers = {"Authorization": "Bearer good"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(world.url("/v1/tables/final_ui/stream")) as socket,
    ):
        await socket.receive_bytes(timeout=10)
        await asyncio.to_thread(world.server.close, "TableTooLarge")
        header, _ = frames.decode(await socket.receive_bytes(timeout=10))
        assert (header["type"], header["reason"]) == ("bye", "TableTooLarge")
