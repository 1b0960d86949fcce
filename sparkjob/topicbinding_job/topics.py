"""The driver's only talk with Kafka besides Spark's own: are the topics there, may we read them, where do
they begin and end.

Called by `driver` before Spark is up, because librdkafka knows within a second what Spark would say after a
minute. Every trouble becomes a `KafkaProblem`, whose reason goes to the Generation's status.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from topicbinding.api import Offsets, Source
from topicbinding.kafka.problems import NO_TOPIC, Troubles, not_allowed
from topicbinding.kafka.records import KafkaProblem

logger = logging.getLogger(__name__)

# The library's annotations leave these two out.
_admin_names: Any = kafka_admin
AclOperation = _admin_names.AclOperation
OffsetSpec = _admin_names.OffsetSpec

Positions = dict[int, int]
"""Offsets by partition."""


@dataclass(frozen=True, slots=True)
class Span:
    """What there is to read of one topic: where to begin and where it ended when asked."""

    start: Positions
    end: Positions


@dataclass(frozen=True, slots=True)
class Plan:
    """Both topics, pinned. `notes` says what could not be as it was pinned."""

    users: Span
    accounts: Span
    notes: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[Span, Span]:
        return self.users, self.accounts

    @property
    def start_offsets(self) -> Offsets:
        return Offsets(users=_words(self.users.start), accounts=_words(self.accounts.start))

    @property
    def end_offsets(self) -> Offsets:
        return Offsets(users=_words(self.users.end), accounts=_words(self.accounts.end))

    def tasks(self, shuffle: int) -> int:
        """Tasks of a real-time query, which all run at the same time: a partition's each, and the state's."""
        return sum(len(span.start) for span in self.sides) + shuffle

    @property
    def backlog(self) -> int:
        return sum(
            max(0, end - span.start.get(partition, 0))
            for span in self.sides
            for partition, end in span.end.items()
        )


class Topics:
    """Questions to one Kafka. The client is kept: its connections are reused for the lag."""

    def __init__(self, settings: Mapping[str, str], timeout: float) -> None:
        self._timeout = timeout
        self._troubles = Troubles(settings.get("bootstrap.servers", ""))
        try:
            ours: dict[str, Any] = {
                **settings,
                "error_cb": self._troubles.heard_of,
                "log.connection.close": "false",
                "reconnect.backoff.max.ms": "1000",
                "topic.metadata.refresh.interval.ms": "10000",
            }
            self._admin = AdminClient(ours, logger=logger)
        except (KafkaException, ValueError, TypeError) as error:
            name = error.args[0].name() if isinstance(error, KafkaException) else type(error).__name__
            raise KafkaProblem(
                "KafkaSettingsInvalid", f"Kafka's client refuses the settings ({name})"
            ) from None

    def plan(self, source: Source, pinned: Offsets | None) -> Plan:
        """Check both topics and decide where to begin; offsets pinned by an earlier run are kept."""
        partitions = {topic: self._partitions(topic) for topic in {source.users_topic, source.accounts_topic}}
        notes: list[str] = []
        spans = []
        for topic, words in (
            (source.users_topic, pinned.users if pinned else None),
            (source.accounts_topic, pinned.accounts if pinned else None),
        ):
            numbers = partitions[topic]
            first = self._offsets(topic, numbers, OffsetSpec.earliest())
            end = self._offsets(topic, numbers, OffsetSpec.latest())
            if words is None:
                start = self._start(topic, numbers, source.starting_offsets, first, end)
            else:
                start = _kept(topic, {int(number): at for number, at in words.items()}, first, end, notes)
            spans.append(Span(start, end))
        return Plan(spans[0], spans[1], tuple(notes))

    def ends(self, topic: str) -> Positions:
        """Where the topic ends now."""
        return self._offsets(topic, self._partitions(topic, check=False), OffsetSpec.latest())

    def _start(
        self, topic: str, numbers: list[int], wish: str, first: Positions, end: Positions
    ) -> Positions:
        if wish == "earliest":
            return first
        if wish == "latest":
            return end
        moment = int(datetime.fromisoformat(wish).timestamp() * 1000)
        found = self._offsets(topic, numbers, OffsetSpec.for_timestamp(moment))
        # No record that late: begin with what comes next.
        return {number: at if at >= 0 else end[number] for number, at in found.items()}

    def _partitions(self, topic: str, check: bool = True) -> list[int]:
        try:
            self._admin.poll(0)
            answer = self._admin.describe_topics(
                TopicCollection([topic]), include_authorized_operations=check, request_timeout=self._timeout
            )
            described = answer[topic].result(timeout=self._timeout + 1)
        except KafkaException as error:
            self._admin.poll(0)
            raise self._problem(error.args[0], topic) from None
        except TimeoutError:
            raise self._troubles.unreachable("no answer in time") from None
        if check and described.authorized_operations and not _may_read(described.authorized_operations):
            raise not_allowed(topic)
        return sorted(each.id for each in described.partitions)

    def _offsets(self, topic: str, numbers: list[int], spec: Any) -> Positions:
        wanted = {TopicPartition(topic, number): spec for number in numbers}
        try:
            answers = self._admin.list_offsets(wanted, request_timeout=self._timeout)
            return {
                place.partition: int(future.result(timeout=self._timeout + 1).offset)
                for place, future in answers.items()
            }
        except KafkaException as error:
            self._admin.poll(0)
            raise self._problem(error.args[0], topic) from None
        except TimeoutError:
            raise self._troubles.unreachable("no answer in time") from None

    def _problem(self, error: KafkaError, topic: str) -> KafkaProblem:
        return self._troubles.problem(error, topic, self._nearest(topic) if error.code() in NO_TOPIC else "")

    def _nearest(self, topic: str) -> str:
        """Misspelt names are the commonest mistake: name those that are near."""
        try:
            known = [
                name for name in self._admin.list_topics(timeout=self._timeout).topics if name[:2] != "__"
            ]
        except KafkaException:
            return ""
        near = difflib.get_close_matches(topic, known, n=3, cutoff=0.6)
        return f"; near to it: {', '.join(near)}" if near else f"; it has {len(known)} other topics"


def _kept(topic: str, pinned: Positions, first: Positions, end: Positions, notes: list[str]) -> Positions:
    """The pinned offsets, as far as they are still there. A partition that was added later is read whole."""
    start: Positions = {}
    for number, earliest in first.items():
        at = pinned.get(number, earliest)
        if at > end[number]:
            notes.append(
                f"{topic}/{number} ends before the pinned offset {at}: the topic was made anew, read whole"
            )
            at = earliest
        elif at < earliest:
            notes.append(
                f"{topic}/{number}: rows {at} to {earliest - 1} have been deleted since they were first read"
            )
            at = earliest
        start[number] = at
    return start


def _may_read(operations: list[Any]) -> bool:
    return any(each in (AclOperation.READ, AclOperation.ALL) for each in operations)


def _words(positions: Positions) -> dict[str, int]:
    return {str(number): at for number, at in sorted(positions.items())}
