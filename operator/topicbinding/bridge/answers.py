"""Receipts and dead letters: what programs are told about their messages, over Kafka.

Filled by the session after a patch succeeded, so a verdict that is told is true. Each answer is sent at least
once: the position remembers up to where they were sent, and what is missing after a crash is sent again. A
receipt's key is the message's place, so a repeated one replaces its twin in a compacted topic.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from topicbinding.api import Control
from topicbinding.bridge.fold import Judged, Verdict
from topicbinding.bridge.journal import rfc3339
from topicbinding.bridge.outcome import Outcome
from topicbinding.bridge.position import Awaited
from topicbinding.kafka.port import Sender
from topicbinding.kafka.records import Headers, KafkaProblem, Record

logger = logging.getLogger(__name__)

# A topic that takes nothing must not fill our memory: the oldest answers are dropped, and counted.
MAX_WAITING: Final = 50_000
MAX_WAITING_BYTES: Final = 48 * 1024 * 1024
MAX_ATTEMPTS: Final = 3
# What is left of a dead letter that its topic finds too large.
CUT_TO_BYTES: Final = 4_096


@dataclass
class _Answer:
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    offset: int
    attempts: int = 0

    @property
    def size(self) -> int:
        return len(self.value or b"") + len(self.key or b"") + 200


class Answers:
    """One session's answers. Not thread-safe: the loop owns it."""

    def __init__(
        self,
        sender: Sender | None,
        control: Control,
        binding: str,
        dropped: Callable[[str], None],
    ) -> None:
        self._sender = sender
        self._control = control
        self._binding = binding
        self._dropped = dropped
        self._waiting: deque[_Answer] = deque()
        self._waiting_bytes = 0
        self._under_way: dict[int, _Answer] = {}
        self._next_number = 0

    @property
    def configured(self) -> bool:
        return self._sender is not None

    @property
    def wants_dead_letters(self) -> bool:
        return self._sender is not None and self._control.dead_letter_topic is not None

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._under_way

    def verdict(self, judged: Judged, record: Record | None, again: bool = False) -> None:
        """The receipt of one message and, if it was rejected, its dead letter."""
        heard = judged.heard
        if judged.verdict is Verdict.REJECTED and record is not None:
            self.dead_letter(record, judged.reason)
        if self._control.receipts_topic is not None:
            said: dict[str, Any] = {"verdict": judged.verdict.value, "reason": judged.reason}
            if again:
                said["again"] = True
            self._receipt(heard.partition, heard.offset, heard.said.id, said)

    def outcome(self, awaited: Awaited, outcome: Outcome) -> None:
        """The second receipt: what became of the wish."""
        if self._control.receipts_topic is None or outcome.end is None:
            return
        said = {"verdict": outcome.end.value, "reason": outcome.reason, "generation": outcome.generation}
        self._receipt(awaited.partition, awaited.offset, awaited.id, said)

    def dead_letter(self, record: Record, reason: str) -> None:
        topic = self._control.dead_letter_topic
        if topic is None or self._sender is None:
            return
        why: Headers = (
            ("topicbinding-binding", self._binding.encode()),
            ("topicbinding-verdict", Verdict.REJECTED.value.encode()),
            ("topicbinding-reason", reason.encode(errors="replace")),
            ("topicbinding-topic", self._control.topic.encode()),
            ("topicbinding-partition", str(record.partition).encode()),
            ("topicbinding-offset", str(record.offset).encode()),
            ("topicbinding-time", rfc3339(record.timestamp_ms).encode()),
        )
        headers = (*record.headers, *why)
        self._queue(_Answer(topic, record.key, record.value, headers, record.partition, record.offset))

    def pump(self) -> None:
        """Hands over what waits and hears what became of it. Never blocks."""
        if self._sender is None:
            return
        self._sender.poll()
        while self._waiting:
            answer = self._waiting[0]
            number = self._next_number
            self._under_way[number] = answer
            done = self._finisher(number)
            if not self._sender.send(answer.topic, answer.key, answer.value, answer.headers, done):
                del self._under_way[number]
                return  # the client's queue is full: later
            self._next_number += 1
            self._waiting.popleft()
            self._waiting_bytes -= answer.size

    def drain(self, seconds: float) -> None:
        """Blocks until everything is sent, at most so long."""
        end = time.monotonic() + seconds
        self.pump()
        while self._sender is not None and not self.idle and (left := end - time.monotonic()) > 0:
            self._sender.flush(min(left, 0.2))
            self.pump()

    def answered(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """Up to where everything was sent, given the position the answers belong to."""
        up_to = dict(offsets)
        for answer in (*self._waiting, *self._under_way.values()):
            name = str(answer.partition)
            if name in up_to:
                up_to[name] = min(up_to[name], answer.offset)
        return up_to

    def close(self, seconds: float) -> None:
        if self._sender is not None:
            self.pump()
            self._sender.flush(seconds)

    def _receipt(self, partition: int, offset: int, identity: str | None, said: Mapping[str, Any]) -> None:
        topic = self._control.receipts_topic
        if topic is None or self._sender is None:
            return
        body = {
            "id": identity,
            "binding": self._binding,
            "topic": self._control.topic,
            "partition": partition,
            "offset": offset,
            **said,
        }
        key = f"{self._control.topic}/{partition}/{offset}".encode()
        self._queue(_Answer(topic, key, json.dumps(body).encode(), (), partition, offset))

    def _queue(self, answer: _Answer) -> None:
        self._waiting.append(answer)
        self._waiting_bytes += answer.size
        while len(self._waiting) > MAX_WAITING or self._waiting_bytes > MAX_WAITING_BYTES:
            lost = self._waiting.popleft()
            self._waiting_bytes -= lost.size
            self._dropped(f"{lost.topic!r} takes no answers; the one for offset {lost.offset} was dropped")

    def _finisher(self, number: int) -> Callable[[KafkaProblem | None], None]:
        def done(problem: KafkaProblem | None) -> None:
            answer = self._under_way.pop(number)
            if problem is None:
                return
            answer.attempts += 1
            if problem.reason == "MessageTooLarge" and answer.attempts == 1 and answer.value is not None:
                answer.headers = (*answer.headers, ("topicbinding-cut-from", str(len(answer.value)).encode()))
                answer.value = answer.value[:CUT_TO_BYTES]
            elif answer.attempts >= MAX_ATTEMPTS or problem.reason in ("KafkaNotAuthorized", "TopicNotFound"):
                self._dropped(f"{problem}; the answer for offset {answer.offset} was dropped")
                return
            self._queue(answer)

        return done
