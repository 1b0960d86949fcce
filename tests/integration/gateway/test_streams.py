"""Streams in their three forms: Arrow and JSON over a WebSocket, server-sent events; and what bounds them."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.support.driver_server import Driver
from tests.support.gateway_world import World, soon, table_url
from topicbinding.client import Replica
from topicbinding.tables import frames

TABLE = "users_ui"


def put(driver: Driver, *names: str) -> None:
    driver.tables[TABLE].put([{"userId": f"u-{name}", "name": name} for name in names])


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, dict[str, Any], str | None]]:
    """Server-sent events as (type, data, id)."""
    fields: dict[str, str] = {}
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id")
            fields = {}


async def first(answer: aiohttp.ClientResponse, kind: str) -> tuple[dict[str, Any], str | None]:
    async with asyncio.timeout(15):
        async for seen, data, identity in events(answer):
            if seen == kind:
                return data, identity
    raise AssertionError(f"the stream ended without {kind}")


async def test_server_sent_events_carry_rows_states_and_heartbeats() -> None:
    async with World(heartbeat_seconds=1) as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        driver = binding.generation(1)
        put(driver, "Ann", "<script>alert(1)</script>")
        binding.flip(1)
        async with http.get(table_url(world.url, TABLE) + "/stream") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            seen: dict[str, dict[str, Any]] = {}
            async with asyncio.timeout(15):
                async for kind, data, _ in events(answer):
                    if kind == "state" and data["state"] != "live":
                        continue
                    seen.setdefault(kind, data)
                    if kind == "state":
                        put(driver, "Bob")
                    if {"snapshot", "state", "delta", "heartbeat"} <= set(seen):
                        break
        assert [row["name"] for row in seen["snapshot"]["data"]] == ["Ann", "<script>alert(1)</script>"]
        assert seen["snapshot"]["data"][0]["email"] is None
        assert [row["name"] for row in seen["delta"]["data"]] == ["Bob"]
        assert seen["state"]["state"] == "live"
        assert seen["state"]["sources"]["usersTopic"] == "users-v1"
        assert seen["heartbeat"]["rows"] == 3


async def test_last_event_id_resumes() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        driver = binding.generation(1)
        put(driver, "Ann")
        binding.flip(1)
        url = table_url(world.url, TABLE) + "/stream"
        async with http.get(url) as answer:
            _, place = await first(answer, "snapshot")
        assert place is not None
        put(driver, "Bob")
        await asyncio.sleep(0.2)
        put(driver, "Eve")
        async with http.get(url, headers={"Last-Event-ID": place}) as answer:
            kinds = []
            names = []
            async with asyncio.timeout(15):
                async for kind, data, _ in events(answer):
                    kinds.append(kind)
                    names += [row["name"] for row in data.get("data", [])]
                    if "Eve" in names:
                        break
        assert "snapshot" not in kinds
        assert names == ["Bob", "Eve"]
        fill = binding.generation(2)
        put(fill, "Zoe")
        binding.flip(2)
        async with http.get(url, headers={"Last-Event-ID": place}) as answer:
            swap, _ = await first(answer, "swap")
        assert (swap["from"], swap["to"]) == (1, 2)


async def test_json_over_a_websocket() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        put(binding.generation(1), "Ann")
        binding.flip(1)
        async with http.ws_connect(table_url(world.url, TABLE) + "/stream?format=json") as stream:
            frame = await stream.receive_json(timeout=10)
            while frame["type"] != "snapshot":
                frame = await stream.receive_json(timeout=10)
        assert frame["data"] == [{"_row": 0, "userId": "u-Ann", "name": "Ann", "email": None, "age": None}]


async def test_heartbeats_come_every_two_seconds() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        put(binding.generation(1), "Ann")
        binding.flip(1)
        times: list[float] = []
        async with http.ws_connect(table_url(world.url, TABLE) + "/stream") as stream:
            while len(times) < 4:
                header, _ = frames.decode(await stream.receive_bytes(timeout=10))
                if header["type"] == "heartbeat":
                    times.append(asyncio.get_running_loop().time())
                    assert header["state"] == "live"
                    assert header["ageMs"] < 3500
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert all(1.0 < gap < 6.0 for gap in gaps), gaps
        assert min(gaps) < 2.6


async def test_a_viewer_that_does_not_read_holds_up_nobody_and_catches_up_by_a_snapshot() -> None:
    async with World(ring_frames=20) as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        driver = binding.generation(1)
        put(driver, "Ann")
        binding.flip(1)
        # A small receive buffer makes the slow one slow after a few frames instead of after megabytes.
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        host, port = world.url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().sock_connect(slow, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=slow, limit=2**12)
        path = table_url("", TABLE) + "/stream"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        await writer.drain()
        async with http.ws_connect(table_url(world.url, TABLE) + "/stream", max_msg_size=0) as quick:
            replica = Replica()
            for number in range(300):
                rows = [{"userId": f"u{number}-{n}", "name": "x" * 400} for n in range(60)]
                driver.tables[TABLE].put(rows)
                await asyncio.sleep(0.005)
            async with asyncio.timeout(60):
                while not replica.complete or replica.table.num_rows < 18_001:
                    replica.apply(*frames.decode(await quick.receive_bytes()))
        assert driver.tables[TABLE].seq == 301
        # Now the slow one reads everything: it finds a second snapshot, because deltas were no longer kept
        # for it.
        try:
            kinds = await asyncio.wait_for(_websocket_kinds(reader, until_rows=18_001), 60)
        finally:
            writer.close()
            await writer.wait_closed()
        assert kinds.count("snapshot") >= 2
        metrics = await (await http.get(world.url + "/metrics")).text()
        assert "topicbinding_gateway_viewers" in metrics


async def _websocket_kinds(reader: asyncio.StreamReader, until_rows: int) -> list[str]:
    """Decode frames of a raw WebSocket until one says that the table has so many rows and all of them
    came."""
    while (await reader.readline()).strip():
        pass
    kinds: list[str] = []
    while True:
        head = await reader.readexactly(2)
        length = head[1] & 0x7F
        if length == 126:
            length = int.from_bytes(await reader.readexactly(2), "big")
        elif length == 127:
            length = int.from_bytes(await reader.readexactly(8), "big")
        body = await reader.readexactly(length)
        if head[0] & 0x0F != 2:
            continue
        header, _ = frames.decode(body)
        kinds.append(header["type"])
        whole = header.get("part") == header.get("parts")
        if header["type"] == "snapshot" and whole and header["rows"] >= until_rows:
            return kinds


async def test_too_many_streams_are_refused_and_given_back() -> None:
    async with World(max_streams=3, max_streams_per_client=3) as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        put(binding.generation(1), "Ann")
        binding.flip(1)
        url = table_url(world.url, TABLE) + "/stream"
        open_ones = [await http.ws_connect(url) for _ in range(3)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(url)
        assert caught.value.status == 429
        for each in open_ones:
            await each.close()

        async def again() -> bool:
            try:
                await (await http.ws_connect(url)).close()
            except aiohttp.WSServerHandshakeError:
                return False
            return True

        done: list[bool] = []
        async with asyncio.timeout(10):
            while not done:
                if await again():
                    done.append(True)
                await asyncio.sleep(0.05)


async def test_whoever_talks_too_much_is_disconnected() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        put(binding.generation(1), "Ann")
        binding.flip(1)
        async with http.ws_connect(table_url(world.url, TABLE) + "/stream") as stream:
            await stream.send_bytes(b"x" * 100_000)
            async with asyncio.timeout(10):
                while (message := await stream.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
            assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


async def test_bindings_and_one_binding_as_documents() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        async with http.get(world.url + "/v1/bindings/stream") as answer:
            assert (await first(answer, "bindings"))[0]["bindings"][0]["state"] == "swapping"
            put(binding.generation(1), "Ann")
            binding.report(1, phase="Reading", progress={"percent": 10, "etaSeconds": 4})
            async with asyncio.timeout(10):
                async for _, data, _ in events(answer):
                    building = data["bindings"][0]["building"]
                    if building == {"generation": 1, "percent": 10, "etaSeconds": 4}:
                        break
        async with http.get(world.url + "/v1/bindings/shop/orders/stream") as answer:
            assert (await first(answer, "binding"))[0]["generations"][0]["percent"] == 10
            binding.delete()
            async with asyncio.timeout(10):
                async for _, data, _ in events(answer):
                    if data.get("deleted"):
                        break


async def test_status_logs_and_control_are_tables_too() -> None:
    async with World(bridge_poll_seconds=0.1) as world, aiohttp.ClientSession() as http:
        binding = world.binding()

        async def rows(table: str) -> list[dict[str, Any]]:
            answer = await (await http.get(table_url(world.url, table))).json()
            assert answer["state"] == "live"
            found: list[dict[str, Any]] = answer["rows"]
            return found

        # Before anything is built they are there already.
        assert await rows("orchestrator_status") == [
            {
                "usersTopic": "users-v1",
                "accountsTopic": "accounts-v1",
                "joinType": "left",
                "lastApplied": None,
            }
        ]
        assert await rows("orchestrator_logs") == []
        binding.event("Building", "building generation 1")
        binding.event("BuildFailed", "no topic", kind="Warning")
        assert [(row["level"], row["msg"]) for row in await rows("orchestrator_logs")] == [
            ("INFO", "Building: building generation 1"),
            ("ERROR", "BuildFailed: no topic"),
        ]
        # The bridge is away: the last message comes from the status.
        binding.body["status"]["control"] = {"lastMessage": "{}", "lastVerdict": "unchanged"}
        binding.publish()
        assert [row["verdict"] for row in await rows("control_raw")] == ["unchanged"]
        async with http.get(table_url(world.url, "orchestrator_status") + "/stream") as answer:
            snapshot, _ = await first(answer, "snapshot")
            binding.generation(2, "users-v2", "accounts-v2", "inner")
            binding.flip(2)
            delta, _ = await first(answer, "delta")
        assert [row["_row"] for row in snapshot["data"] + delta["data"]] == [0, 0], "one row, in place"
        assert delta["data"][0]["usersTopic"] == "users-v2"
        binding.message('{"usersTopic": "users-v2"}', "applied", generation=2)
        binding.message("not json", "rejected", "not a JSON object")

        latest: list[dict[str, Any]] = []

        async def refresh() -> None:
            latest[:] = await rows("control_raw")

        async with asyncio.timeout(10):
            while [row["verdict"] for row in latest] != ["applied", "rejected"]:
                await refresh()
                await asyncio.sleep(0.05)
        assert (latest[-2]["generation"], latest[-2]["outcome"]) == (2, "serving")


async def test_status_is_stale_while_the_api_server_is_away() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        world.binding()
        url = table_url(world.url, "orchestrator_status")
        assert (await (await http.get(url)).json())["state"] == "live"
        world.down = 12.0
        answers: list[dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await (await http.get(url)).json())

        async with asyncio.timeout(10):
            while not answers or answers[-1]["state"] != "stale":
                await ask()
                await asyncio.sleep(0.1)
        assert answers[-1]["ageMs"] == 12_000
        assert "API server" in answers[-1]["reason"]


async def test_a_stream_ends_when_the_gateway_stops() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        driver = binding.generation(1)
        put(driver, "Ann")
        binding.flip(1)
        stream = await http.ws_connect(table_url(world.url, TABLE) + "/stream")
        await stream.receive_bytes(timeout=10)
        await world.stop_gateway()
        await soon(lambda: not driver.sockets, "the driver to be left")
        await stream.close()
