"""The page in a real browser, with a real gateway and stand-in drivers: everything a viewer can see and
do."""

from __future__ import annotations

import asyncio
import csv
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from tests.support.driver_server import Driver
from tests.support.gateway_world import Binding, World
from topicbinding.gateway.access import TokenAccess
from topicbinding.gateway.kube import User

if TYPE_CHECKING:
    from tests.browser.conftest import Tab

SCRIPT = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">'
PICKED = (
    "[...document.querySelector('perspective-viewer-datagrid').regular_table"
    ".querySelectorAll('tr.tb-selected')].map((row) => row.querySelector('td').textContent)"
)
HERE = "#/shop/orders/final_ui"


def person(generation: int, number: int, **more: Any) -> dict[str, Any]:
    return {
        "userId": f"g{generation}-u{number:03d}",
        "name": "Ann" if number % 2 else "Bob",
        "email": f"{number}@example.org",
        "age": 20 + number % 60,
        "accountType": "gold" if number % 3 else "basic",
        "balance": number * 1.5,
        **more,
    }


def fill(driver: Driver, count: int = 100) -> None:
    for table in ("final_ui", "users_ui", "accounts_ui"):
        driver.tables[table].put([person(driver.generation, number) for number in range(count)])


def served(world: World) -> tuple[Binding, Driver]:
    binding = world.binding()
    driver = binding.generation(1)
    fill(driver)
    binding.flip(1)
    return binding, driver


async def view(tab: Tab) -> dict[str, Any]:
    saved: dict[str, Any] = await tab.page.evaluate("document.querySelector('perspective-viewer').save()")
    return saved


async def restore(tab: Tab, config: dict[str, Any]) -> None:
    await tab.page.evaluate(
        "(config) => document.querySelector('perspective-viewer').restore(config)", config
    )


async def test_rows_state_and_nothing_from_elsewhere(tab: Tab) -> None:
    async with World() as world:
        binding, driver = served(world)
        await tab.open(world.url)
        await tab.state("live")
        await tab.until_cells("contains|g1-u000")
        assert (await tab.cells())[0] == ["g1-u000", "Bob", "0@example.org", "20", "basic", "0.00"]
        assert await tab.fact("generation") == "1"
        assert "open access" in await tab.page.inner_text("#access")
        headings = await tab.page.inner_text("#head")
        assert "users-v1" in headings
        assert "accounts-v1" in headings
        driver.tables["final_ui"].put([{**person(1, 0), "_row": 0, "name": "Zed"}])
        await tab.until_cells("contains|Zed")
        marked = await tab.page.evaluate(
            "[...document.querySelector('perspective-viewer-datagrid').regular_table"
            ".querySelectorAll('td.tb-changed')].map((cell) => cell.textContent)"
        )
        assert marked == ["Zed"], "the changed cell, and no other, is marked"
        binding.event("Building", "building generation 2")
        await tab.page.wait_for_selector("#logs .msg:has-text('building generation 2')")
        await tab.screenshot("rows")
        assert tab.complaints == []
        foreign = [url for url in tab.loaded if not url.startswith((world.url, "data:", "blob:" + world.url))]
        assert foreign == []


async def picked(tab: Tab) -> list[str]:
    """The first cells of the selected rows."""
    found: list[str] = await tab.page.evaluate(PICKED)
    return found


async def test_a_selected_row_stays_selected_wherever_it_moves(tab: Tab) -> None:
    async with World() as world:
        binding, driver = served(world)
        await tab.open(world.url + "/" + HERE)
        await tab.until_cells("contains|g1-u000")
        await restore(tab, {"sort": [["balance", "desc"]]})
        await tab.until_cells("first|g1-u099")
        await tab.page.locator("#grid td:has-text('g1-u096')").click()
        assert await picked(tab) == ["g1-u096"]
        # Rows come in above it.
        driver.tables["final_ui"].put([person(1, number) for number in range(1000, 1003)])
        await tab.until_cells("first|g1-u1002")
        assert await picked(tab) == ["g1-u096"]
        await tab.page.locator("#grid td:has-text('g1-u099')").click(modifiers=["Control"])
        assert sorted(await picked(tab)) == ["g1-u096", "g1-u099"]
        await tab.page.locator("#grid td:has-text('g1-u096')").click()
        assert await picked(tab) == ["g1-u096"]
        # Other rows after a swap: the one with the same key is it.
        new = binding.generation(2)
        fill(new, 50)
        new.tables["final_ui"].put([person(2, 60, userId="g1-u096")])
        binding.flip(2)
        await tab.until_cells("contains|g2-u049")
        await tab.page.wait_for_function(f"() => {PICKED}.length === 1")
        assert await picked(tab) == ["g1-u096"]
        await tab.page.locator("#grid td:has-text('g1-u096')").click()
        assert await picked(tab) == []
        assert tab.complaints == []


