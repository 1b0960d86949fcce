"""What every request passes before any route sees it: host, origin, rate; and what every answer carries.

The page runs no inline script and loads nothing from elsewhere; the headers make the browser hold us to it.
"""

from __future__ import annotations

import logging
import time
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from topicbinding.gateway.kube import Unreachable
from topicbinding.gateway.limits import Rate, TooMany
from topicbinding.gateway.metrics import Metrics
from topicbinding.gateway.settings import Settings

log = logging.getLogger(__name__)

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        # WebAssembly is Perspective's engine; no other kind of evaluation is allowed.
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self' blob:",
        # Perspective's elements write style tags into their own shadow roots.
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS: Final = {
    "Server": "topicbinding",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})


class Guard:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._rate = Rate(settings.requests_per_second, settings.request_burst)

    async def on_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """On every answer, streams included, before its first byte."""
        for name, value in SECURITY_HEADERS.items():
            response.headers[name] = value
        origin = request.headers.get(hdrs.ORIGIN)
        if origin and origin.lower() in self._settings.origins:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            response.headers[hdrs.VARY] = "Origin"
            response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"

    def middleware(self) -> Middleware:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                response = await self._answer(request, handler)
            except web.HTTPException as error:
                response = _problem(error.status, error.text or error.reason, error.headers)
            except TooMany as error:
                response = _problem(429, str(error), {hdrs.RETRY_AFTER: str(int(error.retry_seconds) + 1)})
            except Unreachable:
                response = _problem(
                    503, "the API server cannot be asked who you are", {hdrs.RETRY_AFTER: "2"}
                )
            except (ConnectionError, TimeoutError):
                raise
            except Exception:
                # The person gets no internals; the log has them.
                log.exception("a request to %s failed", request.path)
                response = _problem(500, "the gateway made a mistake; its log tells more", {})
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "unknown"
            self._metrics.requests.labels(route, str(response.status)).inc()
            return response

        return guarded

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROBES:
            return await handler(request)
        self._check_host(request)
        self._check_origin(request)
        self._rate.take(client_of(request), time.monotonic())
        if request.method == hdrs.METH_OPTIONS:
            return _preflight()
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "HEAD"], text="this API only reads")
        return await handler(request)

    def _check_host(self, request: web.Request) -> None:
        if self._settings.access != "open":
            return
        host = _host_name(request.host)
        if host not in self._settings.open_host_names:
            raise web.HTTPForbidden(
                text="this gateway asks nobody for a token and therefore answers only on this machine "
                f"({', '.join(sorted(self._settings.open_host_names))}); switch its access to token"
            )

    def _check_origin(self, request: web.Request) -> None:
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None:
            return
        if (
            origin.lower() in self._settings.origins
            or urlsplit(origin).netloc.lower() == request.host.lower()
        ):
            return
        raise web.HTTPForbidden(text="pages of this origin may not read from here")


def client_of(request: web.Request) -> str:
    """Whom a limit is counted against before anybody is authenticated: the address."""
    return request.remote or "unknown"


def _host_name(host: str) -> str:
    name = host.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


def _preflight() -> web.Response:
    return web.Response(
        status=204,
        headers={
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET, HEAD",
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: "Authorization, Last-Event-ID",
            hdrs.ACCESS_CONTROL_MAX_AGE: "600",
        },
    )


def _problem(status: int, message: str, headers: dict[str, str] | object) -> web.Response:
    """An error as JSON, with the headers that belong to it (Retry-After, WWW-Authenticate, Allow)."""
    kept = {}
    for name in (hdrs.RETRY_AFTER, hdrs.WWW_AUTHENTICATE, hdrs.ALLOW):
        value = headers.get(name) if hasattr(headers, "get") else None
        if value:
            kept[str(name)] = str(value)
    return web.json_response({"error": message}, status=status, headers=kept)
