"""client.js in an application of another origin, without a build step: rows, swaps, states, and a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from tests.support.gateway_world import World

if TYPE_CHECKING:
    from tests.browser.conftest import Tab

APPLICATION = """<!doctype html><title>An application</title><ul id="rows"></ul>
<script type="module">
    window.seen = { updates: 0, swaps: [], states: [] };
    const gateway = new URLSearchParams(location.search).get("gateway");
    import(`${gateway}/client.js`).then(({ Gateway }) => {
        const table = new Gateway(gateway).binding("shop", "orders").getTable("users_ui");
        window.table = table;
        table.onUpdate(() => {
            window.seen.updates += 1;
            document.getElementById("rows").replaceChildren(
                ...table.rows.map(({ name: textContent }) =>
                    Object.assign(document.createElement("li"), { textContent })));
        });
        table.onSwap((swap) => window.seen.swaps.push(swap));
        table.onState(({ state }) => window.seen.states.push(state));
    }).catch((error) => { window.refused = String(error); });
</script>"""


@asynccontextmanager
async def application(port: int = 0) -> AsyncIterator[str]:
    """A page somewhere else; yields its origin."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=APPLICATION, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_application_elsewhere_follows_a_table_over_a_swap(tab: Tab) -> None:
    async with application() as origin, World(allowed_origins=origin) as world:
        binding = world.binding()
        driver = binding.generation(1)
        driver.tables["users_ui"].put([{"userId": "u1", "name": "Ann"}, {"userId": "u2", "name": "Bob"}])
        binding.flip(1)
        await tab.open(f"{origin}/?gateway={world.url}")
        await tab.page.wait_for_selector("li:has-text('Bob')")
        driver.tables["users_ui"].put(
            [{"_row": 0, "userId": "u1", "name": "Anna"}, {"userId": "u3", "name": "Eve"}]
        )
        await tab.page.wait_for_selector("li:has-text('Eve')")
        names = "[...document.querySelectorAll('li')].map((each) => each.textContent)"
        assert await tab.page.evaluate(names) == ["Anna", "Bob", "Eve"], (
            "changed in place, in order of arrival"
        )
        new = binding.generation(2)
        new.tables["users_ui"].put([{"userId": "z", "name": "Zoe"}])
        binding.flip(2)
        await tab.page.wait_for_selector("li:has-text('Zoe')")
        assert await tab.page.evaluate(names) == ["Zoe"]
        assert await tab.page.evaluate("window.seen.swaps") == [{"from": 1, "to": 2}]
        await tab.page.wait_for_function("() => window.seen.states.at(-1) === 'live'")
        assert await tab.page.evaluate("window.table.connections") == 1
        # The gateway restarts: the table says that it is lost, keeps its rows and goes on where it was.
        await world.stop_gateway()
        await tab.page.wait_for_function("() => window.seen.states.at(-1) === 'lost'")
        assert await tab.page.evaluate(names) == ["Zoe"]
        new.tables["users_ui"].put([{"userId": "y", "name": "Yan"}])
        await world.start_gateway()
        await tab.page.wait_for_selector("li:has-text('Yan')")
        assert await tab.page.evaluate(names) == ["Zoe", "Yan"]
        assert await tab.page.evaluate("window.seen.swaps.length") == 1


async def test_an_application_that_is_not_allowed_gets_nothing(tab: Tab) -> None:
    async with application() as origin, World() as world:
        binding = world.binding()
        binding.generation(1).tables["users_ui"].put([{"userId": "u1", "name": "Ann"}])
        binding.flip(1)
        await tab.open(f"{origin}/?gateway={world.url}")
        await tab.page.wait_for_function("() => window.refused !== undefined")
        assert await tab.page.evaluate("window.table") is None
