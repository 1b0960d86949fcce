"""What the viewers of one table see: a mirror that changes from generation to generation, and its state.

The swap: when the binding's active generation moves, the new driver is opened beside the old, and only when
its whole snapshot is here does `current` change: in one step, for all viewers. Then the old driver is left.
Channels are made and closed by `hub`; `viewer` reads `current`, `told` and `beat` and waits on `signal`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from topicbinding.api import names
from topicbinding.gateway.directory import Directory, Key, describe_build, failure_of
from topicbinding.gateway.mirror import Frame, Mirror
from topicbinding.gateway.settings import Settings
from topicbinding.gateway.states import Facts, State, Told, tell
from topicbinding.gateway.upstream import Upstream

GATHER_MS_PER_VIEWER: Final = 0.05
"""About twice what sending one small frame to one viewer costs: the gateway is never busier than half of the
time."""

OpenUpstream = Callable[[Mirror, str, Callable[[], None], Callable[[], float]], Upstream]


class Signal:
    """Wakes everybody who waits, once. Whoever arms it before looking cannot miss a change."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def arm(self) -> asyncio.Future[None]:
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    def fire(self) -> None:
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)


class Parked(Protocol):
    """A viewer that has everything and waits: it is sent small frames at once, without waking a task of its
    own."""

    def push(self, channel: Channel) -> None: ...


class Channel:
    """The part that does not care where the rows come from."""

    def __init__(self, key: Key, table: str, settings: Settings) -> None:
        self.key = key
        self.table = table
        self.settings = settings
        self.signal = Signal()
        self.current: Mirror | None = None
        self.told = Told(State.SWAPPING)
        self.told_version = 0
        self.beats = 0
        self.viewers: set[object] = set()
        self.parked: set[Parked] = set()
        self.idle_since = time.monotonic()
        self._state_frame: tuple[tuple[int, int], Frame] | None = None
        self._beat_frame: tuple[int, Frame] | None = None

    # -- for the subclasses

    def facts(self) -> Facts:
        raise NotImplementedError

    def sources(self) -> dict[str, Any]:
        """Where the rows come from, as the state frame shows it."""
        return {}

    def retarget(self) -> None:
        """The directory changed."""

    async def close(self) -> None:
        """Leave the drivers."""

    def announce(self) -> None:
        """Something changed: send it to those who wait, wake those who send for themselves."""
        for viewer in list(self.parked):
            viewer.push(self)
        self.signal.fire()

    # -- for the hub

    def look(self) -> None:
        """Judge the state again: called on every change and twice a second, because silence has no event."""
        told = tell(self.facts(), self.settings.stale_seconds)
        if told != self.told:
            self.told = told
            self.told_version += 1
            self.announce()

    def tick(self) -> None:
        """Time for a heartbeat."""
        self.beats += 1
        if self.current is not None:
            self.current.forget_frames()
        self.announce()

    def join(self, viewer: object) -> None:
        self.viewers.add(viewer)

    def leave(self, viewer: object) -> None:
        self.viewers.discard(viewer)
        self.idle_since = time.monotonic()

    # -- for the viewers

    def age_ms(self) -> int | None:
        silent = self.facts().silent_seconds
        return None if silent is None else round(silent * 1000)

    def state_frame(self) -> Frame:
        made_at = (self.told_version, self.beats)  # the age in it must not be older than a heartbeat
        if self._state_frame is None or self._state_frame[0] != made_at:
            self._state_frame = (made_at, Frame(self._about("state") | {"sources": self.sources()}))
        return self._state_frame[1]

    def beat_frame(self) -> Frame:
        if self._beat_frame is None or self._beat_frame[0] != self.beats:
            self._beat_frame = (self.beats, Frame(self._about("heartbeat")))
        return self._beat_frame[1]

    def _about(self, kind: str) -> dict[str, Any]:
        mirror = self.current
        return {
            "type": kind,
            "state": self.told.state.value,
            "reason": self.told.reason,
            "ageMs": self.age_ms(),
            "generation": mirror.generation if mirror else None,
            "epoch": mirror.epoch if mirror else None,
            "seq": mirror.shown if mirror else None,
            "rows": mirror.rows if mirror else None,
            "newestEventTime": mirror.newest_event_time if mirror else None,
            "ts": int(time.time() * 1000),
        }


