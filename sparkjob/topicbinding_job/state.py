"""What the driver knows about itself: one object that the driver writes and the reporter, the API and the
metrics read.

Plain data behind a lock; nothing here acts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from topicbinding.api import BadSample, Phase
from topicbinding_job import VERSION
from topicbinding_job.log import TableLog
from topicbinding_job.topics import Plan

MESSAGE_LENGTH = 2048


@dataclass
class DriverState:
    """Phase and figures of this run."""

    number: int = 0
    pod_uid: str = ""
    phase: Phase = Phase.STARTING
    reason: str = ""
    message: str = ""
    mode: str | None = None
    plan: Plan | None = None
    log: TableLog | None = None
    lag: int | None = None
    lag_by_partition: dict[tuple[str, int], int] = field(default_factory=dict)
    percent: int = 0
    eta_seconds: int | None = None
    caught_up_at: datetime | None = None
    archive_used: bool = False
    batch_seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _listeners: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def on_phase(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def move(self, phase: Phase, reason: str, message: str = "") -> None:
        """A new phase, for everybody to see at once."""
        with self._lock:
            self.phase, self.reason, self.message = phase, reason, message[:MESSAGE_LENGTH]
            if phase is Phase.CAUGHT_UP and self.caught_up_at is None:
                self.caught_up_at = datetime.now(UTC)
        for listener in self._listeners:
            listener()

    def status(self) -> dict[str, Any]:
        """The Generation's status as it should read now; None removes a field."""
        with self._lock:
            status: dict[str, Any] = {
                "phase": self.phase.value,
                "reason": self.reason or None,
                "message": self.message or None,
                "mode": self.mode,
                "driverVersion": VERSION,
                "podUid": self.pod_uid or None,
                "lag": self.lag,
                "progress": {"percent": self.percent, "etaSeconds": self.eta_seconds},
            }
            if self.caught_up_at is not None:
                status["caughtUpAt"] = _iso(self.caught_up_at)
            if self.plan is not None:
                status["startOffsets"] = self.plan.start_offsets.model_dump(by_alias=True)
                status["endOffsets"] = self.plan.end_offsets.model_dump(by_alias=True)
        if self.log is not None:
            status |= _figures(self.log)
        return status


def now_iso() -> str:
    return _iso(datetime.now(UTC))


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _figures(log: TableLog) -> dict[str, Any]:
    users, accounts = log.side_rows
    samples = [
        BadSample(
            side=bad.side,
            partition=bad.partition,
            offset=bad.offset,
            reason="not a JSON object, or a field of the wrong type",
            value=bad.value,
        ).model_dump(by_alias=True)
        for bad in log.bad_rows()
    ]
    return {
        "rows": {
            "users": users.rows,
            "accounts": accounts.rows,
            "final": log.tables["final_ui"].rows,
        },
        "nullKeys": {"users": users.null_keys, "accounts": accounts.null_keys},
        "badRows": {"users": users.bad, "accounts": accounts.bad},
        "tombstones": {"users": users.tombstones, "accounts": accounts.tombstones},
        "badSamples": samples,
    }
