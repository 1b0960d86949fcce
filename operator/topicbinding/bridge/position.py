"""Where the bridge stands in the control topic: stored on the binding, in the same patch as the spec.

Pure. `Position` is the content of the annotation; `resume` decides from it, and from what the broker says,
where reading goes on, and says aloud what it had to decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from topicbinding.api import VerdictCounts
from topicbinding.api.base import Model
from topicbinding.bridge.fold import Verdict
from topicbinding.kafka.records import TopicState

# How many messages control_raw shows, so how many verdicts are worth keeping over a restart.
REMEMBERED: Final = 200

_LETTERS: Final = {
    Verdict.APPLIED: "a",
    Verdict.MERGED: "m",
    Verdict.UNCHANGED: "u",
    Verdict.REJECTED: "r",
}
_VERDICTS: Final = {letter: verdict for verdict, letter in _LETTERS.items()}

Offset = Annotated[int, Field(ge=0)]


class Trace(Model):
    """One verdict, kept over a restart: written [partition, offset, letter, generation]."""

    partition: int
    offset: int
    verdict: Verdict
    generation: int | None = None

    def compact(self) -> list[int | str]:
        start: list[int | str] = [self.partition, self.offset, _LETTERS[self.verdict]]
        return start if self.generation is None else [*start, self.generation]

    @classmethod
    def expand(cls, entry: list[Any]) -> Trace:
        partition, offset, letter, *rest = entry
        return cls(
            partition=partition,
            offset=offset,
            verdict=_VERDICTS[letter],
            generation=rest[0] if rest else None,
        )


class Awaited(Model):
    """The message whose wish is on its way: it gets a second receipt when it serves or fails."""

    partition: int
    offset: int
    id: str | None = None
    binding_generation: int | None = Field(
        None, description="metadata.generation that carries the wish; unknown until the patch has answered."
    )
    choice: str = Field(description="Hash of the choice it asked for.")


class Position(Model):
    """The annotation."""

    topic: str
    topic_id: str | None = None
    offsets: dict[str, Offset] = Field(default_factory=dict, description="Next offset to read.")
    answered: dict[str, Offset] = Field(
        default_factory=dict, description="Receipts and dead letters were sent up to here."
    )
    counts: VerdictCounts = VerdictCounts()
    trail: tuple[Trace, ...] = ()
    awaited: Awaited | None = None
    writer: str | None = Field(None, description="The bridge process that wrote it.")

    def annotation(self) -> str:
        data = self.wire()
        data["trail"] = [each.compact() for each in self.trail[-REMEMBERED:]]
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def parse(cls, annotation: str | None) -> Position | None:
        """None for no annotation. Raises ValueError for one that is not ours."""
        if annotation is None:
            return None
        try:
            data = json.loads(annotation)
            data["trail"] = [Trace.expand(each) for each in data.get("trail", ())]
            return cls.model_validate(data)
        except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError("the stored position cannot be read") from None

    def next_of(self, partition: int) -> int | None:
        return self.offsets.get(str(partition))

    def is_for(self, topic: str, topic_id: str | None) -> bool:
        """Whether it speaks of this very topic; an id that one side does not know proves nothing."""
        return self.topic == topic and (
            self.topic_id is None or topic_id is None or self.topic_id == topic_id
        )


@dataclass(frozen=True)
class Notice:
    """Something a person should know; a warning in the log and an Event on the binding."""

    reason: str
    message: str


@dataclass(frozen=True)
class Start:
    """Where reading goes on, and from where the past is read again for control_raw and missing answers."""

    offsets: Mapping[int, int]
    look_back: Mapping[int, int]
    kept: Position | None
    notices: tuple[Notice, ...] = ()


def resume(stored: Position | None, topic: TopicState) -> Start:
    """From the stored position, else from the earliest message. Whatever is lost or repeated is said."""
    earliest = {number: span.low for number, span in topic.partitions.items()}
    if stored is None:
        return Start(earliest, earliest, None)
    why = _not_the_same(stored, topic)
    if why is not None:
        return Start(earliest, earliest, None, (why,))
    offsets: dict[int, int] = {}
    look_back: dict[int, int] = {}
    notices: list[Notice] = []
    for number, span in topic.partitions.items():
        wanted = stored.next_of(number)
        if wanted is None:
            offsets[number] = look_back[number] = span.low
            continue
        if wanted < span.low:
            gone = f"offsets {wanted} to {span.low - 1} of partition {number}"
            notices.append(
                Notice(
                    "ControlMessagesLost",
                    f"retention removed {gone} of {topic.name!r} before they were read; "
                    "what they asked for is not known. Keep control messages longer (retention.ms)",
                )
            )
        offsets[number] = max(wanted, span.low)
        unanswered = stored.answered.get(str(number), wanted)
        look_back[number] = max(span.low, min(unanswered, offsets[number] - REMEMBERED))
    return Start(offsets, look_back, stored, tuple(notices))


def _not_the_same(stored: Position, topic: TopicState) -> Notice | None:
    if stored.topic != topic.name:
        return Notice(
            "ControlTopicChanged",
            f"the control topic is now {topic.name!r} (it was {stored.topic!r}): read from its beginning",
        )
    if not stored.is_for(topic.name, topic.topic_id):
        return Notice(
            "ControlTopicRecreated",
            f"{topic.name!r} was deleted and made again: read from its beginning",
        )
    for number, span in topic.partitions.items():
        wanted = stored.next_of(number)
        if wanted is not None and wanted > span.high:
            return Notice(
                "ControlTopicRecreated",
                f"{topic.name!r} ends at {span.high} in partition {number}, before our position {wanted}: "
                "it was made again or cut; read from its beginning",
            )
    gone = [
        number for number in stored.offsets if not number.isdigit() or int(number) not in topic.partitions
    ]
    if gone:
        return Notice(
            "ControlTopicRecreated",
            f"{topic.name!r} has fewer partitions than before: it was made again; read from its beginning",
        )
    return None
