"""TopicBinding: what people write, and what they are told in its status."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from topicbinding.api.base import Model, Resource
from topicbinding.api.conditions import Condition, Conditions
from topicbinding.api.jointype import JoinType
from topicbinding.api.kafka import KafkaSpec
from topicbinding.api.schema import rules, validations
from topicbinding.api.tables import Tables

_NOT_DOTS = validations(("self != '.' && self != '..'", "a topic cannot be named '.' or '..'"))
TOPIC_PATTERN = r"^[a-zA-Z0-9._-]+$"
TOPIC_MAX_LENGTH = 249
TopicName = Annotated[
    str,
    Field(min_length=1, max_length=TOPIC_MAX_LENGTH, pattern=TOPIC_PATTERN, json_schema_extra=_NOT_DOTS),
]
# Kubernetes' own spelling of an amount of memory, whole numbers only.
MemoryQuantity = Annotated[str, Field(pattern=r"^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?$", max_length=20)]
STARTING_OFFSETS_PATTERN = (
    r"^(latest|earliest|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2}))$"
)


class Mode(StrEnum):
    """How a generation goes on once it has caught up."""

    AUTO = "auto"
    REALTIME = "realtime"
    MICROBATCH = "microbatch"


class State(StrEnum):
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class Executors(Model):
    """Executor pods; none means that the driver does the work."""

    instances: int = Field(0, ge=0, le=50, description="How many executor pods; 0 runs in the driver.")
    cores: int = Field(1, ge=1, le=64, description="Cores of each executor.")
    memory: MemoryQuantity = Field("1Gi", description="Memory of each executor.")


class CheckpointType(StrEnum):
    EMPTY_DIR = "emptyDir"
    PVC = "pvc"
    URI = "uri"


class Checkpoint(Model):
    """Where state and checkpoint live. With executors it must be storage that all of them see."""

    model_config = rules(
        ("self.type != 'uri' || has(self.uri)", "checkpoint type 'uri' needs 'uri'"),
    )

    type: CheckpointType = Field(
        CheckpointType.EMPTY_DIR, description="emptyDir, a PVC made per generation, or a URI."
    )
    storage_class_name: str | None = Field(None, max_length=253, description="Class of the PVC.")
    size: MemoryQuantity = Field("1Gi", description="Size of the PVC.")
    access_mode: str = Field(
        "ReadWriteOnce",
        pattern="^(ReadWriteOnce|ReadWriteMany)$",
        description="ReadWriteOnce serves one node; several nodes need ReadWriteMany.",
    )
    uri: str | None = Field(
        None, max_length=1024, pattern=r"^[a-z][a-z0-9+.-]*://", description="An object store's address."
    )


class SparkSpec(Model):
    """The generation's Spark job."""

    image: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="Image of the driver and its executors. Left out, the operator's own.",
    )
    mode: Mode = Field(Mode.AUTO, description="auto goes on in real time where slots and sinks allow it.")
    cores: int = Field(2, ge=1, le=64, description="Cores of the driver.")
    memory: MemoryQuantity = Field("1536Mi", description="Memory limit of the driver pod.")
    executors: Executors = Field(default=Executors(), description="Executor pods.")
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="Where state lives.")
    max_rows: int = Field(
        5_000_000,
        ge=1_000,
        le=1_000_000_000,
        description="Most rows one table may hold; beyond it the generation fails with TableTooLarge.",
    )
    conf: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=64, description="Further Spark settings."
    )


class Choice(Model):
    """What makes a generation: a change to any of these builds a new one."""

    users_topic: TopicName = Field(description="Topic of the users rows.")
    accounts_topic: TopicName = Field(description="Topic of the accounts rows.")
    join_type: JoinType = Field(
        JoinType.LEFT, description="left and natural keep every users row; inner: all pairs."
    )
    starting_offsets: str = Field(
        "latest",
        max_length=40,
        pattern=STARTING_OFFSETS_PATTERN,
        description="Where a new generation begins to read: latest, earliest or an RFC 3339 time.",
    )
    tables: Tables = Field(default=Tables(), description="Columns of both topics and their key.")
    kafka: KafkaSpec = Field(description="How to reach Kafka.")
    spark: SparkSpec = Field(default=SparkSpec(), description="The generation's Spark job.")


