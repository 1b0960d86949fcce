"""What the controller sees: frozen views of the API server's objects, and how they are read.

The cache fills itself with these, the planner decides on nothing else. Anything in an object that no decision
needs is dropped here, so a thousand bindings stay small in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from topicbinding.api import (
    Choice,
    Generation,
    GenerationSpec,
    GenerationStatus,
    Phase,
    Previous,
    TopicBinding,
    TopicBindingSpec,
    TopicBindingStatus,
    choice_hash,
    names,
)

Manifest = dict[str, Any]

# On a binding: which controller serves it, where there are several; none means the ordinary one.
ANNOTATION_CONTROLLER = f"{names.GROUP}/controller"
# Annotations that only the controller writes and reads, on its own generations.
ANNOTATION_WAS_ACTIVE = f"{names.GROUP}/was-active"
ANNOTATION_WISHED_AT = f"{names.GROUP}/wished-at"
ANNOTATION_FAILURES = f"{names.GROUP}/driver-failures"
# On the stable Service, in the same patch as its selector: no crash can part a flip from what it flipped
# from.
ANNOTATION_PREVIOUS = f"{names.GROUP}/previous"
ANNOTATION_SECRET = f"{names.GROUP}/kafka-secret"


@dataclass(frozen=True, slots=True)
class Meta:
    """The part of metadata that decisions need."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: datetime
    deleted_at: datetime | None = None
    generation: int = 0
    owner: str | None = None  # uid of the controlling owner
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a driver is not well: one word for programs, a sentence for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DriverFailures:
    """How often the driver of a generation failed, remembered on the generation across its pods."""

    count: int
    pod_uid: str
    reason: str
    message: str

    def wire(self) -> str:
        said = {"count": self.count, "podUid": self.pod_uid, "reason": self.reason, "message": self.message}
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def read(cls, text: str | None) -> DriverFailures | None:
        try:
            said = json.loads(text or "")
            return cls(
                int(said["count"]), str(said["podUid"]), str(said.get("reason")), str(said.get("message"))
            )
        except (ValueError, KeyError, TypeError):
            return None  # absent, or edited by hand: counting starts again


@dataclass(frozen=True, slots=True)
class SeenBinding:
    meta: Meta
    spec: TopicBindingSpec
    status: TopicBindingStatus
    wanted: str  # hash of the wished choice: asked for often, so worked out once

    @property
    def paused(self) -> bool:
        return self.meta.annotations.get(names.ANNOTATION_PAUSED, "").lower() == "true"

    @property
    def controller_class(self) -> str:
        return self.meta.annotations.get(ANNOTATION_CONTROLLER, "")

    @property
    def rollback_requested(self) -> bool:
        return names.ANNOTATION_ROLLBACK in self.meta.annotations


