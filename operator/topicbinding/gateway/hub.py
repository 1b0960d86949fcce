"""All channels of this replica: made when first wanted, kept while watched and a little longer, closed when
idle.

Called by the routes; owns the one HTTP session to drivers and bridges and the one ticking task.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import aiohttp

from topicbinding.api import names
from topicbinding.gateway import builtin
from topicbinding.gateway.builtin import BuiltinChannel, ControlChannel, LogsChannel, StatusChannel
from topicbinding.gateway.channel import Channel, GenerationChannel
from topicbinding.gateway.directory import Directory, Key
from topicbinding.gateway.mirror import Mirror
from topicbinding.gateway.settings import Settings
from topicbinding.gateway.upstream import TokenFile, Upstream
from topicbinding.tables.rows import warm_up

TABLES: Final = (*names.DATA_TABLES, names.STATUS_TABLE, names.LOGS_TABLE, names.CONTROL_TABLE)
LOOK_SECONDS: Final = 0.5
BRIDGE_SECONDS: Final = 3.0
MAX_BRIDGE_ANSWER: Final = 4 << 20

ChannelKey = tuple[Key, str, int | None]


class Hub:
    def __init__(self, directory: Directory, settings: Settings, down_seconds: Callable[[], float]) -> None:
        """`down_seconds` tells for how long the API server has not been watched; 0 while it is."""
        self.directory = directory
        self.settings = settings
        self._down_seconds = down_seconds
        self._channels: dict[ChannelKey, Channel] = {}
        self._token = TokenFile(settings.token_file)
        self._http: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        # Arrow's first merge takes a tenth of a second; better now than under the first viewers.
        await asyncio.to_thread(warm_up)
        self._http = aiohttp.ClientSession(
            # No cache: a driver that was restarted has another address. No limit: streams stay open.
            connector=aiohttp.TCPConnector(use_dns_cache=False, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=3, sock_connect=3),
        )
        self.directory.listen(self._changed)
        self._task = asyncio.create_task(self._tick(), name="hub")

    async def stop(self) -> None:
        self.directory.unlisten(self._changed)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        self._channels.clear()
        if self._http is not None:
            await self._http.close()

    def channel(self, key: Key, table: str, generation: int | None = None) -> Channel:
        """The channel of a table; `generation` pins it to one generation for as long as that lives."""
        pinned = generation if table in names.DATA_TABLES else None
        found = self._channels.get((key, table, pinned))
        if found is None:
            found = self._make(key, table, pinned)
            self._channels[key, table, pinned] = found
        found.idle_since = time.monotonic()
        return found

    def channels(self) -> list[Channel]:
        return list(self._channels.values())

    def _make(self, key: Key, table: str, pinned: int | None) -> Channel:
        if table in names.DATA_TABLES:
            return GenerationChannel(
                key, table, pinned, self.directory, self.settings, self._opener(key, table)
            )
        if table == names.CONTROL_TABLE:
            return ControlChannel(
                key, table, self.directory, self.settings, self._down_seconds, self._fetch_control
            )
        kind: type[BuiltinChannel] = {names.STATUS_TABLE: StatusChannel, names.LOGS_TABLE: LogsChannel}[table]
        return kind(key, table, self.directory, self.settings, self._down_seconds)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("the hub is not started")
        return self._http

    def _opener(
        self, key: Key, table: str
    ) -> Callable[[Mirror, str, Callable[[], None], Callable[[], float]], Upstream]:
        def open_upstream(
            mirror: Mirror, generation: str, changed: Callable[[], None], gather: Callable[[], float]
        ) -> Upstream:
            base = self.settings.driver_url.format(generation=generation, namespace=key.namespace)
            url = f"{base}/v1/tables/{table}/stream"
            return Upstream(mirror, url, self._session(), self._token, changed, gather=gather)

        return open_upstream

    async def _fetch_control(self, key: Key) -> list[builtin.Row]:
        base = self.settings.bridge_url.format(bridge=names.bridge_name(key.name), namespace=key.namespace)
        async with self._session().get(
            f"{base}/v1/control_raw",
            headers=self._token.headers(),
            timeout=aiohttp.ClientTimeout(total=BRIDGE_SECONDS),
            raise_for_status=True,
        ) as answer:
            if (answer.content_length or 0) > MAX_BRIDGE_ANSWER:
                raise ValueError("the bridge's answer is too large")
            return builtin.read_control(await answer.json())

    def _changed(self, key: Key) -> None:
        for (owner, _, _), channel in list(self._channels.items()):
            if owner == key:
                channel.retarget()

    async def _tick(self) -> None:
        beat = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            due = now - beat >= self.settings.heartbeat_seconds - LOOK_SECONDS / 2
            if due:
                beat = now
            for key, channel in list(self._channels.items()):
                channel.look()
                if due:
                    channel.tick()
                if not channel.viewers and now - channel.idle_since > self.settings.idle_seconds:
                    del self._channels[key]
                    await channel.close()
