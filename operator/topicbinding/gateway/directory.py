"""Which bindings and generations exist, folded from the watch. Pure state: no sockets, no clock.

`kube` feeds it, `channel` asks which generation to show, `views` and `builtin` turn it into answers.
Listeners are told the key of every binding that changed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from topicbinding.api import Generation, Phase, TopicBinding, names

log = logging.getLogger(__name__)


class Key(NamedTuple):
    namespace: str
    name: str


class Kind:
    """What is watched; the words are the directory's own."""

    BINDING: Final = "binding"
    GENERATION: Final = "generation"
    EVENT: Final = "event"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of orchestrator_logs. `uid` is the Event it came from: an Event that repeats changes its
    line."""

    uid: str
    at: datetime
    level: str
    message: str


@dataclass(slots=True)
class Entry:
    """Everything known about one binding."""

    binding: TopicBinding | None = None
    generations: dict[int, Generation] = field(default_factory=dict)
    lines: dict[str, LogLine] = field(default_factory=dict)

    @property
    def active(self) -> int | None:
        return self.binding.status.active_generation if self.binding else None

    def ordered(self) -> list[Generation]:
        return [self.generations[number] for number in sorted(self.generations)]


Listener = Callable[[Key], None]


class Directory:
    def __init__(self, log_rows: int = 500) -> None:
        self._entries: dict[Key, Entry] = defaultdict(Entry)
        self._listeners: list[Listener] = []
        self._log_rows = log_rows
        self._where: dict[tuple[str, str], tuple[Key, Any]] = {}
        """(kind, uid) -> where it is, so that a deletion or a re-list finds it whatever its body says."""
        self.version = 0

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def keys(self) -> list[Key]:
        return sorted(key for key, entry in self._entries.items() if entry.binding is not None)

    def get(self, key: Key) -> Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and entry.binding is not None else None

    def lines(self, key: Key) -> list[LogLine]:
        entry = self._entries.get(key)
        return sorted(entry.lines.values(), key=lambda line: (line.at, line.uid)) if entry else []

    # -- from the watch

    def replace(self, kind: str, objects: Iterable[dict[str, Any]]) -> None:
        """A fresh list: what is not in it no longer exists."""
        present = set()
        for body in objects:
            present.add((kind, _uid(body)))
            self.put(kind, body)
        for known in [each for each in self._where if each[0] == kind and each not in present]:
            self._remove(known)

    def put(self, kind: str, body: dict[str, Any]) -> None:
        """An object that was added or changed."""
        try:
            key, slot = self._store(kind, body)
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            # Something newer or damaged must not end the watch for everybody else.
            log.warning("a %s cannot be read and is left out: %s", kind, type(error).__name__)
            return
        if key is not None:
            self._where[kind, _uid(body)] = (key, slot)
            self._tell(key)

    def remove(self, kind: str, body: dict[str, Any]) -> None:
        self._remove((kind, _uid(body)))

    def _store(self, kind: str, body: dict[str, Any]) -> tuple[Key | None, Any]:
        namespace = str(body["metadata"]["namespace"])
        if kind == Kind.BINDING:
            binding = TopicBinding.read(body)
            key = Key(namespace, binding.name)
            self._entries[key].binding = binding
            return key, None
        if kind == Kind.GENERATION:
            generation = Generation.read(body)
            key = Key(namespace, generation.spec.binding)
            self._entries[key].generations[generation.spec.number] = generation
            return key, generation.spec.number
        found = _binding_of(body)
        if found is None:
            return None, None
        key = Key(namespace, found)
        line = _line(body)
        entry = self._entries[key]
        entry.lines[line.uid] = line
        while len(entry.lines) > self._log_rows:
            oldest = min(entry.lines.values(), key=lambda each: (each.at, each.uid))
            del entry.lines[oldest.uid]
        return key, line.uid

    def _remove(self, known: tuple[str, str]) -> None:
        if known not in self._where:
            return
        key, slot = self._where.pop(known)
        entry = self._entries[key]
        match known[0]:
            case Kind.BINDING:
                if entry.binding is not None and entry.binding.uid == known[1]:
                    entry.binding = None
            case Kind.GENERATION:
                current = entry.generations.get(slot)
                if current is not None and current.metadata.get("uid") == known[1]:
                    del entry.generations[slot]
            case Kind.EVENT:
                # The API server forgets Events after an hour; the page forgets them when they are too many.
                pass
        if entry.binding is None and not entry.generations:
            self._forget(key)
        self._tell(key)

    def _forget(self, key: Key) -> None:
        del self._entries[key]
        for known in [each for each, (owner, _) in self._where.items() if owner == key]:
            del self._where[known]

    def _tell(self, key: Key) -> None:
        self.version += 1
        for listener in list(self._listeners):
            listener(key)


def _uid(body: dict[str, Any]) -> str:
    return str(body.get("metadata", {}).get("uid", ""))


def _binding_of(event: dict[str, Any]) -> str | None:
    """Whose log an Event belongs to."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    name = str(about.get("name", ""))
    if about.get("kind") == names.BINDING_KIND:
        return name
    if about.get("kind") == names.GENERATION_KIND and "-g" in name:
        return name.rpartition("-g")[0]
    return None


def _line(event: dict[str, Any]) -> LogLine:
    metadata = event["metadata"]
    series = event.get("series") or {}
    at = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or metadata["creationTimestamp"]
    )
    reason = str(event.get("reason") or "")
    message = str(event.get("message") or event.get("note") or reason)
    count = int(series.get("count") or event.get("count") or 1)
    text = f"{reason}: {message}" if reason and reason not in message else message
    if count > 1:
        text += f" (x{count})"
    level = "INFO"
    if event.get("type") == "Warning":
        level = (
            "ERROR" if any(word in reason for word in ("Fail", "Error", "Invalid", "Exceeded")) else "WARN"
        )
    return LogLine(uid=str(metadata["uid"]), at=datetime.fromisoformat(str(at)), level=level, message=text)


def describe_build(entry: Entry) -> str:
    """What is being built, in words, for a binding that serves nothing yet."""
    for generation in reversed(entry.ordered()):
        status = generation.status
        if status.phase in (None, Phase.STARTING):
            return f"generation {generation.spec.number} is starting"
        if status.phase is Phase.READING:
            percent = f" ({status.progress.percent} %)" if status.progress else ""
            return f"generation {generation.spec.number} is reading its topics{percent}"
    return "nothing is being served yet"


def failure_of(entry: Entry, number: int | None) -> str:
    """Why a generation (or, with None, the binding) will show nothing by itself; empty while there is
    hope."""
    if number is not None:
        generation = entry.generations.get(number)
        if generation is not None and generation.status.phase is Phase.FAILED:
            status = generation.status
            return status.message or status.reason or f"generation {number} failed"
        return ""
    stalled = entry.binding.status.condition("Stalled") if entry.binding else None
    if stalled is not None and stalled.status == "True":
        return stalled.message or stalled.reason
    if entry.binding is not None and entry.binding.spec.state == "Suspended":
        return "the binding is suspended"
    return ""
