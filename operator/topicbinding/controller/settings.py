"""Every tunable of the controller, named once: unit, reason, and what breaks when it is wrong.

Read from the environment by `main.py`; the Helm chart sets it. Seconds are written in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from topicbinding.controller.policy import Policy

Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Settings(BaseModel):
    """`TB_` + the name in capitals sets each of them. Lists are separated by commas."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system_namespace: str = "topicbinding-system"
    """Where the gateway runs. Wrong: drivers refuse the gateway's token and its network traffic."""
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces to serve; none means all, which needs cluster-wide permissions."""
    controller_class: str = Field("", max_length=63)
    """Serves the bindings whose annotation topicbinding.dev/controller says so; by default those without
    it. Two
    controllers of one class do no harm, but each would give a bridge another image."""
    control_image: str = Field("topicbinding-control:dev", min_length=1)
    """Image of bridges: the controller's own, so that they are always of one version."""
    spark_image: str = Field("topicbinding-spark:dev", min_length=1)
    """Image of drivers for bindings that leave spec.spark.image open."""
    image_pull_policy: str = Field("IfNotPresent", pattern="^(Always|IfNotPresent|Never)$")
    """Of drivers and bridges. Always costs a registry round trip at every start."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of pull secrets that exist in the bindings' namespaces."""
    driver_cpu_request_percent: int = Field(10, ge=0, le=100)
    """What a driver asks the scheduler for, of its cores. A swap runs two drivers side by side for a while:
    at 100
    it needs twice the room; too low and drivers crowd one node."""
    driver_scheduler: str = ""
    """schedulerName of driver pods; empty is the cluster's own. Benchmarks name one that does not exist."""
    driver_grace_seconds: int = Field(20, ge=0, le=600)
    """Termination grace of drivers: shorter may leave executors to the garbage collector."""
    metrics_namespace: str = ""
    """Namespace allowed by network policy to scrape drivers and bridges; empty allows none."""

    workers: int = Field(8, ge=1, le=64)
    """Bindings reconciled at the same time, each with a connection to the API server."""
    request_timeout_seconds: float = Field(10, gt=0, le=120)
    """Of one request. Longer keeps a worker busy with an API server that is away."""
    resync_seconds: float = Field(300, ge=5, le=86_400)
    """How often everything is listed afresh. Watches can miss a deletion while they reconnect; this finds
    it."""
    drift_seconds: float = Field(3600, ge=5, le=86_400)
    """How often children that nobody watches are applied again, should somebody have changed them."""
    error_base_seconds: float = Field(0.5, gt=0, le=60)
    """First wait after a failed pass; doubles up to the cap."""
    error_cap_seconds: float = Field(30, gt=0, le=600)
    port: int = Field(8081, ge=0, le=65_535)
    """/healthz and /metrics; 0 takes a free one."""
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    lost_grace_seconds: Seconds = 2
    """How long a vanished driver pod is distrusted before it is made again. 0 races with a pod that is only
    late."""
    stuck_grace_seconds: Seconds = 60
    """How long beyond its grace a terminating pod may take (its node may be gone) before it is removed by
    force."""
    retry_base_seconds: Seconds = 1
    retry_cap_seconds: Seconds = 60
    """Waits between a driver's failure and the next try: base, doubled each time, up to the cap."""
    healthy_after_seconds: Seconds = 600
    """A driver that lived so long before it failed is tried again as if for the first time."""
    failures_limit: int = Field(5, ge=1, le=100)
    """Failures of a new generation's driver before it is given up. 1 gives up on a hiccup."""
    settle_seconds: Seconds = 1
    """Least time between two builds for one binding: a burst of wishes ends in one build. Longer delays the
    second
    of two deliberate changes."""
    superseded_retention_seconds: Seconds = 60
    """How long the record of a superseded generation can be looked at."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Unknown TB_ variables belong to other programs and are left alone."""
        said: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            text = environment.get(f"TB_{name.upper()}")
            if text is None:
                continue
            many = field.annotation == tuple[str, ...]
            said[name] = tuple(part.strip() for part in text.split(",") if part.strip()) if many else text
        return cls(**said)

    @property
    def gateway_subject(self) -> str:
        return f"system:serviceaccount:{self.system_namespace}:topicbinding-gateway"

    @property
    def policy(self) -> Policy:
        return Policy(
            default_image=self.spark_image,
            lost_grace=timedelta(seconds=self.lost_grace_seconds),
            stuck_grace=timedelta(seconds=self.stuck_grace_seconds),
            retry_base=timedelta(seconds=self.retry_base_seconds),
            retry_cap=timedelta(seconds=self.retry_cap_seconds),
            healthy_after=timedelta(seconds=self.healthy_after_seconds),
            failures_limit=self.failures_limit,
            settle=timedelta(seconds=self.settle_seconds),
            superseded_retention=timedelta(seconds=self.superseded_retention_seconds),
        )