async def test_a_swap_moves_the_rows_and_keeps_the_view(tab: Tab) -> None:
    async with World() as world:
        binding, _ = served(world)
        await tab.open(world.url + "/" + HERE)
        await tab.until_cells("contains|g1-u000")
        await tab.page.evaluate("window.sameDocument = true")
        await restore(tab, {"filter": [["accountType", "==", "gold"]], "sort": [["balance", "desc"]]})
        await tab.page.fill("#search", "ann")
        await tab.until_cells("first|g1-u097")
        assert {row[1] for row in await tab.cells()} == {"Ann"}
        await tab.page.evaluate(
            "document.querySelector('perspective-viewer-datagrid').regular_table.scrollTop = 120"
        )
        scroll = "document.querySelector('perspective-viewer-datagrid').regular_table.scrollTop"
        await tab.page.wait_for_function(f"() => {scroll} > 50")
        before = await tab.page.evaluate(scroll)
        new = binding.generation(2)
        fill(new, 200)
        binding.flip(2)
        await tab.until_cells("all|0|g2-")
        await tab.state("live")
        assert await tab.fact("generation") == "2"
        assert "users-v2" in await tab.page.inner_text("#head")
        kept = await view(tab)
        assert ["accountType", "==", "gold"] in kept["filter"]
        assert kept["sort"] == [["balance", "desc"]]
        assert await tab.page.input_value("#search") == "ann"
        assert {row[1] for row in await tab.cells()} == {"Ann"}
        assert await tab.page.evaluate(scroll) == before, "the scroll position survives"
        assert await tab.page.evaluate("window.sameDocument") is True, "no reload"
        assert await tab.page.evaluate("window.topicbinding.table.connections") == 1
        assert await tab.page.evaluate("window.topicbinding.table.swaps") == 1
        await tab.screenshot("swapped")
        assert tab.complaints == []


async def test_the_url_keeps_binding_table_and_view(tab: Tab) -> None:
    async with World() as world:
        served(world)
        other = world.binding("fleet", "logistics")
        driver = other.generation(1, "drivers", "vehicles", "inner")
        fill(driver, 5)
        other.flip(1)
        await tab.open(world.url + "/#/logistics/fleet/users_ui")
        await tab.until_cells("count|5")
        await restore(tab, {"columns": ["name", "userId"], "sort": [["userId", "desc"]]})
        await tab.page.fill("#search", "ann")
        await tab.until_cells("count|2")
        await tab.page.wait_for_function("() => location.hash.includes('q=ann')")
        url = await tab.page.evaluate("location.href")
        kept = json.loads(parse_qs(url.split("?", 1)[1])["view"][0])
        assert kept["columns"] == ["name", "userId"]
        await tab.open("about:blank")
        await tab.open(url)
        await tab.until_cells("count|2")
        assert await tab.cells() == [["Ann", "g1-u003"], ["Ann", "g1-u001"]]
        assert await tab.page.input_value("#search") == "ann"
        await tab.open("about:blank")
        await tab.open(world.url + "/#/logistics/fleet/users_ui?view=%7Bnonsense")
        await tab.until_cells("count|5")
        await tab.page.click("#reset")
        await tab.page.click("a.binding:has-text('orders')")
        await tab.until_cells("contains|g1-u010")
        assert "/shop/orders/final_ui" in await tab.page.evaluate("location.hash")
        assert tab.complaints == []


async def test_group_by_and_column_choice_live_on_over_updates(tab: Tab) -> None:
    async with World() as world:
        _, driver = served(world)
        await tab.open(world.url + "/" + HERE)
        await tab.until_cells("contains|g1-u000")
        await restore(tab, {"group_by": ["accountType"], "columns": ["balance"]})
        # regular-table shows one line for the total and one for each kind.
        await tab.until_cells("count|3")
        driver.tables["final_ui"].put([person(1, 500, accountType="silver")])
        await tab.until_cells("count|4")
        assert (await view(tab))["group_by"] == ["accountType"]
        assert tab.complaints == []


