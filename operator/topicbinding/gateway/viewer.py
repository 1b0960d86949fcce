"""What one viewer has seen, and what it must be sent next. No socket here: `streams` asks and sends.

A viewer holds no queue: it has a place (mirror, version, seq) in what the channel keeps for everybody. One
that falls behind what is kept is sent a snapshot; memory is bounded by the channel, not by the number of
viewers.
"""

from __future__ import annotations

from dataclasses import dataclass

from topicbinding.gateway.channel import Channel
from topicbinding.gateway.mirror import Frame, Mirror


@dataclass(frozen=True, slots=True)
class Place:
    """Where a returning viewer was: the id of the last event it took, `generation:epoch:seq`."""

    generation: int
    epoch: str
    seq: int

    @classmethod
    def parse(cls, text: str | None) -> Place | None:
        """None for anything that is not an id of ours: the viewer then simply begins anew."""
        generation, _, rest = (text or "").partition(":")
        epoch, _, seq = rest.rpartition(":")
        if not (generation.isdecimal() and seq.isdecimal() and epoch and len(rest) < 200):
            return None
        return cls(int(generation), epoch, int(seq))

    @classmethod
    def of(cls, frame: Frame) -> str | None:
        """The id of a frame; only frames that complete a step have one."""
        header = frame.header
        if header["type"] not in ("snapshot", "swap", "delta") or header.get("part") != header.get("parts"):
            return None
        return f"{header['generation']}:{header['epoch']}:{header['seq']}"


class Viewer:
    def __init__(self, place: Place | None = None) -> None:
        self._place = place
        self._mirror: Mirror | None = None
        self._generation = place.generation if place else None
        self._version = 0
        self._seq = 0
        self._told = -1
        self._beats: int | None = None
        self.snapshots = 0
        """Snapshots sent after the first rows: a slow viewer's count grows."""

    def needs_all(self, channel: Channel) -> bool:
        """Whether its next rows are a whole snapshot or swap, which may be large."""
        mirror = channel.current
        if mirror is None:
            return False
        return (
            self._mirror is not mirror or self._version != mirror.version or mirror.since(self._seq) is None
        )

    def next(self, channel: Channel) -> list[Frame]:
        """The frames this viewer is missing now; empty when it has everything."""
        made = self._rows(channel.current) if channel.current is not None else []
        if self._told != channel.told_version:
            self._told = channel.told_version
            made = [*made, channel.state_frame()]
        if self._beats != channel.beats:
            if self._beats is not None:
                made = [*made, channel.beat_frame()]
            self._beats = channel.beats
        return made

    def _rows(self, mirror: Mirror) -> list[Frame]:
        if self._mirror is mirror and self._version == mirror.version:
            deltas = mirror.since(self._seq)
            if deltas is not None:
                self._seq = mirror.shown
                return list(deltas)
            self.snapshots += 1
            return self._whole(mirror, "snapshot")
        returning = self._place if self._mirror is None else None
        self._place = None
        if returning and (returning.generation, returning.epoch) == (mirror.generation, mirror.epoch):
            deltas = mirror.since(returning.seq)
            if deltas is not None:
                self._settle(mirror)
                return list(deltas)
        if self._generation is not None and self._generation != mirror.generation:
            return self._whole(mirror, "swap")
        return self._whole(mirror, "snapshot")

    def _whole(self, mirror: Mirror, kind: str) -> list[Frame]:
        frames = mirror.snapshot(kind, self._generation if kind == "swap" else None)
        self._settle(mirror)
        return frames

    def _settle(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._generation = mirror.generation
        self._version = mirror.version
        self._seq = mirror.shown
