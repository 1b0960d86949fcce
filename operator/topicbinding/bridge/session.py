"""One sitting at the control topic: read, fold, patch, answer. Ends when the topic or the settings change.

Made and driven by the service. Memory holds no truth here: what was not patched is read again by the next
session, and what was patched is known from the binding.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from topicbinding.api import TopicBinding, VerdictCounts, choice_hash, names
from topicbinding.bridge.answers import Answers
from topicbinding.bridge.apiserver import Conflict, NotAllowed, Refused
from topicbinding.bridge.fold import Base, Carried, Folded, Heard, Judged, Verdict, fold
from topicbinding.bridge.journal import Entry, Journal
from topicbinding.bridge.kube import Kube
from topicbinding.bridge.metrics import Metrics
from topicbinding.bridge.outcome import End, Outcome, outcome
from topicbinding.bridge.patch import binding_patch
from topicbinding.bridge.position import REMEMBERED, Awaited, Notice, Position, Start, Trace
from topicbinding.bridge.report import Reporter
from topicbinding.bridge.settings import BridgeSettings
from topicbinding.control.message import Refusal, printable, shown, understand
from topicbinding.kafka.port import Reader
from topicbinding.kafka.records import Batch, Record, TopicMoved, TopicState

logger = logging.getLogger(__name__)

# A burst of thousands is one event to a reader of the log.
LOGGED_PER_BATCH: Final = 20
# How long a long backlog waits for its answers to be taken before it is read on.
DRAIN_SECONDS: Final = 5.0
_UNREADABLE: Final = Notice(
    "ControlPositionUnreadable", "the stored position cannot be read: the topic is read from its beginning"
)


def stored_position(seen: dict[str, Any]) -> tuple[Position | None, Notice | None]:
    """The position on the binding. One that somebody broke by hand is as good as none, and said."""
    annotations = seen["metadata"].get("annotations") or {}
    try:
        return Position.parse(annotations.get(names.ANNOTATION_POSITION)), None
    except ValueError:
        return None, _UNREADABLE


class Session:
    """Owned by the loop; not thread-safe."""

    def __init__(
        self,
        kube: Kube,
        reader: Reader,
        answers: Answers,
        reporter: Reporter,
        journal: Journal,
        metrics: Metrics,
        settings: BridgeSettings,
        topic: TopicState,
        start: Start,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._reader, self._answers = kube, reader, answers
        self._reporter, self._journal, self._metrics = reporter, journal, metrics
        self._settings, self.topic, self._start, self._clock = settings, topic, start, clock
        self._pending: dict[int, deque[Heard]] = {}
        self._records: dict[tuple[int, int], Record] = {}
        self._record_bytes = 0
        self._carried: Carried | None = None
        self._carried_onto: tuple[Base, Position | None] | None = None
        self._next = dict(start.offsets)
        self._known = {(each.partition, each.offset): each for each in start.kept.trail} if start.kept else {}
        self._awaited = start.kept.awaited if start.kept else None
        self._ended: Awaited | None = None
        # Offsets whose answers are ours to send: another bridge sends those of its own patches.
        self._ours = start.kept.offsets if start.kept else {}
        self._in_flight: tuple[Position, Folded, Awaited | None] | None = None
        self._settled_at = float("-inf")

    def read_to_the_end(self, turn: Callable[[], None]) -> None:
        """Everything that was there when we came. Nothing is patched before that."""
        behind = {
            number
            for number, span in self.topic.partitions.items()
            if span.high > self._start.look_back[number]
        }
        self._reader.begin(self._start.look_back)
        while behind:
            batch = self._reader.poll(self._settings.poll_seconds)
            self.take(batch)
            behind -= batch.ended
            turn()
        if self._start.kept is not None:
            self._reporter.control(self._start.kept, self._journal.last(), None)

    def take(self, batch: Batch) -> None:
        """Understands what one poll brought and holds it until it is settled."""
        for record in batch.records:
            if record.offset < self._start.offsets[record.partition]:
                self._recall(record)
                continue
            self._next[record.partition] = record.offset + 1
            said = understand(record.value)
            raw = shown(record.value)
            self._pending.setdefault(record.partition, deque()).append(
                Heard(record.partition, record.offset, record.timestamp_ms, said, raw)
            )
            if isinstance(said, Refusal) and self._answers.wants_dead_letters:
                self._hold(record, said.why)
        if self._held() > self._settings.held_messages:
            self._let_go()

    def poll(self, seconds: float) -> Batch:
        return self._reader.poll(seconds)

    def pump(self) -> None:
        self._answers.pump()

    @property
    def waiting(self) -> bool:
        return bool(self._held()) or self._carried is not None

    def settle(self) -> None:
        """Folds what waits and patches it, spec and position together; does nothing if it is too soon.

        Raises Away if the API server is: nothing has advanced then, and what waits is tried again.
        """
        if not self.waiting or self._clock() - self._settled_at < self._settings.patch_spacing_seconds:
            return
        seen = self._kube.latest()
        refused: str | None = None
        while True:
            try:
                if self._settle_onto(seen, refused):
                    self._settled_at = self._clock()
                return
            except Conflict:
                self._metrics.conflicts.inc()
                seen = self._kube.refresh()
            except NotAllowed:
                raise
            except Refused as error:
                if refused is not None:
                    raise
                # Not ours to judge, and trying for ever would block every later message.
                refused = f"the API server refused it: {printable(str(error), 300)}"

    def tidy(self) -> None:
        """Follows the wish that is on its way, and stores what changed beside the offsets."""
        seen = self._kube.latest()
        binding = TopicBinding.read(seen)
        if self._awaited is not None:
            now = outcome(self._awaited, binding)
            self._journal.became(self._awaited.partition, self._awaited.offset, now)
            if now.end is not None:
                self._end(self._awaited, now)
                self._ended, self._awaited = self._awaited, None
        stored = self._stored(seen)
        if stored is None or self.waiting:
            return
        if stored.offsets != self._ours or not self._answers.idle:
            return
        awaited = None if stored.awaited == self._ended else stored.awaited
        if (stored.answered, stored.awaited) == (stored.offsets, awaited):
            return
        position = stored.model_copy(
            update={"answered": stored.offsets, "awaited": awaited, "trail": self._journal.trail()}
        )
        try:
            self._kube.patch(binding_patch(seen, None, position))
        except Conflict:
            return  # the next turn sees the newer binding

    def close(self) -> None:
        self._answers.close(2.0)
        self._reader.close()

    def _settle_onto(self, seen: dict[str, Any], refused: str | None) -> bool:
        started = self._clock()
        binding = TopicBinding.read(seen)
        stored = self._stored(seen)
        if self._in_flight is not None:
            if stored == self._in_flight[0]:
                self._after(*self._in_flight)  # it had arrived; only the answer to our patch was lost
            self._in_flight = None
        self._forget_settled(stored)
        if not self.waiting:
            return False
        base = _base(binding)
        if self._carried_onto is not None and not _same(self._carried_onto, (base, stored)):
            raise TopicMoved("the binding changed under a long backlog")
        folded = fold(base, self._in_order(), self._carried)
        if refused is not None:
            folded = _refuse(folded, refused, binding)
        awaited = self._awaited
        if folded.applied is not None:
            heard = folded.applied.heard
            awaited = Awaited(
                partition=heard.partition,
                offset=heard.offset,
                id=heard.said.id,
                # The patch is refused unless nobody wrote since, so the number it will get is known.
                binding_generation=binding.metadata["generation"] + 1,
                choice=choice_hash(folded.choice),
            )
        position = self._moved(stored, folded, awaited)
        self._in_flight = (position, folded, awaited)
        self._kube.patch(binding_patch(seen, folded.choice if folded.changed else None, position))
        self._in_flight = None
        self._metrics.patched(self._clock() - started)
        self._after(position, folded, awaited)
        return True

    def _stored(self, seen: dict[str, Any]) -> Position | None:
        """The position, if it speaks of this very topic. If not, `resume` has said why, and we replace it."""
        stored, _ = stored_position(seen)
        return stored if stored and stored.is_for(self.topic.name, self.topic.topic_id) else None

    def _moved(self, stored: Position | None, folded: Folded, awaited: Awaited | None) -> Position:
        offsets = _by_name(self._next)
        # Everything before this batch has its answers, except those still under way.
        before = _by_name(self._start.offsets) | (stored.offsets if stored else {})
        return Position(
            topic=self.topic.name,
            topic_id=self.topic.topic_id,
            offsets=offsets,
            answered=self._answers.answered(before) if self._answers.configured else offsets,
            counts=_sum(stored.counts if stored else VerdictCounts(), folded.counts),
            trail=(*self._journal.trail(), *map(_trace, folded.judged))[-REMEMBERED:],
            awaited=awaited,
            writer=self._settings.writer,
        )

    def _after(self, position: Position, folded: Folded, awaited: Awaited | None) -> None:
        """The patch has succeeded: everything below only tells of it."""
        if folded.applied is not None and self._awaited is not None:
            self._end(self._awaited, Outcome(None, End.FAILED, "overtaken by a later message"))
        self._awaited, self._ours = awaited, position.offsets
        for each in folded.judged:
            self._journal.add(Entry.of(each))
            self._answers.verdict(each, self._records.get((each.heard.partition, each.heard.offset)))
        for each in folded.judged[-LOGGED_PER_BATCH:]:
            heard = each.heard
            where = f"{heard.partition}/{heard.offset}"
            logger.info("message %s %s: %s (raw %s)", where, each.verdict.value, each.reason, heard.raw)
        if len(folded.judged) > LOGGED_PER_BATCH:
            logger.info("%s messages in all: %s", len(folded.judged), folded.counts)
        self._answers.pump()
        self._metrics.judged(folded.counts)
        beat = datetime.now(UTC) if folded.counts.unchanged else None
        self._reporter.control(position, self._journal.last(), beat)
        self._reporter.verdicts(self.topic, position, folded)
        self._carried = self._carried_onto = None
        self._forget_settled(position)

    def _recall(self, record: Record) -> None:
        """A message of the past: for control_raw, and for the answers a crash may have kept back."""
        said = understand(record.value)
        heard = Heard(record.partition, record.offset, record.timestamp_ms, said, shown(record.value))
        trace = self._known.get((record.partition, record.offset))
        verdict = Verdict.REJECTED if isinstance(said, Refusal) else trace.verdict if trace else None
        judged = Judged(heard, verdict, said.why if isinstance(said, Refusal) else "") if verdict else None
        generation = trace.generation if trace else None
        self._journal.add(Entry.of(judged, generation) if judged else Entry.unknown(heard))
        kept = self._start.kept
        name = str(record.partition)
        if (
            kept is not None
            and judged is not None
            and record.offset >= kept.answered.get(name, kept.offsets[name])
        ):
            self._answers.verdict(judged, record, again=True)
            self._reporter.verdict(self.topic, judged)

    def _forget_settled(self, stored: Position | None) -> None:
        """What another bridge has settled meanwhile is not ours to settle again."""
        if stored is None:
            return
        for number, waiting in list(self._pending.items()):
            done = stored.next_of(number) or 0
            while waiting and waiting[0].offset < done:
                waiting.popleft()
            if not waiting:
                del self._pending[number]
        for number, offset in [
            where for where in self._records if where[1] < (stored.next_of(where[0]) or 0)
        ]:
            record = self._records.pop((number, offset))
            self._record_bytes -= len(record.value or b"") + len(record.key or b"")
        for name, offset in stored.offsets.items():
            if name.isdigit() and int(name) in self._next:
                self._next[int(name)] = max(self._next[int(name)], offset)

    def _in_order(self) -> list[Heard]:
        """One partition: its own order. Several: by timestamp, never against a partition's own order."""
        if len(self._pending) == 1:
            return list(next(iter(self._pending.values())))
        return list(heapq.merge(*self._pending.values(), key=lambda heard: heard.timestamp_ms))

    def _held(self) -> int:
        return sum(len(each) for each in self._pending.values())

    def _hold(self, record: Record, why: str) -> None:
        size = len(record.value or b"") + len(record.key or b"")
        if self._record_bytes + size > self._settings.held_bytes:
            # Too much to keep until the patch: sent now, and perhaps once more after a crash.
            self._answers.dead_letter(record, why)
            self._answers.pump()
            return
        self._records[record.partition, record.offset] = record
        self._record_bytes += size

    def _let_go(self) -> None:
        """Folds a long backlog down to its effect, so that memory stays flat however long it is."""
        if self._carried_onto is None:
            seen = self._kube.latest()
            self._carried_onto = (_base(TopicBinding.read(seen)), self._stored(seen))
        folded = fold(self._carried_onto[0], self._in_order(), self._carried)
        self._carried = folded.carried
        open_one = folded.carried.last_change
        # What they are cannot change any more, but for the last change: a later message may overtake it.
        final = [each for each in folded.judged if open_one is None or each.heard is not open_one.heard]
        for each in final:
            self._answers.verdict(each, self._records.get((each.heard.partition, each.heard.offset)))
        for each in final[-REMEMBERED:]:
            self._journal.add(Entry.of(each))
        # The reading waits for the answers: a backlog of any length gets all of them, in flat memory.
        self._answers.drain(DRAIN_SECONDS)
        self._pending.clear()
        self._records.clear()
        self._record_bytes = 0

    def _end(self, awaited: Awaited, now: Outcome) -> None:
        self._journal.became(awaited.partition, awaited.offset, now)
        self._answers.outcome(awaited, now)
        logger.info("message %s/%s: %s %s", awaited.partition, awaited.offset, now.end, now.reason)


