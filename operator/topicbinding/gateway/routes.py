"""The API and the page. Each route: who is asking, may they see it, answer. Documented in docs/openapi.yaml.

Called by `app`, which puts the guard before them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final

from aiohttp import hdrs, web

from topicbinding import __version__
from topicbinding.api import names
from topicbinding.gateway import streams, views
from topicbinding.gateway.access import Access
from topicbinding.gateway.channel import Channel, Signal
from topicbinding.gateway.directory import Directory, Entry, Key
from topicbinding.gateway.guard import client_of
from topicbinding.gateway.hub import TABLES, Hub
from topicbinding.gateway.kube import User
from topicbinding.gateway.limits import Streams
from topicbinding.gateway.metrics import Metrics
from topicbinding.gateway.mirror import Mirror
from topicbinding.gateway.settings import Settings
from topicbinding.gateway.states import State
from topicbinding.gateway.viewer import Place, Viewer
from topicbinding.tables.formats import CONTENT_TYPES, Format, FormatError, choose, write
from topicbinding.tables.query import Query, QueryError

BINDING: Final = "/v1/bindings/{namespace}/{name}"
TABLE: Final = BINDING + "/tables/{table}"
KEEP_ALIVE_SECONDS: Final = 2.0


class Routes:
    def __init__(
        self,
        directory: Directory,
        hub: Hub,
        access: Access,
        settings: Settings,
        metrics: Metrics,
        limits: Streams,
        *,
        ready: Callable[[], bool],
        down_seconds: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._hub = hub
        self._access = access
        self._settings = settings
        self._metrics = metrics
        self._limits = limits
        self._ready = ready
        self._down_seconds = down_seconds
        self._signal = Signal()
        directory.listen(lambda _: self._signal.fire())

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/v1/session", self.session)
        app.router.add_get("/v1/bindings", self.bindings)
        app.router.add_get("/v1/bindings/stream", self.bindings_stream)
        app.router.add_get(BINDING, self.binding)
        app.router.add_get(BINDING + "/stream", self.binding_stream)
        app.router.add_get(TABLE, self.table)
        app.router.add_get(TABLE + "/stream", self.table_stream)

    # -- for machines

    async def healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        if not self._ready():
            return web.Response(status=503, text="the bindings are not listed yet\n")
        return web.Response(text="ok\n")

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(), headers={hdrs.CONTENT_TYPE: "text/plain; version=0.0.4"}
        )

    # -- bindings

    async def session(self, request: web.Request) -> web.Response:
        """Who the asker is. In token mode without a token the answer is still 200: the page then asks for
        one."""
        answer = {"access": self._access.mode, "version": __version__, "user": None}
        try:
            answer["user"] = (await self._access.who(request)).name
        except web.HTTPUnauthorized:
            if request.headers.get(hdrs.AUTHORIZATION):
                raise
        return web.json_response(answer, headers={hdrs.CACHE_CONTROL: "no-store"})

    async def bindings(self, request: web.Request) -> web.Response:
        user = await self._access.who(request)
        return web.json_response(await self._list(user), headers={hdrs.CACHE_CONTROL: "no-store"})

    async def bindings_stream(self, request: web.Request) -> web.StreamResponse:
        user = await self._access.who(request)
        return await self._documents(request, "bindings", lambda: self._list(user))

    async def binding(self, request: web.Request) -> web.Response:
        _, key, entry = await self._find(request)
        return web.json_response(self._detail(key, entry), headers={hdrs.CACHE_CONTROL: "no-store"})

    async def binding_stream(self, request: web.Request) -> web.StreamResponse:
        user, key, _ = await self._find(request)

        async def document() -> dict[str, Any]:
            entry = self._directory.get(key)
            if entry is None or not await self._access.may_see(user, key.namespace):
                return {"namespace": key.namespace, "name": key.name, "deleted": True}
            return self._detail(key, entry)

        return await self._documents(request, "binding", document)

    def _detail(self, key: Key, entry: Entry) -> dict[str, Any]:
        return {**views.detail(key, entry), "now": _now(), "watchDownSeconds": round(self._down_seconds(), 1)}

    async def _list(self, user: User) -> dict[str, Any]:
        keys = self._directory.keys()
        namespaces = sorted({key.namespace for key in keys})
        seen = await asyncio.gather(*(self._access.may_see(user, namespace) for namespace in namespaces))
        visible = {namespace for namespace, allowed in zip(namespaces, seen, strict=True) if allowed}
        found = [(key, self._directory.get(key)) for key in keys if key.namespace in visible]
        return {
            "bindings": [views.summary(key, entry) for key, entry in found if entry is not None],
            "access": self._access.mode,
            "now": _now(),
            "watchDownSeconds": round(self._down_seconds(), 1),
        }

    async def _documents(
        self, request: web.Request, kind: str, make: Callable[[], Any]
    ) -> web.StreamResponse:
        """Send a document whenever it changes, and a comment when it does not, so that silence means
        trouble."""
        with self._limits.one(client_of(request)):
            response = streams.event_stream()
            await response.prepare(request)
            last = ""
            while True:
                signal = self._signal.arm()
                document = await make()
                compared = json.dumps({**document, "now": 0}, sort_keys=True)
                try:
                    if compared != last:
                        last = compared
                        await response.write(streams.event(kind, json.dumps(document, ensure_ascii=False)))
                    else:
                        await response.write(b": still here\n\n")
                except ConnectionError:
                    return response
                await asyncio.wait([signal], timeout=KEEP_ALIVE_SECONDS)

    # -- tables

    async def table(self, request: web.Request) -> web.StreamResponse:
        _, channel = await self._channel(request)
        parameters = _parameters(request)
        try:
            form = choose(parameters.get("format"), request.headers.get(hdrs.ACCEPT))
            query = Query.from_params(parameters, ignore=("format", "generation", "download"))
        except FormatError as error:
            kind = web.HTTPBadRequest if parameters.get("format") else web.HTTPNotAcceptable
            raise kind(text=str(error)) from None
        except QueryError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        watcher = object()
        channel.join(watcher)
        try:
            mirror = await self._first_rows(channel)
            rows = await mirror.table()
        finally:
            channel.leave(watcher)
        try:
            answer = await asyncio.to_thread(query.run, rows)
        except QueryError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        meta = {
            "generation": mirror.generation,
            "epoch": mirror.epoch,
            "seq": mirror.shown,
            "state": channel.told.state.value,
            "reason": channel.told.reason,
            "ageMs": channel.age_ms(),
            "total": answer.total,
        }
        response = web.StreamResponse(headers=_table_headers(request, form, meta, "download" in parameters))
        response.enable_compression()
        await response.prepare(request)
        pieces = write(answer.rows, form, meta)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await response.write(piece)
        await response.write_eof()
        return response

    async def table_stream(self, request: web.Request) -> web.StreamResponse:
        user, channel = await self._channel(request)
        parameters = _parameters(request)
        for name in parameters:
            if name not in ("generation", "format", "resume"):
                raise web.HTTPBadRequest(
                    text=f"unknown parameter {name!r}; known: format, generation, resume"
                )
        form = parameters.get("format", "arrow")
        if form not in ("arrow", "json"):
            raise web.HTTPBadRequest(text="format of a stream is arrow or json")
        place = parameters.get("resume") or request.headers.get("Last-Event-ID")
        viewer = Viewer(Place.parse(place))

        async def still_allowed() -> bool:
            return await self._access.may_see(user, channel.key.namespace)

        with self._limits.one(client_of(request)):
            if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
                return await streams.websocket(
                    request, channel, viewer, self._metrics, still_allowed, as_json=form == "json"
                )
            return await streams.events(request, channel, viewer, self._metrics, still_allowed)

    async def _find(self, request: web.Request) -> tuple[User, Key, Entry]:
        user = await self._access.who(request)
        key = Key(request.match_info["namespace"], request.match_info["name"])
        entry = self._directory.get(key)
        # One answer for what does not exist and for what may not be seen: names are not to be guessed.
        if not await self._access.may_see(user, key.namespace) or entry is None:
            if not self._ready():
                raise web.HTTPServiceUnavailable(text="the bindings are not listed yet")
            raise web.HTTPNotFound(text=f"there is no binding {key.namespace}/{key.name} that you may see")
        return user, key, entry

    async def _channel(self, request: web.Request) -> tuple[User, Channel]:
        user, key, entry = await self._find(request)
        table = request.match_info["table"]
        if table not in TABLES:
            raise web.HTTPNotFound(text=f"there is no table {table!r}; there are {', '.join(TABLES)}")
        text = request.query.get("generation", "")
        if not text:
            return user, self._hub.channel(key, table)
        if table not in names.DATA_TABLES:
            raise web.HTTPBadRequest(text=f"{table} belongs to the binding, not to a generation")
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise web.HTTPBadRequest(text="generation must be a number")
        if int(text) not in entry.generations:
            living = ", ".join(str(number) for number in sorted(entry.generations)) or "none"
            raise web.HTTPNotFound(text=f"generation {text} is not there (any more); living: {living}")
        return user, self._hub.channel(key, table, int(text))

    async def _first_rows(self, channel: Channel) -> Mirror:
        deadline = time.monotonic() + self._settings.first_rows_seconds
        while channel.current is None:
            signal = channel.signal.arm()
            left = deadline - time.monotonic()
            if channel.told.state is State.FAILED or left <= 0:
                raise web.HTTPServiceUnavailable(
                    text=f"{channel.told.state}: {channel.told.reason or 'no rows yet'}",
                    headers={hdrs.RETRY_AFTER: "2"},
                )
            await asyncio.wait([signal], timeout=left)
        return channel.current


def _parameters(request: web.Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name in found:
            raise web.HTTPBadRequest(text=f"parameter {name!r} is given twice")
        found[name] = value
    return found


def _table_headers(
    request: web.Request, form: Format, meta: dict[str, Any], download: bool
) -> dict[str, str]:
    headers = {
        hdrs.CONTENT_TYPE: CONTENT_TYPES[form],
        hdrs.CACHE_CONTROL: "no-store",
        "X-TopicBinding-Generation": str(meta["generation"]),
        "X-TopicBinding-Seq": str(meta["seq"]),
        "X-TopicBinding-State": str(meta["state"]),
        "X-TopicBinding-Total": str(meta["total"]),
    }
    if form is Format.CSV:
        headers[hdrs.CONTENT_TYPE] += "; charset=utf-8"
    if download:
        # Both names are validated by Kubernetes and by the table list: nothing in them needs quoting.
        info = request.match_info
        name = f"{info['name']}-{info['table']}-g{meta['generation']}.{form.value}"
        headers[hdrs.CONTENT_DISPOSITION] = f'attachment; filename="{name}"'
    return headers


def _now() -> int:
    return int(time.time() * 1000)