class Control(Model):
    """The control topic: one message moves the binding."""

    topic: TopicName = Field(description="Topic the bridge reads.")
    dead_letter_topic: TopicName | None = Field(None, description="Where rejected messages go.")
    receipts_topic: TopicName | None = Field(None, description="Where verdicts are written for programs.")
    kafka: KafkaSpec | None = Field(None, description="Another Kafka for control; left out, the data's own.")


class Linger(Model):
    """How long a previous generation stays after the flip."""

    seconds: int = Field(8, ge=0, le=604_800, description="0 means at once.")
    max_generations: int = Field(
        2, ge=0, le=10, description="At most so many linger; a flip that would break the promise waits."
    )


class TopicBindingSpec(Choice):
    """What should be joined, and how."""

    control: Control | None = Field(None, description="The control topic; absent: no bridge.")
    linger: Linger = Field(default=Linger(), description="How long a previous generation stays.")
    progress_deadline_seconds: int = Field(
        300, ge=5, le=86_400, description="A new generation that has not caught up by then has failed."
    )
    failed_retention_seconds: int = Field(
        600, ge=0, le=604_800, description="How long a failed generation is kept for inspection."
    )
    state: State = Field(State.RUNNING, description="Suspended stops every driver and keeps the object.")
    standby: int = Field(0, ge=0, le=3, description="Warm drivers kept ready for the next generation.")

    @property
    def choice(self) -> Choice:
        return Choice.model_validate({name: getattr(self, name) for name in Choice.model_fields})


class VerdictCounts(Model):
    """How many messages got which verdict since the bridge's position was first stored."""

    applied: int = Field(0, description="Changed the binding.")
    merged: int = Field(0, description="Folded with later ones of the same poll.")
    unchanged: int = Field(0, description="Asked for what is there.")
    rejected: int = Field(0, description="Could not be taken.")


class ControlStatus(Model):
    """The bridge's view of the control topic. Written by the bridge alone."""

    topic: str | None = Field(None, description="Topic being read.")
    position: dict[str, int] = Field(default_factory=dict, description="Next offset by partition.")
    last_message: str | None = Field(None, max_length=1024, description="The last message, shortened.")
    last_message_at: datetime | None = Field(None, description="Its timestamp.")
    last_verdict: str | None = Field(None, description="applied, merged, unchanged or rejected.")
    last_reason: str | None = Field(None, max_length=1024, description="Why.")
    last_heartbeat: datetime | None = Field(None, description="When a message last confirmed what is there.")
    counts: VerdictCounts = Field(default=VerdictCounts(), description="Verdicts so far.")


class Previous(Model):
    """The generation that served before the active one: what a rollback goes back to."""

    generation: int = Field(description="Its number.")
    choice: Choice = Field(description="What it joined.")


class TopicBindingStatus(Model):
    """What is being served."""

    users_topic: str | None = Field(None, description="Users topic of the active generation.")
    accounts_topic: str | None = Field(None, description="Accounts topic of the active generation.")
    join_type: str | None = Field(None, description="Join of the active generation.")
    last_applied: datetime | None = Field(None, description="When a flip or a heartbeat last happened.")
    active_generation: int | None = Field(None, description="The generation the stable Service points at.")
    latest_generation: int | None = Field(None, description="The greatest number ever given.")
    observed_generation: int | None = Field(None, description="metadata.generation this status speaks of.")
    previous: Previous | None = Field(None, description="What a rollback goes back to.")
    control: ControlStatus | None = Field(None, description="The control topic.")
    conditions: Conditions = Field(default=(), description="Ready, Progressing, Stalled, ControlConnected.")

    def condition(self, type_: str) -> Condition | None:
        return next((each for each in self.conditions if each.type == type_), None)


class TopicBinding(Resource):
    """A live join of two Kafka topics under stable names."""

    spec: TopicBindingSpec
    status: TopicBindingStatus = Field(default=TopicBindingStatus())
