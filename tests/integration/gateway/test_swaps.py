"""Viewers over swaps, restarts and silence, with real sockets: what a person who leaves a page open is
promised."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.driver_server import Driver
from tests.support.gateway_world import BINDING, NAMESPACE, World, soon, table_url
from topicbinding.client import Gateway, LiveTable, State, Swap, Update
from topicbinding.gateway.access import OpenAccess
from topicbinding.gateway.app import make_app

TABLE = "final_ui"


class Watched:
    """A viewer and everything it was told."""

    def __init__(self, live: LiveTable) -> None:
        self.live = live
        self.swaps: list[tuple[int, int]] = []
        self.states: list[State] = []
        self.smallest = live.rows.num_rows
        self.mixed = 0
        live.on_swap(self._swapped)
        live.on_state(self.states.append)
        live.on_update(self._updated)

    def _swapped(self, swap: Swap) -> None:
        self.swaps.append((swap.come_from, swap.generation))

    def _updated(self, update: Update) -> None:
        rows = self.live.rows
        self.smallest = min(self.smallest, rows.num_rows)
        # Every row says which generation made it: rows of two generations must never be seen together.
        if set(rows["accountType"].to_pylist()) != {f"g{self.live.generation}"}:
            self.mixed += 1


def row(generation: int, number: int, value: float) -> dict[str, Any]:
    return {
        "_row": number,
        "userId": f"u{number}",
        "name": f"n{number}",
        "age": number,
        "accountType": f"g{generation}",
        "balance": value,
    }


def fill(driver: Driver, count: int) -> None:
    driver.tables[TABLE].put([row(driver.generation, number, 0.0) for number in range(count)])


async def feed(driver: Driver, seed: int) -> None:
    """Rows that keep coming: new ones, and changes of old ones."""
    dice = random.Random(seed)
    table = driver.tables[TABLE]
    while True:
        numbers = {dice.randrange(len(table.rows) + 2) for _ in range(3)}
        table.put([row(driver.generation, number, dice.random()) for number in numbers])
        await asyncio.sleep(0.02)


async def settle(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def at(driver: Driver) -> Callable[[LiveTable], bool]:
    """The viewer has everything that this driver ever sent."""
    return lambda live: live.generation == driver.generation and live._replica.seq == driver.tables[TABLE].seq


def of_generation(number: int) -> Callable[[LiveTable], bool]:
    return lambda live: live.generation == number


async def test_fifty_viewers_over_twenty_swaps() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        driver = binding.generation(1)
        fill(driver, 20)
        binding.flip(1)
        viewers = [Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE)) for _ in range(50)]
        feeding = asyncio.create_task(feed(driver, 1))
        for number in range(2, 22):
            new = binding.generation(number)
            fill(new, 10 + number)
            feeding_new = asyncio.create_task(feed(new, number))
            await asyncio.sleep(0.1)
            binding.flip(number)
            for viewer in viewers:
                await viewer.live.until(of_generation(number))
            await settle(feeding)
            await binding.retire(number - 1)
            # For a moment nothing moves, so that everybody can be compared with the truth and a fresh
            # snapshot.
            await settle(feeding_new)
            for viewer in viewers:
                await viewer.live.until(at(new))
            fresh = (await gateway.query(NAMESPACE, BINDING, TABLE, limit=100_000)).to_pylist()
            truth = new.tables[TABLE].table().drop_columns(["_row"]).to_pylist()
            assert fresh == truth
            for viewer in viewers:
                assert viewer.live.rows.to_pylist() == fresh
            driver, feeding = new, asyncio.create_task(feed(new, 100 + number))
        await settle(feeding)
        expected = [(number, number + 1) for number in range(1, 21)]
        for viewer in viewers:
            assert viewer.live.connections == 1, "no socket was closed"
            assert viewer.swaps == expected, "every swap came once, none was missed"
            assert viewer.smallest > 0, "there was no time without rows"
            assert viewer.mixed == 0
            assert viewer.live.snapshots == 1
            await viewer.live.until(lambda live: live.state.state == "live")
        assert len(driver.connections) == 1, "one upstream however many viewers"


async def test_the_old_rows_stay_until_the_new_ones_are_all_here() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        old = binding.generation(1)
        fill(old, 5)
        binding.flip(1)
        viewer = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        new = binding.generation(2)
        fill(new, 7)
        new.slow_snapshot = asyncio.Event()
        binding.flip(2)
        await viewer.live.until(lambda live: live.state.state == "swapping")
        old.tables[TABLE].put([row(1, 99, 1.0)])
        await viewer.live.until(lambda live: live.rows.num_rows == 6)
        assert viewer.live.generation == 1, "the old one is still fresh while the new one is opened"
        assert old.sockets
        new.slow_snapshot.set()
        await viewer.live.until(lambda live: live.generation == 2)
        assert viewer.swaps == [(1, 2)]
        assert viewer.mixed == 0
        await soon(lambda: not old.sockets, "the old driver to be left")


async def test_a_rollback_in_the_middle_of_a_swap_changes_nothing() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        fill(binding.generation(1), 5)
        binding.flip(1)
        viewer = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        new = binding.generation(2)
        new.slow_snapshot = asyncio.Event()
        binding.flip(2)
        await viewer.live.until(lambda live: live.state.state == "swapping")
        binding.flip(1)
        await viewer.live.until(lambda live: live.state.state == "live")
        new.slow_snapshot.set()
        third = binding.generation(3)
        fill(third, 3)
        binding.flip(3)
        await viewer.live.until(lambda live: live.generation == 3)
        assert viewer.swaps == [(1, 3)]


async def test_a_driver_that_dies_makes_the_table_stale_and_then_live_again() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        driver = binding.generation(1)
        fill(driver, 5)
        binding.flip(1)
        viewer = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        await world.drivers.remove(NAMESPACE, BINDING, 1)
        await viewer.live.until(lambda live: live.state.state == "stale")
        assert viewer.live.state.reason
        await viewer.live.until(lambda live: (live.state.age_ms or 0) > 1000)
        assert viewer.live.rows.num_rows == 5, "the rows stay, and are not called live"
        # The new process begins to read its topics again: what it has so far is not shown.
        driver.restart("Reading", empty=True)
        fill(driver, 2)
        world.drivers.drivers[NAMESPACE, f"{BINDING}-g1"] = driver
        await viewer.live.until(lambda live: "restarted" in live.state.reason)
        assert viewer.live.rows.num_rows == 5
        fill(driver, 6)
        driver.caught_up()
        await viewer.live.until(lambda live: live.state.state == "live")
        assert viewer.live.rows.num_rows == 6
        assert viewer.live.connections == 1
        assert viewer.swaps == []
        assert [state.state for state in viewer.states][-1] == "live"


async def test_a_silent_driver_is_stale_although_its_socket_is_open() -> None:
    async with World(stale_seconds=2.5) as world, Gateway(world.url) as gateway:
        binding = world.binding()
        driver = binding.generation(1)
        fill(driver, 5)
        binding.flip(1)
        viewer = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        driver.silent = True
        await viewer.live.until(lambda live: live.state.state == "stale", 10)
        driver.silent = False
        await viewer.live.until(lambda live: live.state.state == "live", 15)
        assert viewer.live.connections == 1


async def test_a_broken_connection_resumes_without_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine the blink may take longer than a person would call one.
    monkeypatch.setattr("topicbinding.gateway.states.BLINK_SECONDS", 3.0)
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        driver = binding.generation(1)
        fill(driver, 5)
        binding.flip(1)
        viewer = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        await driver.drop_connections()
        driver.tables[TABLE].put([row(1, 50, 1.0)])
        await viewer.live.until(lambda live: live.rows.num_rows == 6)
        assert viewer.live.snapshots == 1
        assert "seq=1" in driver.connections[-1]
        assert "stale" not in {state.state for state in viewer.states}, "a blink is not news"


async def test_a_gateway_restarted_in_the_middle_of_a_swap_ends_up_right() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        fill(binding.generation(1), 5)
        binding.flip(1)
        viewers = [Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE)) for _ in range(5)]
        new = binding.generation(2)
        fill(new, 8)
        new.slow_snapshot = asyncio.Event()
        binding.flip(2)
        for viewer in viewers:
            await viewer.live.until(lambda live: live.state.state == "swapping")
        await world.stop_gateway()
        for viewer in viewers:
            await viewer.live.until(lambda live: live.state.state == "lost")
            assert viewer.live.rows.num_rows == 5
        new.slow_snapshot.set()
        await world.start_gateway()
        for viewer in viewers:
            await viewer.live.until(lambda live: live.state.state == "live")
            assert viewer.swaps == [(1, 2)], "exactly one swap, from where the viewer was"
            assert viewer.live.rows.num_rows == 8
            assert viewer.mixed == 0


async def test_a_viewer_returns_to_another_gateway_without_missing_anything() -> None:
    async with World() as first, Gateway(first.url) as gateway:
        binding = first.binding()
        driver = binding.generation(1)
        fill(driver, 5)
        binding.flip(1)
        viewer = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        await first.stop_gateway()
        driver.tables[TABLE].put([row(1, 77, 2.0)])
        await first.start_gateway()
        await viewer.live.until(lambda live: live.rows.num_rows == 6)
        assert viewer.live.connections == 2
        assert viewer.swaps == []


async def test_a_pinned_generation_stays_and_ends_with_a_reason() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        fill(binding.generation(1), 5)
        binding.flip(1)
        pinned = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE, generation=1))
        fill(binding.generation(2), 6)
        binding.flip(2)
        moving = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        assert moving.live.generation == 2
        assert pinned.live.generation == 1
        assert pinned.live.state.state == "live"
        await binding.retire(1)
        await pinned.live.until(lambda live: live.state.state == "failed")
        assert "generation 1 is gone" in pinned.live.state.reason
        assert pinned.swaps == []


async def test_a_failed_generation_and_a_deleted_binding_are_told() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        fill(binding.generation(1), 5)
        binding.flip(1)
        viewer = Watched(await gateway.get_table(NAMESPACE, BINDING, TABLE))
        binding.report(1, phase="Failed", message="table is too large")
        await viewer.live.until(lambda live: live.state.state == "failed")
        assert viewer.live.state.reason == "table is too large"
        binding.report(1, phase="CaughtUp", message=None)
        await viewer.live.until(lambda live: live.state.state == "live")
        binding.delete()
        await viewer.live.until(lambda live: live.state.state == "failed")
        assert "no binding" in viewer.live.state.reason


async def test_nothing_served_yet_is_told_with_its_progress() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        binding.generation(1)
        binding.report(1, phase="Reading", progress={"percent": 40})
        live = await gateway.get_table(NAMESPACE, BINDING, TABLE, wait=0)
        await live.until(lambda each: "40 %" in each.state.reason)
        assert live.state.state == "swapping"
        fill(world.drivers.drivers[NAMESPACE, f"{BINDING}-g1"], 4)
        binding.flip(1)
        await live.until(lambda each: each.complete)
        assert live.rows.num_rows == 4


async def test_large_snapshots_travel_in_parts() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        driver = binding.generation(1)
        driver.part_rows = 1000
        fill(driver, 10_500)
        binding.flip(1)
        live = await gateway.get_table(NAMESPACE, BINDING, TABLE)
        assert live.rows.num_rows == 10_500
        assert (await gateway.query(NAMESPACE, BINDING, TABLE, limit=0)).num_rows == 0


async def test_an_idle_table_is_left() -> None:
    async with World(idle_seconds=0.5) as world, Gateway(world.url) as gateway:
        binding = world.binding()
        driver = binding.generation(1)
        fill(driver, 5)
        binding.flip(1)
        await gateway.query(NAMESPACE, BINDING, TABLE)
        assert driver.sockets
        await soon(lambda: not driver.sockets, "the idle table to be left")


async def test_a_driver_that_answers_for_another_generation_is_not_believed() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        binding = world.binding()
        driver = binding.generation(1)
        fill(driver, 5)
        driver.generation = 9
        binding.flip(1)
        live = await gateway.get_table(NAMESPACE, BINDING, TABLE, wait=0)
        await live.until(lambda each: "not understood" in each.state.reason)
        assert not live.complete
        driver.generation = 1
        await live.until(lambda each: each.complete)


async def test_two_replicas_say_the_same_and_a_viewer_may_go_from_one_to_the_other() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        binding = world.binding()
        driver = binding.generation(1)
        fill(driver, 5)
        binding.flip(1)
        second = web.AppRunner(make_app(world.settings, world.directory, OpenAccess()), access_log=None)
        await second.setup()
        await web.TCPSite(second, "127.0.0.1", 0).start()
        other = f"http://127.0.0.1:{second.addresses[0][1]}"
        answers = [await (await http.get(table_url(url, TABLE))).json() for url in (world.url, other)]
        assert answers[0]["rows"] == answers[1]["rows"]
        place = f"{answers[0]['generation']}:{answers[0]['epoch']}:{answers[0]['seq']}"
        driver.tables[TABLE].put([row(1, 60, 1.0)])
        async with http.ws_connect(table_url(other, TABLE) + f"/stream?format=json&resume={place}") as stream:
            first = await stream.receive_json(timeout=10)
            while first["type"] not in ("delta", "snapshot"):
                first = await stream.receive_json(timeout=10)
        assert first["type"] == "delta", "the other replica knows the place, because it is the driver's"
        assert [each["_row"] for each in first["data"]] == [60]
        await second.cleanup()
        assert len(driver.connections) == 2, "one upstream for each replica"
