"""What a stand-in driver does, told by the names of its topics: pure.

A stand-in plays the driver's side of `Generation.status` without Spark. The users topic is its stage
direction:

    anything        catches up at once
    slow-3…         catches up after 3 seconds of reading
    stuck…          reads and never catches up
    broken…         reports a failure and ends with exit code 1
    mute…           ends at once without a word
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Scene:
    """One thing to report, after so many seconds."""

    after: float
    status: dict[str, Any]
    ends: int | None = None  # exit code


def scenes(source: dict[str, Any] | None) -> list[Scene]:
    if source is None:
        return [Scene(0, {"phase": "Standby"})]
    topic = str(source["usersTopic"])
    if topic.startswith("mute"):
        return [Scene(0, {}, ends=3)]
    if topic.startswith("broken"):
        said = {"phase": "Failed", "reason": "TopicNotFound", "message": f"topic {topic} does not exist"}
        return [Scene(0, {"phase": "Starting"}), Scene(0.1, said, ends=1)]
    offsets = {"users": {"0": 0}, "accounts": {"0": 0}}
    reading = Scene(
        0,
        {"phase": "Reading", "startOffsets": offsets, "endOffsets": offsets, "lag": 10, "mode": "microbatch"},
    )
    if topic.startswith("stuck"):
        return [reading]
    slow = re.match(r"slow-([0-9.]+)", topic)
    rows = {"users": 10, "accounts": 10, "final": 10}
    end = {"phase": "CaughtUp", "lag": 0, "rows": rows, "progress": {"percent": 100}}
    return [reading, Scene(float(slow.group(1)) if slow else 0.0, end)]


def report(status: dict[str, Any], pod_uid: str) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    said = status | {"podUid": pod_uid, "updatedAt": now, "driverVersion": "stand-in"}
    if status.get("phase") == "CaughtUp":
        said["caughtUpAt"] = now
    return {"status": said}
