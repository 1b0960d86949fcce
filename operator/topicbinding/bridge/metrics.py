"""The bridge's figures for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from topicbinding.api import VerdictCounts


class Metrics:
    """A registry of its own: one process may hold several bridges in a test."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._verdicts = Counter(
            "topicbinding_bridge_messages",
            "Control messages by verdict.",
            ["verdict"],
            registry=self.registry,
        )
        self._patch_seconds = Histogram(
            "topicbinding_bridge_patch_seconds",
            "From folding to the API server's answer.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
            registry=self.registry,
        )
        self.conflicts = Counter(
            "topicbinding_bridge_conflicts",
            "Patches that came after somebody else's and were folded again.",
            registry=self.registry,
        )
        self.answers_dropped = Counter(
            "topicbinding_bridge_answers_dropped",
            "Receipts and dead letters that could not be sent.",
            registry=self.registry,
        )
        self.connected = Gauge(
            "topicbinding_bridge_connected", "1 while control messages are read.", registry=self.registry
        )

    def judged(self, counts: VerdictCounts) -> None:
        for verdict, count in counts.model_dump().items():
            self._verdicts.labels(verdict).inc(count)

    def patched(self, seconds: float) -> None:
        self._patch_seconds.observe(seconds)

    def page(self) -> bytes:
        return generate_latest(self.registry)
