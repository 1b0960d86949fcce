"""A generation's driver: when to make it, wait for it, replace it or stop it. Pure; the planner's second
half.

A pod that has vanished is distrusted for a while, one that failed is replaced after a growing wait, one that
cannot end is removed by force. The generation stays the same through all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from topicbinding.controller.actions import Action, CreateDriver, RecordFailure, RemoveDriver
from topicbinding.controller.observed import SeenGeneration, SeenPod
from topicbinding.controller.policy import Policy
from topicbinding.controller.situation import Situation


@dataclass(frozen=True, slots=True)
class Tending:
    """What to do about one driver now, and when time alone changes that."""

    actions: tuple[Action, ...] = ()
    look_again_at: datetime | None = None


def stop(situation: Situation, generation: SeenGeneration, reason: str) -> Tending:
    pod = situation.pods.get(generation.number)
    if pod is None or pod.gone_at or pod.meta.deleted_at:
        return Tending()
    uid = pod.meta.uid
    return Tending((RemoveDriver(number=generation.number, uid=uid, at_once=False, reason=reason, note=""),))


def tend(situation: Situation, generation: SeenGeneration, now: datetime, policy: Policy) -> Tending:
    """Its driver should run."""
    number, pod = generation.number, situation.pods.get(generation.number)
    if pod is None:
        return Tending((CreateDriver(number=number, reason="DriverCreated", note=""),))
    if pod.gone_at is not None:
        return _gone(generation, pod, pod.gone_at, now, policy)
    if pod.meta.deleted_at is not None:
        return _ending(number, pod, pod.meta.deleted_at, now, policy)
    return _failed(situation, generation, pod, now, policy)


def _gone(
    generation: SeenGeneration, pod: SeenPod, gone_at: datetime, now: datetime, policy: Policy
) -> Tending:
    # One that failed was removed by us, to be replaced. Any other absence is distrusted for a while.
    number, failures = generation.number, generation.failures
    replaced = pod.finished or (failures is not None and failures.pod_uid == pod.meta.uid)
    believed = gone_at if replaced else gone_at + policy.lost_grace
    if now < believed:
        return Tending(look_again_at=believed)
    lost = "" if replaced else f"the driver pod of generation {number} is gone; it is made again"
    return Tending((CreateDriver(number=number, reason="DriverLost", note=lost, warning=bool(lost)),))


def _ending(number: int, pod: SeenPod, deleted_at: datetime, now: datetime, policy: Policy) -> Tending:
    forced = deleted_at + policy.stuck_grace
    if now < forced:
        return Tending(look_again_at=forced)
    note = f"the driver pod of generation {number} does not end (node gone?); it is removed by force"
    return Tending(
        (
            RemoveDriver(
                number=number,
                uid=pod.meta.uid,
                at_once=True,
                reason="DriverStuck",
                note=note,
                warning=True,
            ),
        )
    )


def _failed(
    situation: Situation, generation: SeenGeneration, pod: SeenPod, now: datetime, policy: Policy
) -> Tending:
    """Nothing, if it has not failed. Else the failure is recorded, and after a wait the pod makes room."""
    failed = situation.failed_driver(generation)
    failures = situation.failures(generation, policy)
    if failed is None or failures is None:
        return Tending()
    number, (_, at) = generation.number, failed
    wait = policy.retry_after(failures.count)
    actions: list[Action] = []
    if failures != generation.failures:
        note = (
            f"the driver of generation {number} failed (time {failures.count}), again in "
            f"{wait.total_seconds():.0f} s: {failures.reason}: {failures.message}"
        )
        actions.append(
            RecordFailure(number=number, failures=failures, reason="DriverFailed", note=note, warning=True)
        )
    if now < at + wait:
        return Tending(tuple(actions), at + wait)
    # Recorded first, removed second: the count survives a crash between the two.
    actions.append(
        RemoveDriver(number=number, uid=pod.meta.uid, at_once=True, reason="DriverReplaced", note="")
    )
    return Tending(tuple(actions))
