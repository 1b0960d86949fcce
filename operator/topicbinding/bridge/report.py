"""Tells people: `status.control`, the `ControlConnected` condition, and Events.

Filled by the service and session; one piece of work is done per turn of the loop, so telling never delays a
message. What cannot be told now (the API server is away) is told later, status always as it is by then.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from topicbinding.api import Condition, ControlStatus, TopicBinding
from topicbinding.bridge.apiserver import Away, Conflict, Refused
from topicbinding.bridge.fold import Folded, Judged, Verdict
from topicbinding.bridge.journal import Entry, rfc3339
from topicbinding.bridge.kube import Kube
from topicbinding.bridge.position import Position
from topicbinding.control.message import printable
from topicbinding.kafka.records import TopicState

logger = logging.getLogger(__name__)

CONDITION: Final = "ControlConnected"
# Events of one batch: the newest few by name, the others as a number.
EVENTS_PER_BATCH: Final = 5
# Events are for people: a flood helps nobody and loads the API server. At once, then so many a minute.
EVENT_BURST: Final = 30
EVENTS_PER_MINUTE: Final = 30.0
HEARTBEAT_EVENT_SECONDS: Final = 60.0
_EVENT_REASONS: Final = {
    Verdict.APPLIED: "ControlApplied",
    Verdict.MERGED: "ControlMerged",
    Verdict.UNCHANGED: "ControlUnchanged",
    Verdict.REJECTED: "ControlRejected",
}


class Reporter:
    """Owned by the loop; not thread-safe."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = clock
        self._connected: tuple[bool, str, str] = (False, "Starting", "the bridge is starting")
        self._control: ControlStatus | None = None
        self._dirty = True
        self._not_before = 0.0
        self._events: deque[tuple[str, str, str, str]] = deque(maxlen=200)
        self._tokens, self._refilled_at = float(EVENT_BURST), clock()
        self.events_dropped = 0
        self._heartbeat_told_at = float("-inf")

    @property
    def is_connected(self) -> bool:
        return self._connected[0]

    @property
    def condition_reason(self) -> str:
        return self._connected[1]

    def connected(self, topic: str) -> None:
        self._say(True, "Connected", f"reading control messages from {topic!r}")

    def disconnected(self, reason: str, message: str) -> None:
        self._say(False, reason, message)

    def control(self, position: Position, last: Entry | None, heartbeat_at: datetime | None) -> None:
        """What `status.control` says from now on."""
        before = self._control or ControlStatus()
        self._control = ControlStatus(
            topic=position.topic,
            position=position.offsets,
            last_message=last.raw if last else before.last_message,
            last_message_at=rfc3339(last.timestamp_ms) if last else before.last_message_at,
            last_verdict=(last.verdict.value if last.verdict else None) if last else before.last_verdict,
            last_reason=printable(last.reason, 1_000) if last else before.last_reason,
            last_heartbeat=heartbeat_at or before.last_heartbeat,
            counts=position.counts,
        )
        self._dirty = True

    def remember(self, binding: TopicBinding) -> None:
        """What an earlier bridge reported stays until there is something newer to say."""
        if self._control is None:
            self._control = binding.status.control

    def tell(self, identity: str, kind: str, reason: str, message: str) -> None:
        """An Event, once per identity."""
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._events.append((name, kind, reason, message))

    def verdict(self, topic: TopicState, judged: Judged) -> None:
        """The Event of one message."""
        heard = judged.heard
        kind = "Warning" if judged.verdict is Verdict.REJECTED else "Normal"
        where = f"offset {heard.offset}" + (f" of partition {heard.partition}" if heard.partition else "")
        why = f": {judged.reason}" if judged.reason else ""
        text = f"{where}: {judged.verdict.value}{why} [{printable(heard.raw, 200)}]"
        identity = f"verdict/{topic.name}/{topic.topic_id}/{heard.partition}/{heard.offset}"
        self.tell(identity, kind, _EVENT_REASONS[judged.verdict], text)

    def verdicts(self, topic: TopicState, position: Position, folded: Folded) -> None:
        """The Events of a batch."""
        newest = folded.judged[-EVENTS_PER_BATCH:]
        counts = folded.counts.model_dump()
        others = sum(counts.values()) - len(newest)
        if others > 0:
            said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
            identity = f"batch/{topic.name}/{topic.topic_id}/{sorted(position.offsets.items())}"
            self.tell(identity, "Normal", "ControlBatch", f"{others + len(newest)} messages: {said}")
        for each in newest:
            if each.verdict is not Verdict.UNCHANGED or self._may_tell_of_heartbeat():
                self.verdict(topic, each)

    @property
    def has_work(self) -> bool:
        return self._not_before <= self._clock() and (self._dirty or bool(self._events and self._tokens >= 1))

    def work(self) -> bool:
        """Does one thing; True if there is more to do now."""
        now = self._clock()
        if now < self._not_before:
            return False
        if self._dirty:
            self._try(self._write_status, now)
            self._dirty = self._not_before > now
        elif self._events and self._may_tell(now):
            self._try(lambda: self._kube.event(*self._events[0]), now)
            if self._not_before <= now:
                self._events.popleft()
        return self.has_work

    def _may_tell_of_heartbeat(self) -> bool:
        """Some programs send one every second; the status has the newest, an Event now and then is enough."""
        now = self._clock()
        if now - self._heartbeat_told_at < HEARTBEAT_EVENT_SECONDS:
            return False
        self._heartbeat_told_at = now
        return True

    def _try(self, tell: Callable[[], None], now: float) -> None:
        try:
            tell()
        except Away as error:
            self._not_before = now + 1.0
            logger.warning("could not report: %s", error)
        except (Conflict, Refused) as error:
            self._not_before = now + 5.0  # a role or a schema that must be put right by somebody else
            logger.warning("could not report: %s", error)

    def _may_tell(self, now: float) -> bool:
        gained = (now - self._refilled_at) / 60 * EVENTS_PER_MINUTE
        self._tokens, self._refilled_at = min(EVENT_BURST, self._tokens + gained), now
        if self._tokens >= 1:
            self._tokens -= 1
            return True
        # Old news gives way: the status tells the newest verdict in any case.
        while len(self._events) > EVENTS_PER_BATCH:
            self._events.popleft()
            self.events_dropped += 1
        return False

    def _say(self, status: bool, reason: str, message: str) -> None:
        said = (status, reason, message)
        if said != self._connected:
            logger.log(logging.INFO if status else logging.WARNING, "%s: %s", reason, message)
            self._connected, self._dirty = said, True

    def _write_status(self) -> None:
        binding = TopicBinding.read(self._kube.latest())
        if binding.spec.control is None:
            # Whoever wants no control topic shall not see an old state of one. The empty list takes out our
            # condition alone, and keeps the status an object even where nobody else writes it.
            self._kube.apply_status({"conditions": []})
            return
        status: dict[str, Any] = {"conditions": [self._condition(binding)]}
        if self._control is not None:
            status["control"] = self._control.wire()
        self._kube.apply_status(status)

    def _condition(self, binding: TopicBinding) -> Mapping[str, Any]:
        connected, reason, message = self._connected
        status = "True" if connected else "False"
        before = binding.status.condition(CONDITION)
        moved = before is None or before.status != status
        return Condition(
            type=CONDITION,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=datetime.now(UTC).replace(microsecond=0)
            if moved or before is None
            else before.last_transition_time,
            observed_generation=binding.metadata.get("generation"),
        ).wire()