def _base(binding: TopicBinding) -> Base:
    previous = binding.status.previous
    return Base(binding.spec.choice, previous.choice if previous else None)


def _same(one: tuple[Base, Position | None], other: tuple[Base, Position | None]) -> bool:
    def marks(base: Base, position: Position | None) -> tuple[object, ...]:
        previous = choice_hash(base.previous) if base.previous else None
        return choice_hash(base.choice), previous, position.offsets if position else None

    return marks(*one) == marks(*other)


def _refuse(folded: Folded, why: str, binding: TopicBinding) -> Folded:
    """What the API server will not have is rejected; the others keep their verdict."""
    judged = tuple(
        replace(each, verdict=Verdict.REJECTED, reason=why)
        if each.verdict in (Verdict.APPLIED, Verdict.MERGED)
        else each
        for each in folded.judged
    )
    counts = folded.counts.model_copy(
        update={
            "applied": 0,
            "merged": 0,
            "rejected": folded.counts.rejected + folded.counts.applied + folded.counts.merged,
        }
    )
    return replace(folded, choice=binding.spec.choice, changed=False, judged=judged, counts=counts)


def _trace(judged: Judged) -> Trace:
    return Trace(partition=judged.heard.partition, offset=judged.heard.offset, verdict=judged.verdict)


def _by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in sorted(offsets.items())}


def _sum(one: VerdictCounts, other: VerdictCounts) -> VerdictCounts:
    return VerdictCounts(
        applied=one.applied + other.applied,
        merged=one.merged + other.merged,
        unchanged=one.unchanged + other.unchanged,
        rejected=one.rejected + other.rejected,
    )
