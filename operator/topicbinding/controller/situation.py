"""Where every generation of a binding stands, worked out once per pass from what was observed.

Used by the planner and by the status it reports. A generation's role follows from the stable Service and from
marks on the generation itself, never from the controller's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from topicbinding.api import CheckpointType, Phase, SparkSpec, names
from topicbinding.controller.observed import (
    DriverFailures,
    Failure,
    SeenBinding,
    SeenGeneration,
    SeenPod,
    SeenService,
)
from topicbinding.controller.policy import Policy


class Role(StrEnum):
    """A generation has exactly one."""

    ACTIVE = "active"  # the stable Service selects it
    CANDIDATE = "candidate"  # being built for the newest wish
    LINGERING = "lingering"  # was active; leaves at its retireAt
    GIVEN_UP = "given up"  # failed, stuck or superseded; leaves at its retireAt
    STANDBY = "standby"  # warm, without a source
    LEAVING = "leaving"  # deleted, waiting for its pod, Service and checkpoint to go


class Why(StrEnum):
    """Why a generation was given up; the value of its annotation, and a condition reason."""

    SUPERSEDED = "Superseded"
    SUSPENDED = "Suspended"
    DEADLINE = "ProgressDeadlineExceeded"
    DRIVER = "DriverFailed"


def wish_failed(generation: SeenGeneration) -> bool:
    """Did the wish itself fail? Then it is not tried again while the failed one can be inspected."""
    return generation.given_up in (Why.DEADLINE, Why.DRIVER)


@dataclass(frozen=True, slots=True)
class Situation:
    binding: SeenBinding
    service: SeenService | None
    roles: Mapping[int, Role]
    generations: Mapping[int, SeenGeneration]
    pods: Mapping[int, SeenPod]
    wanted: str  # hash of the wished choice

    @property
    def active(self) -> SeenGeneration | None:
        return next(iter(self.having(Role.ACTIVE)), None)

    def having(self, role: Role) -> list[SeenGeneration]:
        """Generations in that role, oldest first."""
        return [self.generations[number] for number in sorted(self.roles) if self.roles[number] is role]

    def wished(self, role: Role) -> list[SeenGeneration]:
        """Those of the role that were built from the choice now wished for, newest first."""
        return [each for each in reversed(self.having(role)) if each.choice_hash == self.wanted]

    def servable(self, generation: SeenGeneration) -> bool:
        """Caught up by the word of the very pod that is alive now: a restarted driver catches up again."""
        pod = self.pods.get(generation.number)
        return (
            generation.status.phase is Phase.CAUGHT_UP
            and pod is not None
            and pod.alive
            and generation.status.pod_uid == pod.meta.uid
        )

    def failed_driver(self, generation: SeenGeneration) -> tuple[Failure, datetime] | None:
        """Why and when the present driver ended, by its own report or by its pod's state."""
        pod = self.pods.get(generation.number)
        if pod is None or pod.gone_at or pod.meta.deleted_at:
            return None
        told = generation.status
        reported = told.phase is Phase.FAILED and told.pod_uid == pod.meta.uid
        words = Failure(told.reason or "DriverFailed", told.message or "the driver reported a failure")
        if pod.finished:
            ended = pod.failure or Failure("DriverFailed", "the driver ended")
            return (words if reported else ended, pod.finished_at or pod.meta.created)
        if reported:
            return (words, told.updated_at or pod.meta.created)
        return None

    def failures(self, generation: SeenGeneration, policy: Policy) -> DriverFailures | None:
        """Failures so far, the present one included. Counted by pod, so a crash cannot count one twice."""
        known = generation.failures
        failed = self.failed_driver(generation)
        if failed is None:
            return known
        pod = self.pods[generation.number]
        if known is not None and known.pod_uid == pod.meta.uid:
            return known
        failure, at = failed
        healthy = at - pod.meta.created >= policy.healthy_after
        count = 1 if known is None or healthy else known.count + 1
        return DriverFailures(count, pod.meta.uid, failure.reason, failure.message[:512])


def understand(
    binding: SeenBinding,
    generations: Iterable[SeenGeneration],
    pods: Iterable[SeenPod],
    service: SeenService | None,
) -> Situation:
    """Only what belongs to this very binding counts: one of the same name may have been deleted a moment ago,
    and its Service, generations and pods may still be on their way out."""
    ours = {each.number: each for each in generations if each.spec.binding_uid == binding.meta.uid}
    if service is not None and service.meta.owner != binding.meta.uid:
        service = None
    selected = service.active if service else binding.status.active_generation
    return Situation(
        binding=binding,
        service=service,
        roles={number: _role(each, selected) for number, each in ours.items()},
        generations=ours,
        pods={
            each.number: each
            for each in pods
            if each.number in ours and each.meta.owner == ours[each.number].meta.uid
        },
        wanted=binding.wanted,
    )


def _role(generation: SeenGeneration, selected: int | None) -> Role:
    if generation.meta.deleted_at:
        return Role.LEAVING
    if generation.number == selected:
        return Role.ACTIVE
    if generation.spec.source is None:
        return Role.STANDBY
    if generation.given_up:
        return Role.GIVEN_UP
    # The mark, once set, is never taken away: whatever was active has a linger to its name, even if a crash
    # or a second controller left it without a retireAt.
    if generation.was_active or generation.spec.retire_at:
        return Role.LINGERING
    return Role.CANDIDATE


def resolved(spark: SparkSpec, policy: Policy) -> SparkSpec:
    return spark if spark.image else spark.model_copy(update={"image": policy.default_image})


def kafka_secret(binding: SeenBinding) -> str | None:
    reference = binding.spec.kafka.security.secret_ref
    return reference.name if reference else None


def unservable(binding: SeenBinding) -> Failure | None:
    """What the API server lets through and no generation can be built from."""
    name = binding.meta.name
    if len(name) > names.MAX_BINDING_NAME or "." in name or not name[:1].isalpha():
        return Failure(
            "InvalidName",
            f"the name must be at most {names.MAX_BINDING_NAME} letters, digits and dashes and begin with a "
            "letter, because Services are named after it; create the binding under another name",
        )
    spark = binding.spec.spark
    if spark.executors.instances and spark.checkpoint.type is CheckpointType.EMPTY_DIR:
        return Failure(
            "CheckpointNotShared",
            "executors need a checkpoint that they share with the driver: set spec.spark.checkpoint.type to "
            "pvc or uri, or spec.spark.executors.instances to 0",
        )
    return None
