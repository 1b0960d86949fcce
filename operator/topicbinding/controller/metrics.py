"""The controller's metrics, and the small HTTP server that shows them and /healthz."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from topicbinding.controller.actions import Action


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._passes = Histogram(
            "topicbinding_pass_seconds",
            "Time of one pass over one binding.",
            ["outcome"],
            registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self._actions = Counter(
            "topicbinding_actions", "Actions carried out.", ["reason"], registry=self.registry
        )
        self._requests = Histogram(
            "topicbinding_api_request_seconds",
            "Requests to the API server.",
            ["verb", "resource", "code"],
            registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.bindings = Gauge("topicbinding_bindings", "Bindings served.", registry=self.registry)
        self.waiting = Gauge("topicbinding_queue", "Bindings waiting for a pass.", registry=self.registry)

    def passed(self, seconds: float, outcome: str) -> None:
        self._passes.labels(outcome).observe(seconds)

    def acted(self, action: Action) -> None:
        self._actions.labels(action.reason).inc()

    def asked(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(code)).observe(seconds)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Probes and scrapes are no news."""


def serve(metrics: Metrics, port: int, healthy: Callable[[], bool]) -> _Server:
    """In a thread of its own. Health must not depend on the API server: restarting would not bring it
    back."""
    shown = make_wsgi_app(metrics.registry)

    def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            answer: Iterable[bytes] = shown(environ, start)
            return answer
        if path in ("/healthz", "/readyz"):
            well = healthy()
            start("200 OK" if well else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"ok\n" if well else b"the queue stands still\n"]
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"/healthz, /readyz, /metrics\n"]

    server = make_server("", port, application, server_class=_Server, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
