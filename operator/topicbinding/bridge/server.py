"""The bridge's HTTP: a sign of life, figures, and `control_raw` for the gateway.

Runs in the process's main thread; reads the service's journal and metrics, and changes nothing.
"""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from topicbinding.auth import NotAuthorized, TokenVerifier, bearer
from topicbinding.bridge.service import Service


class BridgeServer:
    """`application` is what `main` serves and tests call."""

    def __init__(self, service: Service, verifier: TokenVerifier | None) -> None:
        self._service = service
        self._verifier = verifier
        self.application = web.Application()
        self.application.router.add_get("/healthz", self._healthz)
        self.application.router.add_get("/readyz", self._healthz)
        self.application.router.add_get("/metrics", self._metrics)
        self.application.router.add_get("/v1/control_raw", self._control_raw)

    async def _healthz(self, _request: web.Request) -> web.Response:
        # Not whether Kafka or the API server is there: restarting the bridge would bring neither back.
        if self._service.alive:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the loop does not turn\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._service.metrics.page(), content_type="text/plain")

    async def _control_raw(self, request: web.Request) -> web.Response:
        """The last messages, oldest first, each with its verdict."""
        if self._verifier is None:
            return _error(403, "no gateway is named: control_raw is closed")
        try:
            token = bearer(request.headers.get("Authorization"))
            # In a thread: it may once have to ask the API server for its keys.
            await asyncio.to_thread(self._verifier.verify, token)
        except NotAuthorized as refused:
            return _error(401, str(refused))
        return web.json_response({"messages": self._service.journal.rows()}, dumps=_dumps)


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
