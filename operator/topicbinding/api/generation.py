"""Generation: one immutable choice with one driver pod. Spec by the controller, status by its own driver."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from topicbinding.api.base import Model, Resource
from topicbinding.api.binding import STARTING_OFFSETS_PATTERN, Choice, SparkSpec, TopicName
from topicbinding.api.jointype import JoinType
from topicbinding.api.kafka import KafkaSpec
from topicbinding.api.schema import rules
from topicbinding.api.tables import Tables


class Source(Model):
    """What the generation reads. Absent on a standby; once set, for ever."""

    users_topic: TopicName = Field(description="Topic of the users rows.")
    accounts_topic: TopicName = Field(description="Topic of the accounts rows.")
    join_type: JoinType = Field(description="The join.")
    starting_offsets: str = Field(
        "latest", max_length=40, pattern=STARTING_OFFSETS_PATTERN, description="Where to begin."
    )
    tables: Tables = Field(default=Tables(), description="Columns of both topics and their key.")
    kafka: KafkaSpec = Field(description="How to reach Kafka.")

    @classmethod
    def of(cls, choice: Choice) -> Source:
        return cls.model_validate({name: getattr(choice, name) for name in cls.model_fields})


class GenerationSpec(Model):
    """One immutable choice."""

    model_config = rules(
        (
            "self.binding == oldSelf.binding && self.bindingUid == oldSelf.bindingUid && "
            "self.number == oldSelf.number && self.spark == oldSelf.spark",
            "a generation cannot be changed: change the TopicBinding and a new one is built",
        ),
        (
            "!has(oldSelf.source) || (has(self.source) && self.source == oldSelf.source)",
            "the source of a generation cannot be changed: change the TopicBinding and a new one is built",
        ),
    )

    binding: str = Field(min_length=1, max_length=40, description="Name of the TopicBinding.")
    binding_uid: str = Field(max_length=64, description="UID of the TopicBinding.")
    number: int = Field(ge=1, description="Its number: 1, 2, 3 … for each binding.")
    source: Source | None = Field(None, description="What it reads; absent on a standby.")
    rehearsal: Source | None = Field(
        None, description="What a standby reads a little of, to be warm when it is given its source."
    )
    spark: SparkSpec = Field(description="Its Spark job.")
    retire_at: datetime | None = Field(
        None, description="When it leaves: the end of its linger, or of its keeping for inspection."
    )


class Phase(StrEnum):
    STANDBY = "Standby"
    STARTING = "Starting"
    READING = "Reading"
    CAUGHT_UP = "CaughtUp"
    FAILED = "Failed"


class Offsets(Model):
    """Offsets by partition, for both topics."""

    users: dict[str, int] = Field(default_factory=dict, description="Users topic.")
    accounts: dict[str, int] = Field(default_factory=dict, description="Accounts topic.")


class Progress(Model):
    """How far the reading of the backlog is."""

    percent: int = Field(0, ge=0, le=100, description="Of the rows up to the captured end offsets.")
    eta_seconds: int | None = Field(None, ge=0, description="Seconds to go at the present speed.")


class SideCounts(Model):
    """A count for each topic."""

    users: int = Field(0, description="Users topic.")
    accounts: int = Field(0, description="Accounts topic.")


class RowCounts(SideCounts):
    """Rows of each table."""

    final: int = Field(0, description="final_ui.")


class BadSample(Model):
    """A row that could not be taken as it was, shortened, for people to see."""

    side: str = Field(description="users or accounts.")
    partition: int = Field(description="Where it stands.")
    offset: int = Field(description="Where it stands.")
    reason: str = Field(max_length=256, description="What is wrong with it.")
    value: str = Field(max_length=256, description="Its beginning.")


class GenerationStatus(Model):
    """What its own driver reports."""

    phase: Phase | None = Field(None, description="Standby, Starting, Reading, CaughtUp or Failed.")
    reason: str | None = Field(None, max_length=128, description="One word for programs and runbooks.")
    message: str | None = Field(None, max_length=4096, description="A sentence for people.")
    start_offsets: Offsets | None = Field(
        None, description="Pinned before reading: a restart reads the same."
    )
    end_offsets: Offsets | None = Field(
        None, description="Captured at the start: caught up means past these."
    )
    lag: int | None = Field(None, description="Rows between what was read and the topics' ends.")
    progress: Progress | None = Field(None, description="Of the backlog.")
    rows: RowCounts | None = Field(None, description="Rows of each table.")
    null_keys: SideCounts | None = Field(None, description="Rows without a key: shown, never joined.")
    bad_rows: SideCounts | None = Field(
        None, description="Rows that were no JSON object or had a wrong type."
    )
    tombstones: SideCounts | None = Field(None, description="Records without a value: ignored.")
    bad_samples: Annotated[tuple[BadSample, ...], Field(max_length=10)] = Field(
        default=(), description="A few bad rows."
    )
    mode: str | None = Field(None, description="microbatch or realtime.")
    driver_version: str | None = Field(None, description="Version of the driver that reports.")
    pod_uid: str | None = Field(None, description="The pod that reports.")
    caught_up_at: datetime | None = Field(None, description="When it first caught up.")
    updated_at: datetime | None = Field(None, description="When this was reported.")


class Generation(Resource):
    """One generation of a binding: one choice, one driver pod."""

    spec: GenerationSpec
    status: GenerationStatus = Field(default=GenerationStatus())
