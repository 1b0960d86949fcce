"""The rows of a table on the client's side: applies frames, tells what they changed. Pure; called by
`live`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from topicbinding.tables.frames import FrameError
from topicbinding.tables.rows import last_of_each, merge
from topicbinding.tables.schema import ROW_ID


@dataclass(frozen=True, slots=True)
class Update:
    """Rows changed. `rows` holds what came (after a snapshot: everything), without the row's identity."""

    rows: pa.Table
    generation: int
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Swap:
    """The table moved to another generation, all rows at once."""

    come_from: int
    generation: int


@dataclass(frozen=True, slots=True)
class State:
    """live, stale, swapping or failed; `lost` while the gateway itself cannot be reached."""

    state: str
    reason: str = ""
    age_ms: int | None = None
    generation: int | None = None
    sources: tuple[tuple[str, Any], ...] = ()


Event = Update | Swap | State

FOLD_DELTAS = 200
"""Deltas that may wait before they are folded in: reading rows folds them anyway."""


class Replica:
    def __init__(self) -> None:
        self.generation: int | None = None
        self.seq: int | None = None
        self.epoch = ""
        self.state = State("lost", "not connected yet")
        self._base: pa.Table | None = None
        self._deltas: list[pa.Table] = []
        self._parts: list[pa.Table] = []

    @property
    def complete(self) -> bool:
        return self._base is not None

    @property
    def place(self) -> str | None:
        """What to ask the gateway to resume from."""
        return f"{self.generation}:{self.epoch}:{self.seq}" if self._base is not None else None

    @property
    def rows(self) -> pa.Table:
        """All rows in order of arrival, as people see them."""
        return _visible(self.table)

    @property
    def table(self) -> pa.Table:
        """The same with `_row`, the identity of each row within its generation."""
        if self._base is None:
            raise LookupError("no rows have arrived yet")
        if self._deltas:
            self._base, self._deltas = merge(self._base, self._deltas), []
        return self._base

    def apply(self, header: dict[str, Any], rows: pa.Table | None) -> list[Event]:
        """Take one frame. A snapshot or a swap changes nothing before its last part."""
        match header["type"]:
            case "snapshot" | "swap":
                return self._whole(header, rows)
            case "delta":
                return self._delta(header, rows)
            case "state" | "heartbeat":
                return self._told(header)
        return []

    def lost(self, reason: str) -> list[Event]:
        """The gateway cannot be reached: the rows stay, and are no longer called live."""
        self._parts.clear()
        before, self.state = self.state, State("lost", reason, None, self.generation)
        return [] if before == self.state else [self.state]

    def _whole(self, header: dict[str, Any], rows: pa.Table | None) -> list[Event]:
        if rows is None:
            raise FrameError("a snapshot without rows or schema")
        if header["part"] == 1:
            self._parts.clear()
        self._parts.append(rows)
        if len(self._parts) != header["part"]:
            raise FrameError("a part of a snapshot is missing")
        if header["part"] < header["parts"]:
            return []
        before = self.generation
        self._base, self._parts, self._deltas = last_of_each(pa.concat_tables(self._parts)), [], []
        self._at(header)
        update = Update(self.rows, header["generation"], snapshot=True)
        if header["type"] == "swap" and before != header["generation"]:
            return [Swap(header["from"], header["to"]), update]
        return [update]

    def _delta(self, header: dict[str, Any], rows: pa.Table | None) -> list[Event]:
        if rows is None or self._base is None:
            raise FrameError("a delta before its snapshot, or without rows")
        self._deltas.append(rows)
        if len(self._deltas) >= FOLD_DELTAS:
            self._base, self._deltas = merge(self._base, self._deltas), []
        self._at(header)
        return [Update(_visible(rows), header["generation"], snapshot=False)]

    def _told(self, header: dict[str, Any]) -> list[Event]:
        sources = tuple(sorted((header.get("sources") or {}).items())) or self.state.sources
        before = self.state
        self.state = State(
            header["state"],
            header.get("reason") or "",
            header.get("ageMs"),
            header.get("generation"),
            sources,
        )
        same = (before.state, before.reason, before.generation, before.sources) == (
            self.state.state,
            self.state.reason,
            self.state.generation,
            self.state.sources,
        )
        return [] if same else [self.state]

    def _at(self, header: dict[str, Any]) -> None:
        self.generation, self.epoch, self.seq = header["generation"], header["epoch"], header["seq"]


def _visible(table: pa.Table) -> pa.Table:
    return table.drop_columns([ROW_ID]) if ROW_ID in table.schema.names else table
