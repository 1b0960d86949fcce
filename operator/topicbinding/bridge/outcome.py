"""Tells from the binding's status what became of the wish in a message: served, failed, or overtaken.

Pure; called by the service whenever the binding changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from topicbinding.api import TopicBinding, choice_hash
from topicbinding.bridge.position import Awaited


class End(StrEnum):
    """The second receipt of an applied message."""

    SERVING = "serving"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """How far a wish has come. `end` is None while it is on its way."""

    generation: int | None
    end: End | None = None
    reason: str = ""


def outcome(awaited: Awaited, binding: TopicBinding) -> Outcome:
    status, spec = binding.status, binding.spec
    if choice_hash(spec.choice) != awaited.choice:
        return Outcome(None, End.FAILED, "overtaken: the binding asks for something else by now")
    since = awaited.binding_generation
    observed = status.observed_generation
    if observed is None or (since is not None and observed < since):
        return Outcome(None)  # the controller has not seen the wish yet: its status speaks of an older one
    stalled = status.condition("Stalled")
    if stalled is not None and stalled.status == "True":
        return Outcome(status.latest_generation, End.FAILED, f"{stalled.reason}: {stalled.message}")
    served = (status.users_topic, status.accounts_topic, status.join_type)
    ready = status.condition("Ready")
    progressing = status.condition("Progressing")
    if (
        served == (spec.users_topic, spec.accounts_topic, spec.join_type.value)
        and ready is not None
        and ready.status == "True"
        and (progressing is None or progressing.status != "True")
    ):
        return Outcome(status.active_generation, End.SERVING)
    return Outcome(status.latest_generation if progressing and progressing.status == "True" else None)
