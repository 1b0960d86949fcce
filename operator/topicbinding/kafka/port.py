"""The only place where the operator's side talks to Kafka: describing, reading and sending, in our own types.

Used by the bridge and the command line. Every error of the client library becomes a `KafkaProblem`, whose
reason becomes that of a condition, or a `TopicMoved`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from topicbinding.kafka.problems import LOGIN_REFUSED, NO_TOPIC, NOT_ALLOWED, UNREACHABLE, Troubles
from topicbinding.kafka.records import (
    Batch,
    Headers,
    KafkaProblem,
    Record,
    Span,
    TopicMoved,
    TopicState,
)

logger = logging.getLogger(__name__)

# One poll hands over at most so many records; the rest is there for the next one.
POLL_RECORDS: Final = 1_000
# The largest message a dead letter may carry: brokers that allow more are rare, and it bounds our memory.
SEND_MAX_BYTES: Final = 32 * 1024 * 1024

LOG_AGAIN_SECONDS: Final = 60.0

_NAMELESS_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # all zero: a broker too old for topic ids

_READER_SETTINGS: Final = {
    # The library wants a group's name even for a reader that never joins one.
    "group.id": "topicbinding-no-group",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",  # a lost position must be seen, never silently moved
    "enable.partition.eof": "true",
    "allow.auto.create.topics": "false",
    # Whatever lies in the topic, no more than this waits in memory.
    "queued.max.messages.kbytes": "8192",
    "fetch.message.max.bytes": "1048576",
    "fetch.error.backoff.ms": "100",
    # After an outage: back within seconds, not at the end of a long back-off.
    "reconnect.backoff.max.ms": "2000",
    "topic.metadata.refresh.interval.ms": "10000",
    "log.connection.close": "false",
}
_SENDER_SETTINGS: Final = {
    "linger.ms": "0",
    "message.timeout.ms": "30000",
    # How long a topic may be unknown before a message to it is given up.
    "topic.metadata.propagation.max.ms": "5000",
    "message.max.bytes": str(SEND_MAX_BYTES),
    "queue.buffering.max.kbytes": "65536",
    "reconnect.backoff.max.ms": "2000",
    "log.connection.close": "false",
}

_MOVED: Final = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
}


class _Throttle(logging.Filter):
    """The library repeats a failure at every attempt to connect: one line in a while is enough to know."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # Numbers count attempts and milliseconds; without them a repeated line is the same line.
        line, now = re.sub(r"\d+", "", record.getMessage()), time.monotonic()
        if now - self._said.get(line, float("-inf")) < LOG_AGAIN_SECONDS:
            return False
        if len(self._said) > 1_000:
            self._said.clear()
        self._said[line] = now
        return True


logger.addFilter(_Throttle())


class Connection:
    """One Kafka, as one client sees it. Gives readers and senders; remembers its last trouble."""

    def __init__(self, settings: Mapping[str, str], client_id: str) -> None:
        self._settings = {"client.id": client_id, **settings}
        self._admin: AdminClient | None = None
        self.troubles = Troubles(settings["bootstrap.servers"])

    def describe(self, topic: str, timeout: float) -> TopicState:
        """The topic's id and partitions, without their spans (see `Reader.spans`)."""
        if self._admin is None:
            self._admin = self._make(AdminClient, {"log.connection.close": "false"})
        try:
            self._admin.poll(0)  # lets the error callback speak
            answer = self._admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)
            described = answer[topic].result(timeout=timeout + 1)
        except KafkaException as error:
            self._admin.poll(0)
            raise self.troubles.problem(error.args[0], topic) from None
        except TimeoutError:
            raise self.troubles.unreachable("no answer in time") from None
        self.troubles.over()
        topic_id = str(described.topic_id)
        return TopicState(
            name=topic,
            topic_id=None if topic_id == _NAMELESS_ID else topic_id,
            partitions={each.id: Span(0, 0) for each in described.partitions},
        )

    def reader(self, topic: str) -> Reader:
        return Reader(self, self._make(Consumer, _READER_SETTINGS), topic)

    def sender(self) -> Sender:
        return Sender(self._make(Producer, _SENDER_SETTINGS))

    def close(self) -> None:
        self._admin = None

    def _make(self, kind: Callable[..., Any], ours: Mapping[str, str]) -> Any:
        # Ours last: nothing passed through may change how positions are kept.
        settings = {**self._settings, **ours, "error_cb": self.troubles.heard_of}
        try:
            return kind(settings, logger=logger)
        except KafkaException as error:
            raise KafkaProblem("KafkaSettingsInvalid", _setting_refused(error)) from None
        except (TypeError, ValueError) as error:
            raise KafkaProblem("KafkaSettingsInvalid", type(error).__name__) from None


