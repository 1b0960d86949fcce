"""The tables that come from the cluster rather than from a driver: status, logs and control messages.

Each is a channel like any other, with a mirror of its own that is filled from the directory (and, for control
messages,
from the bridge). Made by `hub`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Hashable
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
import pyarrow as pa

from topicbinding.api import TopicBinding, names
from topicbinding.gateway.channel import Channel
from topicbinding.gateway.directory import Directory, Key
from topicbinding.gateway.mirror import Mirror
from topicbinding.gateway.settings import Settings
from topicbinding.gateway.states import Facts
from topicbinding.tables.schema import ROW_ID, arrow_schema

log = logging.getLogger(__name__)

EPOCH: Final = f"gateway-{uuid.uuid4().hex[:12]}"
"""These tables are numbered by this process; a viewer that comes from another replica begins with a
snapshot."""

SCHEMAS: Final[dict[str, pa.Schema]] = {
    names.STATUS_TABLE: arrow_schema(
        [
            ("usersTopic", "string"),
            ("accountsTopic", "string"),
            ("joinType", "string"),
            ("lastApplied", "timestamp"),
        ]
    ),
    names.LOGS_TABLE: arrow_schema([("ts", "timestamp"), ("level", "string"), ("msg", "string")]),
    names.CONTROL_TABLE: arrow_schema(
        [
            ("ts", "timestamp"),
            ("partition", "long"),
            ("offset", "long"),
            ("message", "string"),
            ("verdict", "string"),
            ("reason", "string"),
            ("generation", "long"),
            ("outcome", "string"),
        ]
    ),
}

MOST_ROWS: Final = 2000
"""Rows kept before a table begins anew with what its source still has: Events and messages come for ever."""

Row = dict[str, Any]
FetchControl = Callable[[Key], Awaitable[list[Row]]]


class BuiltinChannel(Channel):
    """Keeps rows by their own identity: a row that is known changes in place, a new one is appended."""

    def __init__(
        self,
        key: Key,
        table: str,
        directory: Directory,
        settings: Settings,
        down_seconds: Callable[[], float],
    ) -> None:
        super().__init__(key, table, settings)
        self._directory = directory
        self._down_seconds = down_seconds
        self._ids: dict[Hashable, int] = {}
        self._rows: dict[int, Row] = {}
        self._anew = False
        self._mirror = Mirror(0, ring_frames=settings.ring_frames, ring_bytes=settings.ring_bytes)
        self.retarget()

    def rows(self) -> list[tuple[Hashable, Row]]:
        """The rows as they should be now, each with what identifies it."""
        raise NotImplementedError

    def retarget(self) -> None:
        if self._directory.get(self.key) is not None:
            self._show(self.rows())
        self.look()

    def _begin_anew(self) -> None:
        """Forget the rows: the next ones are a snapshot. Rows of a stream are never deleted one by one."""
        self._ids.clear()
        self._rows.clear()
        self._anew = True

    def _show(self, rows: list[tuple[Hashable, Row]]) -> None:
        if len(self._rows) > MOST_ROWS:
            self._begin_anew()
        changed: list[Row] = []
        for identity, row in rows:
            number = self._ids.setdefault(identity, len(self._ids))
            if self._rows.get(number) != row:
                self._rows[number] = row
                changed.append({ROW_ID: number, **row})
        if self._mirror.complete and not changed and not self._anew:
            return
        schema = SCHEMAS[self.table]
        header = {
            "epoch": EPOCH,
            "seq": self._mirror.seq + 1,
            "rows": len(self._rows),
            "ts": int(time.time() * 1000),
        }
        if not self._mirror.complete or self._anew:
            self._anew = False
            self._mirror.reset(header, [pa.Table.from_pylist(changed, schema=schema)])
        else:
            self._mirror.add(header, pa.Table.from_pylist(changed, schema=schema))
            self._mirror.flush()
        self.current = self._mirror
        self.announce()
        if self._mirror.wants_compaction:
            task = asyncio.ensure_future(self._mirror.compact())
            task.add_done_callback(lambda done: done.exception())

    def facts(self) -> Facts:
        entry = self._directory.get(self.key)
        return Facts(
            exists=entry is not None,
            shown=0 if self._mirror.complete else None,
            wanted=0 if self._mirror.complete else None,
            silent_seconds=self._down_seconds(),
            trouble="the API server cannot be reached" if self._down_seconds() else "",
            failure="" if entry else f"there is no binding {self.key.namespace}/{self.key.name}",
        )


class StatusChannel(BuiltinChannel):
    """orchestrator_status: one row, in place; also when nothing can be built, and on a heartbeat."""

    def rows(self) -> list[tuple[Hashable, Row]]:
        entry = self._directory.get(self.key)
        if entry is None or entry.binding is None:
            return []
        status, spec = entry.binding.status, entry.binding.spec
        # Before anything is served the row shows what is wished for, so that it exists from the beginning.
        return [
            (
                "status",
                {
                    "usersTopic": status.users_topic or spec.users_topic,
                    "accountsTopic": status.accounts_topic or spec.accounts_topic,
                    "joinType": status.join_type or spec.join_type.value,
                    "lastApplied": status.last_applied,
                },
            )
        ]


class LogsChannel(BuiltinChannel):
    """orchestrator_logs: the Events of the binding and of its generations. What the controller logs about a
    binding is among them: it writes each such line as an Event too."""

    def rows(self) -> list[tuple[Hashable, Row]]:
        return [
            (line.uid, {"ts": line.at.astimezone(UTC), "level": line.level, "msg": line.message})
            for line in self._directory.lines(self.key)
        ]


class ControlChannel(BuiltinChannel):
    """control_raw: from the bridge; while it cannot be reached, the last message from the binding's
    status."""

    def __init__(
        self,
        key: Key,
        table: str,
        directory: Directory,
        settings: Settings,
        down_seconds: Callable[[], float],
        fetch: FetchControl,
    ) -> None:
        self._fetch = fetch
        self._fetched: list[Row] | None = None
        self._wake = asyncio.Event()
        super().__init__(key, table, directory, settings, down_seconds)
        self._task = asyncio.create_task(self._poll(), name=f"control {key.namespace}/{key.name}")

    def rows(self) -> list[tuple[Hashable, Row]]:
        entry = self._directory.get(self.key)
        rows = self._fetched
        if rows is None:
            rows = _from_status(entry.binding) if entry is not None and entry.binding is not None else []
        return [((row["partition"], row["offset"], row["ts"]), row) for row in rows]

    def retarget(self) -> None:
        # A new position in the status means that there is a message to fetch: do not wait for the next poll.
        self._wake.set()
        super().retarget()

    async def _poll(self) -> None:
        while True:
            self._wake.clear()
            entry = self._directory.get(self.key)
            if entry is not None and entry.binding is not None and entry.binding.spec.control is not None:
                try:
                    fetched = await self._fetch(self.key)
                    if self._fetched is None:
                        self._begin_anew()  # the message from the status is among the fetched ones
                    self._fetched = fetched
                    self._show(self.rows())
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
                    log.debug("bridge of %s cannot be asked: %s", self.key, error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.bridge_poll_seconds):
                    await self._wake.wait()
                    await asyncio.sleep(min(0.2, self.settings.bridge_poll_seconds / 2))

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def _from_status(binding: TopicBinding) -> list[Row]:
    control = binding.status.control
    if control is None or control.last_message is None:
        return []
    return [
        {
            "ts": control.last_message_at,
            "partition": None,
            "offset": None,
            "message": control.last_message,
            "verdict": control.last_verdict,
            "reason": control.last_reason,
            "generation": None,
            "outcome": None,
        }
    ]


def read_control(body: Any) -> list[Row]:
    """The bridge's answer as rows of control_raw. Anything unexpected in it raises; the caller falls back."""
    rows: list[Row] = []
    for message in body["messages"]:
        rows.append(
            {
                "ts": _time(message.get("timestamp")),
                "partition": int(message["partition"]),
                "offset": int(message["offset"]),
                "message": None if message.get("value") is None else str(message["value"]),
                "verdict": str(message.get("verdict") or ""),
                "reason": str(message.get("reason") or ""),
                "generation": None if message.get("generation") is None else int(message["generation"]),
                "outcome": None if message.get("outcome") is None else str(message["outcome"]),
            }
        )
    return rows


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000, UTC)
    return datetime.fromisoformat(str(value)).astimezone(UTC)
