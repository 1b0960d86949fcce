"""Puts the parts together into one web application. Called by `main`, and by tests with a directory of their
own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aiohttp import hdrs, web

from topicbinding.gateway.access import Access
from topicbinding.gateway.directory import Directory
from topicbinding.gateway.guard import Guard
from topicbinding.gateway.hub import Hub
from topicbinding.gateway.limits import Streams
from topicbinding.gateway.metrics import Metrics
from topicbinding.gateway.routes import Routes
from topicbinding.gateway.settings import Settings

MAX_REQUEST_BYTES = 16 * 1024
"""Requests carry no body; their headers and query are bounded by the server as well."""


def make_app(
    settings: Settings,
    directory: Directory,
    access: Access,
    *,
    ready: Callable[[], bool] = lambda: True,
    down_seconds: Callable[[], float] = lambda: 0.0,
) -> web.Application:
    hub = Hub(directory, settings, down_seconds)
    limits = Streams(settings.max_streams, settings.max_streams_per_client)
    metrics = Metrics(lambda: limits.open, lambda: len(hub.channels()), down_seconds)
    guard = Guard(settings, metrics)
    app = web.Application(middlewares=[guard.middleware()], client_max_size=MAX_REQUEST_BYTES)
    app.on_response_prepare.append(guard.on_prepare)
    Routes(directory, hub, access, settings, metrics, limits, ready=ready, down_seconds=down_seconds).add_to(
        app
    )
    _add_page(app, settings.page_dir)

    async def start(_: web.Application) -> None:
        await hub.start()

    async def stop(_: web.Application) -> None:
        await hub.stop()

    app.on_startup.append(start)
    app.on_cleanup.append(stop)
    return app


def _add_page(app: web.Application, folder: Path) -> None:
    async def index(_: web.Request) -> web.StreamResponse:
        page = folder / "index.html"
        if not page.is_file():
            raise web.HTTPNotFound(text="this gateway was built without its page; the API is at /v1/bindings")
        return web.FileResponse(page, headers={hdrs.CACHE_CONTROL: "no-cache"})

    async def client(_: web.Request) -> web.StreamResponse:
        return web.FileResponse(folder / "client.js", headers={hdrs.CACHE_CONTROL: "no-cache"})

    app.router.add_get("/", index)
    app.router.add_get("/client.js", client)
    if folder.is_dir():
        app.router.add_static("/page", folder)
