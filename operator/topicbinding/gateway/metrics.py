"""What the gateway counts, for /metrics. One registry for each application, so that tests do not share
them."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    def __init__(
        self, streams: Callable[[], int], channels: Callable[[], int], down: Callable[[], float]
    ) -> None:
        self._registry = CollectorRegistry()
        self.frames = self._counter("frames_sent", "Frames sent to viewers.", "type")
        self.bytes = self._counter("bytes_sent", "Bytes of frames sent to viewers.", "form")
        self.fallbacks = self._counter(
            "slow_viewer_snapshots", "Snapshots sent because a viewer was too slow for deltas."
        )
        self.requests = self._counter("requests", "Requests answered.", "route", "code")
        self._gauge("viewers", "Open streams.", streams)
        self._gauge("tables_open", "Tables that are kept connected for viewers.", channels)
        self._gauge("api_server_down_seconds", "How long the API server has not been watched.", down)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"topicbinding_gateway_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"topicbinding_gateway_{name}", text, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self._registry)
