"""The gateway as a Python object: lists, queries and live tables."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
import pyarrow as pa

from topicbinding.client.live import LiveTable


class GatewayError(Exception):
    """The gateway refused; `status` is the HTTP status, the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Gateway:
    """`token` is a Kubernetes bearer token; a gateway with open access needs none."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # No deadline for the whole of a request: streams have none. Silence is noticed by its own.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._http = aiohttp.ClientSession(headers=headers, timeout=timeout)
        self._tables: list[LiveTable] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        for table in self._tables:
            await table.close()
        await self._http.close()

    async def bindings(self) -> list[dict[str, Any]]:
        """The bindings you may see, with their state."""
        answer = await self._get("/v1/bindings", {})
        found: list[dict[str, Any]] = (await _json(answer))["bindings"]
        return found

    async def binding(self, namespace: str, name: str) -> dict[str, Any]:
        """One binding with its generations, conditions and tables."""
        return await _json(await self._get(_path(namespace, name), {}))

    async def query(self, namespace: str, name: str, table: str, **parameters: str | int) -> pa.Table:
        """Rows of a table now: `columns`, `where`, `order`, `offset`, `limit`, `generation`."""
        wanted = {key: str(value) for key, value in parameters.items()} | {"format": "arrow"}
        answer = await self._get(f"{_path(namespace, name)}/tables/{quote(table, safe='')}", wanted)
        async with answer:
            return pa.ipc.open_stream(await answer.read()).read_all()

    async def get_table(
        self, namespace: str, name: str, table: str, *, generation: int | None = None, wait: float = 30.0
    ) -> LiveTable:
        """A live table; returns when its first rows are here (`wait` 0: at once)."""
        await self.binding(namespace, name)  # says clearly what is wrong with the name or the token
        url = f"{self._url}{_path(namespace, name)}/tables/{quote(table, safe='')}/stream"
        live = LiveTable(self._http, url, {} if generation is None else {"generation": str(generation)})
        self._tables.append(live)
        if wait:
            await live.until(lambda each: each.complete, wait)
        return live

    async def _get(self, path: str, parameters: dict[str, str]) -> aiohttp.ClientResponse:
        answer = await self._http.get(self._url + path, params=parameters)
        if answer.status != 200:
            async with answer:
                raise GatewayError(answer.status, await _error(answer))
        return answer


def _path(namespace: str, name: str) -> str:
    return f"/v1/bindings/{quote(namespace, safe='')}/{quote(name, safe='')}"


async def _json(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    async with answer:
        body: dict[str, Any] = await answer.json()
        return body


async def _error(answer: aiohttp.ClientResponse) -> str:
    try:
        return str((await answer.json())["error"])
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        return answer.reason or "no reason given"
