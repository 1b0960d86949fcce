"""What the gateway counts, for /metrics. One registry for each application, so that tests do not share
them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "topicbinding_gateway_"


class Sent(Collector):
    """Frames and bytes sent, as plain numbers: they are counted tens of thousands of times a second."""

    def __init__(self) -> None:
        self._frames: Tally[str] = Tally()
        self._bytes: Tally[str] = Tally()

    def add(self, kind: str, form: str, size: int) -> None:
        self._frames[kind] += 1
        self._bytes[form] += size

    def collect(self) -> Iterator[Metric]:
        for name, text, label, tally in (
            ("frames_sent", "Frames sent to viewers.", "type", self._frames),
            ("bytes_sent", "Bytes of frames sent to viewers.", "form", self._bytes),
        ):
            family = CounterMetricFamily(PREFIX + name, text, labels=[label])
            for value, count in tally.items():
                family.add_metric([value], count)
            yield family


class Metrics:
    def __init__(
        self, streams: Callable[[], int], channels: Callable[[], int], down: Callable[[], float]
    ) -> None:
        self._registry = CollectorRegistry()
        self.sent = Sent()
        self._registry.register(self.sent)
        self.fallbacks = self._counter(
            "slow_viewer_snapshots", "Snapshots sent because a viewer was too slow for deltas."
        )
        self.requests = self._counter("requests", "Requests answered.", "route", "code")
        self._gauge("viewers", "Open streams.", streams)
        self._gauge("tables_open", "Tables that are kept connected for viewers.", channels)
        self._gauge("api_server_down_seconds", "How long the API server has not been watched.", down)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(PREFIX + name, text, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self._registry)