async def test_a_dead_driver_is_stale_and_a_new_one_live(tab: Tab) -> None:
    async with World() as world:
        _, driver = served(world)
        await tab.open(world.url + "/" + HERE)
        await tab.state("live")
        await tab.until_cells("contains|g1-u000")
        await world.drivers.remove("shop", "orders", 1)
        await tab.state("stale")
        assert await tab.page.inner_text("#badge .why")
        assert await tab.column(0), "the rows stay"
        await tab.screenshot("stale")
        driver.restart()
        world.drivers.drivers["shop", "orders-g1"] = driver
        await tab.state("live")


async def test_a_gateway_that_is_away_is_said_and_survived(tab: Tab) -> None:
    async with World() as world:
        binding, driver = served(world)
        await tab.open(world.url + "/" + HERE)
        await tab.state("live")
        await world.stop_gateway()
        await tab.state("lost")
        assert await tab.fact("age") == "unknown"
        new = binding.generation(2)
        fill(new, 30)
        binding.flip(2)
        await world.start_gateway()
        await tab.state("live", 40)
        await tab.until_cells("all|0|g2-")
        assert driver.generation == 1


async def test_what_came_from_a_topic_is_text(tab: Tab) -> None:
    async with World() as world:
        binding = world.binding()
        driver = binding.generation(1)
        driver.tables["final_ui"].put([person(1, 1, name=SCRIPT, accountType=SCRIPT)])
        binding.flip(1)
        binding.message(SCRIPT, "rejected", SCRIPT)
        binding.event("Odd", SCRIPT, kind="Warning")
        binding.report(
            1, badSamples=[{"side": "users", "partition": 0, "offset": 1, "reason": "x", "value": SCRIPT}]
        )
        binding.stall("Odd", SCRIPT)
        await tab.open(world.url + "/" + HERE)
        await tab.until_cells("contains|<script>")
        await tab.page.wait_for_selector("#control .message:has-text('<script>')")
        await tab.page.wait_for_selector("#logs .msg:has-text('<script>')")
        assert SCRIPT in await tab.page.inner_text("#notice")
        await tab.page.wait_for_selector(".top-label:has-text('<script>')")
        assert await tab.page.evaluate("window.hacked") is None
        assert (
            await tab.page.evaluate("document.querySelectorAll('main img[src=x], main script').length") == 0
        )
        await tab.screenshot("text")
        assert tab.complaints == []


async def test_the_timeline_tells_progress_linger_and_failure(tab: Tab) -> None:
    async with World() as world:
        binding, _ = served(world)
        binding.generation(2)
        binding.report(2, phase="Reading", progress={"percent": 42, "etaSeconds": 9})
        await tab.open(world.url + "/" + HERE)
        building = tab.page.locator("[data-generation='2']")
        await building.get_by_text("42 %, about 9.0 s to go").wait_for()
        assert await building.locator("progress").get_attribute("value") == "42"
        fill(world.drivers.drivers["shop", "orders-g2"], 10)
        binding.report(2, phase="CaughtUp")
        binding.flip(2)
        binding.retire_at(1, datetime.now(UTC) + timedelta(seconds=8))
        await tab.page.locator("[data-generation='1']").get_by_text("lingers for").wait_for()
        binding.generation(3, "no-such-topic")
        binding.report(
            3, phase="Failed", reason="TopicNotFound", message="topic no-such-topic does not exist"
        )
        binding.stall("TopicNotFound", "topic no-such-topic does not exist")
        await tab.page.locator("[data-generation='3']").get_by_text("does not exist").wait_for()
        assert "TopicNotFound" in await tab.page.inner_text("#notice")
        await tab.state("live")
        await tab.screenshot("timeline")
        binding.message('{"userTopic": "x"}', "rejected", "unknown key userTopic; did you mean usersTopic?")
        await tab.page.locator("#control").get_by_text("did you mean usersTopic").wait_for()