class Reader:
    """Reads all partitions of one topic from given offsets. No group, no commits."""

    def __init__(self, connection: Connection, consumer: Any, topic: str) -> None:
        self._connection = connection
        self._consumer = consumer
        self._topic = topic

    def spans(self, partitions: Mapping[int, Span], timeout: float) -> dict[int, Span]:
        """What each partition holds right now."""
        found = {}
        for number in sorted(partitions):
            try:
                answer = self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, number), timeout=timeout, cached=False
                )
            except KafkaException as error:
                self._consumer.poll(0)
                raise self._connection.troubles.problem(error.args[0], self._topic) from None
            if answer is None:
                raise self._connection.troubles.unreachable("no answer in time")
            found[number] = Span(*answer)
        return found

    def begin(self, offsets: Mapping[int, int]) -> None:
        self._consumer.assign(
            [TopicPartition(self._topic, number, offset) for number, offset in sorted(offsets.items())]
        )

    def poll(self, timeout: float) -> Batch:
        """Waits for the first record only; what came with it is taken, what comes later is left."""
        first = self._consumer.poll(timeout)
        if first is None:
            return Batch()
        messages = [first, *self._consumer.consume(POLL_RECORDS - 1, timeout=0)]
        records: list[Record] = []
        ended: set[int] = set()
        for message in messages:
            error = message.error()
            if error is None:
                records.append(_record(message))
                ended.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            elif error.code() in _MOVED | NO_TOPIC:
                raise TopicMoved(error.name())
            elif error.code() in NOT_ALLOWED | LOGIN_REFUSED:
                raise self._connection.troubles.problem(error, self._topic)
            else:
                logger.warning("reading %s: %s", self._topic, error.name())
        return Batch(tuple(records), frozenset(ended))

    def close(self) -> None:
        self._consumer.close()


class Sender:
    """Sends without waiting; tells each sender's callback how it went."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Callable[[KafkaProblem | None], None],
    ) -> bool:
        """False: the queue is full, nothing was taken."""

        def report(error: KafkaError | None, _message: object) -> None:
            done(None if error is None else _not_sent(error, topic))

        try:
            self._producer.produce(topic, value=value, key=key, headers=list(headers), on_delivery=report)
        except BufferError:
            return False
        except KafkaException as error:
            done(_not_sent(error.args[0], topic))
        return True

    def send_one(self, topic: str, value: bytes, timeout: float) -> tuple[int, int]:
        """Sends one message and waits until the broker has it: its partition and offset."""
        sent: list[tuple[int, int]] = []
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, message: Any) -> None:
            if error is None:
                sent.append((message.partition(), message.offset()))
            else:
                failed.append(error)

        self._producer.produce(topic, value=value, on_delivery=report)
        self._producer.flush(timeout)
        if failed:
            raise _not_sent(failed[0], topic)
        if not sent:
            raise KafkaProblem(UNREACHABLE, f"{topic!r} took no message within {timeout:g} s")
        return sent[0]

    def poll(self) -> None:
        """Lets callbacks run."""
        self._producer.poll(0)

    def flush(self, timeout: float) -> int:
        """Waits for what is under way; how many are left."""
        return int(self._producer.flush(timeout))


def _record(message: Any) -> Record:
    _kind, timestamp = message.timestamp()
    return Record(
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=max(timestamp, 0),
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value) for name, value in message.headers() or ()),
    )


def _not_sent(error: KafkaError, topic: str) -> KafkaProblem:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return KafkaProblem("MessageTooLarge", f"{topic!r} takes no message of that size")
    if error.code() in NO_TOPIC:
        return KafkaProblem("TopicNotFound", f"Kafka has no topic {topic!r}: create it")
    if error.code() in NOT_ALLOWED:
        return KafkaProblem("KafkaNotAuthorized", f"Kafka does not allow this account to write to {topic!r}")
    return KafkaProblem("NotSent", f"a message to {topic!r} could not be sent ({error.name()})")


def _setting_refused(error: KafkaException) -> str:
    """The library's sentence names the property; its value, which may be a secret, is cut off."""
    text = str(error.args[0].str()) if error.args else ""
    named = re.search(r'property[:]? "?([A-Za-z0-9._-]+)', text)
    if named and "No such" in text:
        return (
            f"the Kafka client knows no property {named[1]!r}; write 'jvm.{named[1]}' in kafka.properties "
            "if it is meant for Spark's client only"
        )
    if named:
        return f"the Kafka client refuses the value of {named[1]!r}"
    return "the Kafka client refuses the settings: check kafka.properties, and the certificates in the Secret"