@dataclass(frozen=True, slots=True)
class SeenGeneration:
    meta: Meta
    spec: GenerationSpec
    status: GenerationStatus

    @property
    def number(self) -> int:
        return self.spec.number

    @property
    def choice_hash(self) -> str | None:
        return self.meta.labels.get(names.LABEL_CHOICE)

    @property
    def given_up(self) -> str | None:
        """Why the controller no longer believes in it; None while it does."""
        return self.meta.annotations.get(names.ANNOTATION_GIVEN_UP)

    @property
    def was_active(self) -> bool:
        return ANNOTATION_WAS_ACTIVE in self.meta.annotations

    @property
    def wished_at(self) -> datetime:
        """When it was asked for. A standby is older than its wish, so its creation time will not do."""
        return _time(self.meta.annotations.get(ANNOTATION_WISHED_AT)) or self.meta.created

    @property
    def failures(self) -> DriverFailures | None:
        return DriverFailures.read(self.meta.annotations.get(ANNOTATION_FAILURES))

    @property
    def secret(self) -> str | None:
        """The Kafka Secret its driver mounts; a standby has no source to tell it."""
        if self.spec.source is not None:
            reference = self.spec.source.kafka.security.secret_ref
            return reference.name if reference else None
        return self.meta.annotations.get(ANNOTATION_SECRET)

    @property
    def started(self) -> bool:
        """Has it begun to read? What has not is worth nothing to anybody who would inspect it."""
        return self.status.start_offsets is not None or self.status.phase in (Phase.READING, Phase.CAUGHT_UP)

    @property
    def choice(self) -> Choice | None:
        """The choice it was made from. An image that was left open then is left open again."""
        if self.spec.source is None:
            return None
        said = {name: getattr(self.spec.source, name) for name in type(self.spec.source).model_fields}
        choice = Choice(**said, spark=self.spec.spark)
        if choice_hash(choice) != self.choice_hash:
            choice = Choice(**said, spark=self.spec.spark.model_copy(update={"image": None}))
        return choice


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A driver pod. One that has vanished is remembered as gone, for as long as its absence is news."""

    meta: Meta
    number: int
    phase: str = "Pending"
    ready: bool = False
    finished_at: datetime | None = None
    failure: Failure | None = None  # why it ended
    trouble: Failure | None = None  # why it does not start
    gone_at: datetime | None = None

    @property
    def finished(self) -> bool:
        return self.phase in ("Failed", "Succeeded")

    @property
    def alive(self) -> bool:
        return self.phase == "Running" and self.ready and not self.meta.deleted_at and not self.gone_at


@dataclass(frozen=True, slots=True)
class SeenService:
    """The stable Service; `active` is the generation it selects, `previous` the one it selected before."""

    meta: Meta
    active: int | None
    previous: Previous | None = None


def read_binding(manifest: Mapping[str, Any]) -> SeenBinding:
    model = TopicBinding.read(manifest)
    return SeenBinding(_meta(manifest), model.spec, model.status, choice_hash(model.spec.choice))


def read_generation(manifest: Mapping[str, Any]) -> SeenGeneration:
    model = Generation.read(manifest)
    return SeenGeneration(_meta(manifest), model.spec, model.status)


def read_service(manifest: Mapping[str, Any]) -> SeenService:
    selector = manifest.get("spec", {}).get("selector") or {}
    meta = _meta(manifest)
    return SeenService(
        meta,
        _number(selector.get(names.LABEL_GENERATION)),
        _previous(meta.annotations.get(ANNOTATION_PREVIOUS)),
    )


def _previous(text: str | None) -> Previous | None:
    try:
        return Previous.read(json.loads(text)) if text else None
    except ValueError:
        return None  # edited by hand: there is nothing to go back to


def read_pod(manifest: Mapping[str, Any]) -> SeenPod:
    meta = _meta(manifest)
    status = manifest.get("status") or {}
    container: Mapping[str, Any] = next(iter(status.get("containerStatuses") or ()), {})
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    phase = status.get("phase") or "Pending"
    ended = (container.get("state") or {}).get("terminated") or {}
    finished = phase in ("Failed", "Succeeded")
    return SeenPod(
        meta=meta,
        number=_number(meta.labels.get(names.LABEL_GENERATION)) or 0,
        phase=phase,
        ready=conditions.get("Ready", {}).get("status") == "True",
        finished_at=_time(ended.get("finishedAt")) or meta.created if finished else None,
        failure=_failure(status, ended) if finished else None,
        trouble=None if finished else _trouble(container, conditions),
    )


def component(manifest: Mapping[str, Any]) -> str | None:
    return ((manifest.get("metadata") or {}).get("labels") or {}).get(names.LABEL_COMPONENT)


def _failure(status: Mapping[str, Any], ended: Mapping[str, Any]) -> Failure:
    """Why a pod ended: the driver's own words where it left some, else what the kubelet knows."""
    text = str(ended.get("message") or "").strip()
    try:
        said = json.loads(text)
        return Failure(_word(said["reason"]), str(said.get("message") or said["reason"])[:1024])
    except (ValueError, KeyError, TypeError):
        pass
    code = ended.get("exitCode")
    reason = status.get("reason") or ended.get("reason") or "DriverFailed"
    if reason in ("Error", "Completed"):
        reason = "DriverFailed"
    told = text[-512:] or status.get("message") or f"the driver ended with exit code {code}"
    return Failure(_word(reason), str(told))


def _trouble(container: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> Failure | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        return Failure(_word(waiting["reason"]), str(waiting.get("message") or waiting["reason"])[:1024])
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Failure("Unschedulable", str(scheduled.get("message") or "no node has room for the driver"))
    return None


def _word(text: object) -> str:
    """A condition reason must be one word; whatever a driver wrote is made into one."""
    kept = "".join(letter for letter in str(text) if letter.isascii() and letter.isalnum())
    return kept[:64] if kept[:1].isalpha() else "DriverFailed"


def _meta(manifest: Mapping[str, Any]) -> Meta:
    said = manifest["metadata"]
    return Meta(
        namespace=said["namespace"],
        name=said["name"],
        uid=said["uid"],
        resource_version=said["resourceVersion"],
        created=_time(said.get("creationTimestamp")) or datetime.fromtimestamp(0, UTC),
        deleted_at=_time(said.get("deletionTimestamp")),
        generation=int(said.get("generation") or 0),
        owner=next(
            (each["uid"] for each in said.get("ownerReferences") or () if each.get("controller")), None
        ),
        labels=said.get("labels") or {},
        annotations=_ours(said.get("annotations") or {}),
    )


def _ours(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key.startswith(f"{names.GROUP}/")}


def _number(text: object) -> int | None:
    try:
        return int(str(text))
    except ValueError:
        return None


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