async def test_keys_reach_everything(tab: Tab) -> None:
    async with World() as world:
        served(world)
        second = world.binding("zebra")
        fill(second.generation(1, "zebra-users"), 3)
        second.flip(1)
        await tab.open(world.url + "/" + HERE)
        await tab.until_cells("contains|g1-u000")
        for key, table in (("2", "users_ui"), ("3", "accounts_ui"), ("1", "final_ui")):
            await tab.page.keyboard.press(key)
            await tab.page.wait_for_function(f"() => location.hash.includes('{table}')")
            # The other tables show the same users: only the page can tell whose rows these are.
            drawn = f"window.topicbinding.shown.table === '{table}' && window.topicbinding.drawn === 1"
            await tab.page.wait_for_function(f"() => {drawn}")
        await tab.until_cells("contains|g1-u000")
        await tab.page.keyboard.press("/")
        await tab.page.keyboard.type("g1-u007")
        await tab.until_cells("count|1")
        await tab.page.keyboard.press("Escape")
        await tab.page.keyboard.press("t")
        assert await tab.page.evaluate("document.documentElement.dataset.theme") == "light"
        await tab.page.wait_for_function(
            "() => document.querySelector('perspective-viewer').getAttribute('theme') === 'Pro Light'"
        )
        await tab.page.keyboard.press("c")
        await tab.page.wait_for_function(
            "() => document.querySelector('perspective-viewer').hasAttribute('settings')"
        )
        await tab.screenshot("settings")
        await tab.page.keyboard.press("c")
        await tab.page.keyboard.press("?")
        assert await tab.page.is_visible("#help")
        await tab.page.keyboard.press("Escape")
        await tab.page.wait_for_selector("#help", state="hidden")
        # Straight after the settings have closed: what the grid says late must not take the step back.
        await tab.page.locator("#bindings").get_by_text("zebra").first.wait_for()
        await tab.page.keyboard.press("j")
        await tab.page.wait_for_function("() => location.hash.includes('/zebra/')")
        await tab.until_cells("count|3")
        await tab.page.keyboard.press("k")
        await tab.until_cells("contains|g1-u000")
        # Everything that can be clicked can be reached by Tab.
        unreachable = await tab.page.evaluate(
            "[...document.querySelectorAll('main button, main a, main input')]"
            ".filter((each) => each.offsetParent && each.tabIndex < 0).length"
        )
        assert unreachable == 0


async def test_a_phone_shows_one_panel_at_a_time(phone: Tab) -> None:
    async with World() as world:
        binding, _ = served(world)
        binding.event("Building", "building generation 2")
        await phone.open(world.url + "/" + HERE)
        await phone.state("live")
        await phone.until_cells("contains|g1-u000")
        await phone.screenshot("phone")
        wide = await phone.page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")
        assert not wide, "nothing sticks out sideways"
        for panel in ("charts", "generations", "control", "logs", "table"):
            await phone.page.click(f"#tabs button[data-panel={panel}]")
            assert await phone.page.is_visible(f"#panel-{panel}")
            if panel != "table":
                assert not await phone.page.is_visible("#panel-table")
        await phone.page.click("#menu")
        await phone.page.click("a.binding:has-text('orders')")
        await phone.page.wait_for_function("() => !document.body.classList.contains('menu-open')")


async def test_rows_can_be_taken_home(tab: Tab) -> None:
    async with World() as world:
        served(world)
        await tab.open(world.url + "/" + HERE)
        await tab.until_cells("contains|g1-u000")
        async with tab.page.expect_download() as started:
            await tab.page.click("#download-csv")
        download = await started.value
        assert download.suggested_filename == "orders-final_ui-g1.csv"
        text = await asyncio.to_thread((await download.path()).read_text)
        rows = list(csv.DictReader(text.splitlines()))
        assert len(rows) == 100
        assert rows[0]["userId"] == "g1-u000"


class Directory:
    """Knows one token."""

    async def review_token(self, token: str) -> User | None:
        return User("ann") if token == "ann's token" else None

    async def review_access(self, user: User, namespace: str, name: str) -> bool:
        return namespace == "shop"


async def test_a_token_is_asked_for_and_kept_in_the_tab(tab: Tab) -> None:
    async with World(access=TokenAccess(Directory(), 30)) as world:
        served(world)
        world.binding("vault", "bank")
        await tab.open(world.url + "/")
        await tab.page.fill("#token", "a wrong one")
        await tab.page.click("#login-form button")
        await tab.page.get_by_text("not accepted by the cluster").wait_for()
        await tab.page.fill("#token", "ann's token")
        await tab.page.click("#login-form button")
        await tab.until_cells("contains|g1-u000")
        assert await tab.page.locator("a.binding").count() == 1, "what she may not see is not listed"
        await tab.page.reload()
        await tab.until_cells("contains|g1-u000")
        assert not await tab.page.is_visible("#access")
        assert "ann" not in await tab.page.evaluate(
            "JSON.stringify(localStorage) + location.href + document.cookie"
        )