class GenerationChannel(Channel):
    """A data table: `users_ui`, `accounts_ui` or `final_ui`, of the active generation or of a pinned one."""

    def __init__(
        self,
        key: Key,
        table: str,
        pinned: int | None,
        directory: Directory,
        settings: Settings,
        open_upstream: OpenUpstream,
    ) -> None:
        super().__init__(key, table, settings)
        self.pinned = pinned
        self._directory = directory
        self._open = open_upstream
        self._shown: Upstream | None = None
        self._coming: Upstream | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self.retarget()

    def wanted(self) -> int | None:
        entry = self._directory.get(self.key)
        if entry is None:
            return None
        if self.pinned is not None:
            return self.pinned if self.pinned in entry.generations else None
        return entry.active

    def retarget(self) -> None:
        wanted = self.wanted()
        shown = self._shown.mirror.generation if self._shown else None
        coming = self._coming.mirror.generation if self._coming else None
        if wanted is not None and wanted not in (shown, coming):
            self._leave(self._coming)
            self._coming = self._start(wanted)
        elif wanted == shown and self._coming is not None:
            # Rolled back before the new rows were here: stay where we are.
            self._leave(self._coming)
            self._coming = None
        elif wanted is None and self._coming is not None:
            self._leave(self._coming)
            self._coming = None
        self.look()

    def _start(self, number: int) -> Upstream:
        mirror = Mirror(number, ring_frames=self.settings.ring_frames, ring_bytes=self.settings.ring_bytes)
        generation = names.generation_name(self.key.name, number)
        return self._open(mirror, generation, self._changed, self._gather_seconds)

    def _gather_seconds(self) -> float:
        """A few viewers are sent everything at once; the more there are, the more is gathered."""
        return min(self.settings.gather_ms, GATHER_MS_PER_VIEWER * len(self.viewers)) / 1000

    def _changed(self) -> None:
        coming = self._coming
        if coming is not None and coming.mirror.complete:
            left, self._shown, self._coming = self._shown, coming, None
            self.current = coming.mirror
            self._leave(left)
        self.look()
        self.announce()

    def _leave(self, upstream: Upstream | None) -> None:
        if upstream is not None:
            task = asyncio.create_task(upstream.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        for upstream in (self._coming, self._shown):
            if upstream is not None:
                await upstream.close()
        if self._leaving:
            await asyncio.gather(*self._leaving, return_exceptions=True)

    def facts(self) -> Facts:
        entry = self._directory.get(self.key)
        shown = self._shown
        wanted = self.wanted()
        upstream = self._coming or shown
        failure = ""
        if entry is None:
            failure = f"there is no binding {self.key.namespace}/{self.key.name}"
        elif self.pinned is not None and wanted is None:
            failure = f"generation {self.pinned} is gone"
        else:
            failure = failure_of(entry, wanted)
        return Facts(
            exists=entry is not None,
            shown=shown.mirror.generation if shown else None,
            wanted=wanted,
            silent_seconds=None
            if shown is None or shown.heard is None
            else max(0.0, time.monotonic() - shown.heard),
            trouble=upstream.trouble if upstream and upstream.trouble != "connecting" else "",
            failure=failure,
            building=describe_build(entry) if entry else "",
        )

    def sources(self) -> dict[str, Any]:
        entry = self._directory.get(self.key)
        number = self.current.generation if self.current else None
        generation = entry.generations.get(number) if entry and number is not None else None
        if generation is not None and generation.spec.source is not None:
            source = generation.spec.source
            return {
                "usersTopic": source.users_topic,
                "accountsTopic": source.accounts_topic,
                "joinType": source.join_type.value,
            }
        if entry is not None and entry.binding is not None and number == entry.active:
            status = entry.binding.status
            return {
                "usersTopic": status.users_topic,
                "accountsTopic": status.accounts_topic,
                "joinType": status.join_type,
            }
        return {}
