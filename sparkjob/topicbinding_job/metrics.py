"""The driver's figures for Prometheus, read from its state when they are asked for. `serve` shows them at
/metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from topicbinding_job import wire
from topicbinding_job.state import DriverState

FRESHNESS_BUCKETS: Final = (0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.45, 1.0, 2.0, 5.0, 15.0, 60.0)


class Metrics:
    """What is counted as it happens; everything else is read from the state."""

    def __init__(self, state: DriverState) -> None:
        self.registry = CollectorRegistry()
        self.freshness = Histogram(
            "topicbinding_freshness_seconds",
            "From a row's Kafka timestamp to the frame that carries it.",
            buckets=FRESHNESS_BUCKETS,
            registry=self.registry,
        )
        self.clients = Gauge(
            "topicbinding_stream_clients", "Open streams.", ["table"], registry=self.registry
        )
        self.dropped = Counter(
            "topicbinding_stream_resets_total",
            "Slow readers that were given a new snapshot.",
            ["table"],
            registry=self.registry,
        )
        self.registry.register(_StateCollector(state))


class _StateCollector(Collector):
    def __init__(self, state: DriverState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        state = self._state
        phase = GaugeMetricFamily("topicbinding_phase", "1 for the present phase.", labels=["phase"])
        phase.add_metric([state.phase.value], 1)
        yield phase
        archive = GaugeMetricFamily(
            "topicbinding_class_archive_used", "1 if the JVM started from the image's class archive."
        )
        archive.add_metric([], float(state.archive_used))
        yield archive
        batch = GaugeMetricFamily("topicbinding_batch_seconds", "Duration of the last micro-batch.")
        batch.add_metric([], state.batch_seconds)
        yield batch
        lag = GaugeMetricFamily("topicbinding_lag_rows", "Rows not read yet.", labels=["side", "partition"])
        for (side, partition), rows in tuple(state.lag_by_partition.items()):
            lag.add_metric([side, str(partition)], rows)
        yield lag
        log = state.log
        if log is None:
            return
        size = GaugeMetricFamily("topicbinding_table_rows", "Rows of a table.", labels=["table"])
        seq = CounterMetricFamily("topicbinding_table_changes", "Changes of a table.", labels=["table"])
        for table in log.tables.values():
            size.add_metric([table.name], table.rows)
            seq.add_metric([table.name], table.seq)
        yield size
        yield seq
        memory = GaugeMetricFamily("topicbinding_log_bytes", "Memory of the table log.")
        memory.add_metric([], log.nbytes)
        yield memory
        for name, words in (
            ("bad", "Rows that were no JSON object or had a wrong type."),
            ("null_keys", "Rows without a key."),
            ("tombstones", "Records without a value."),
        ):
            family = CounterMetricFamily(f"topicbinding_{name}_rows", words, labels=["side"])
            for side, rows_of_side in zip(wire.SIDES, log.side_rows, strict=True):
                family.add_metric([side], getattr(rows_of_side, name))
            yield family
