"""What the Kafka port gives and takes: our own frozen types, so the rules never see the client library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One message as it lay in the topic."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll brought: records in each partition's order, and the partitions now read to their end."""

    records: tuple[Record, ...] = ()
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Span:
    """What a partition holds: from `low` (first kept) to `high` (next to be written)."""

    low: int
    high: int


@dataclass(frozen=True)
class TopicState:
    """A topic as the broker describes it. The id tells a recreated topic from the one that was there before;
    brokers too old to have ids leave it empty."""

    name: str
    topic_id: str | None
    partitions: Mapping[int, Span] = field(default_factory=dict)


class KafkaProblem(Exception):  # noqa: N818 - it carries the condition reason that it becomes
    """Kafka cannot do what is needed now. `reason` is for programs, the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TopicMoved(Exception):  # noqa: N818 - a turn of events, not a fault
    """The topic is no longer what was opened (recreated, trimmed, more partitions): look again."""
