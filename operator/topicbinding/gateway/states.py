"""What a viewer is told about a table: live, stale, swapping or failed. A pure function of what is known.

A table is live only while its driver is heard; silence of any cause makes it stale by itself, with its age,
so that a frozen table can never claim to be live. Called by `channel` twice a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BLINK_SECONDS: Final = 1.0
"""A connection that is opened again within this time was never news to a person."""


class State(StrEnum):
    LIVE = "live"
    STALE = "stale"
    SWAPPING = "swapping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Facts:
    """`shown` is the generation whose rows the viewer has; `wanted` the one it should have."""

    exists: bool
    shown: int | None
    wanted: int | None
    silent_seconds: float | None
    """Since the driver of `shown` was last heard; None when it never was."""
    trouble: str = ""
    """Why it is not heard, in words."""
    failure: str = ""
    """Why nothing better will come by itself (the generation failed)."""
    building: str = ""
    """What is being built, in words, while there is nothing to show."""


@dataclass(frozen=True, slots=True)
class Told:
    """The state without its age: a change of this is worth a frame of its own, the age travels with
    heartbeats."""

    state: State
    reason: str = ""


def tell(facts: Facts, stale_seconds: float) -> Told:
    if not facts.exists:
        return Told(State.FAILED, facts.failure or "the binding does not exist")
    if facts.shown is None:
        if facts.failure:
            return Told(State.FAILED, facts.failure)
        if facts.wanted is None:
            return Told(State.SWAPPING, facts.building or "nothing is being served yet")
        return Told(State.SWAPPING, facts.trouble or f"opening generation {facts.wanted}")
    if facts.wanted is not None and facts.wanted != facts.shown:
        return Told(State.SWAPPING, facts.trouble or f"moving to generation {facts.wanted}")
    if facts.failure:
        return Told(State.FAILED, facts.failure)
    patience = BLINK_SECONDS if facts.trouble else stale_seconds
    if facts.silent_seconds is None or facts.silent_seconds > patience:
        return Told(State.STALE, facts.trouble or "the driver is silent")
    return Told(State.LIVE)
