"""The last messages with their verdicts: what `control_raw` shows, and what survives a restart of it.

Written by the session, read by the HTTP server's thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from topicbinding.bridge.fold import Heard, Judged, Verdict
from topicbinding.bridge.outcome import Outcome
from topicbinding.bridge.position import REMEMBERED, Trace


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of control_raw. A verdict of None: read again after a restart, its verdict no longer known."""

    partition: int
    offset: int
    timestamp_ms: int
    raw: str
    id: str | None
    verdict: Verdict | None
    reason: str
    generation: int | None = None
    outcome: str | None = None
    into: tuple[int, int] | None = None
    """Where the message is that a merged one was folded into: it becomes the same generation."""

    @classmethod
    def of(cls, judged: Judged, generation: int | None = None) -> Entry:
        heard = judged.heard
        return cls(
            partition=heard.partition,
            offset=heard.offset,
            timestamp_ms=heard.timestamp_ms,
            raw=heard.raw,
            id=heard.said.id,
            verdict=judged.verdict,
            reason=judged.reason,
            generation=generation,
            into=(judged.into.partition, judged.into.offset) if judged.into else None,
        )

    @classmethod
    def unknown(cls, heard: Heard) -> Entry:
        """A message of the past whose verdict nobody remembers."""
        where = heard.partition, heard.offset, heard.timestamp_ms
        return cls(*where, raw=heard.raw, id=heard.said.id, verdict=None, reason="")

    def row(self) -> dict[str, Any]:
        return {
            "timestamp": rfc3339(self.timestamp_ms),
            "partition": self.partition,
            "offset": self.offset,
            "value": self.raw,
            "id": self.id,
            "verdict": self.verdict.value if self.verdict else None,
            "reason": self.reason,
            "generation": self.generation,
            "outcome": self.outcome,
        }


class Journal:
    """At most `REMEMBERED` entries, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, int], Entry] = OrderedDict()

    def add(self, entry: Entry) -> None:
        with self._lock:
            self._entries.pop((entry.partition, entry.offset), None)
            self._entries[entry.partition, entry.offset] = entry
            while len(self._entries) > REMEMBERED:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Another topic's messages are no history of this one."""
        with self._lock:
            self._entries.clear()

    def became(self, partition: int, offset: int, outcome: Outcome) -> None:
        """The generation a message became, and how that ended."""
        with self._lock:
            entry = self._entries.get((partition, offset))
            if entry is None:
                return
            self._entries[partition, offset] = replace(
                entry,
                generation=outcome.generation if outcome.generation is not None else entry.generation,
                outcome=outcome.end.value if outcome.end else entry.outcome,
                reason=f"{entry.reason}; {outcome.reason}"
                if outcome.end and outcome.reason
                else entry.reason,
            )
            if outcome.generation is None:
                return
            for place, each in self._entries.items():
                if each.into == (partition, offset):
                    self._entries[place] = replace(each, generation=outcome.generation)

    def last(self) -> Entry | None:
        with self._lock:
            return next(reversed(self._entries.values()), None)

    def rows(self) -> list[dict[str, Any]]:
        with self._lock:
            entries = list(self._entries.values())
        return [entry.row() for entry in entries]

    def trail(self) -> tuple[Trace, ...]:
        with self._lock:
            entries = list(self._entries.values())
        return tuple(
            Trace(
                partition=each.partition, offset=each.offset, verdict=each.verdict, generation=each.generation
            )
            for each in entries
            if each.verdict is not None
        )


def rfc3339(timestamp_ms: int) -> str:
    """Milliseconds of Unix time as people and the API server read it; nonsense becomes the epoch."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
