"""Everything about the gateway that can be tuned, with unit, reason and what breaks when it is wrong.

Read once by `main` from the environment; every variable is TB_GATEWAY_ and the field's name in capitals.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from topicbinding.api import names

PREFIX = "TB_GATEWAY_"


class SettingsError(ValueError):
    """The environment does not make sense; the message names the variable."""


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True)

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104 - reached from outside the pod
    port: int = Field(
        names.GATEWAY_PORT, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    access: Literal["token", "open"] = Field(
        "token",
        description="token: Kubernetes bearer tokens decide who sees what. open: no questions asked, only "
        "for a cluster that is published on loopback alone; the page says so.",
    )
    open_hosts: str = Field(
        "localhost,127.0.0.1,[::1]",
        description="In open mode, the only host names a request may carry: a page elsewhere that resolves "
        "its own name to this machine (DNS rebinding) must not read the tables.",
    )
    allowed_origins: str = Field(
        "",
        description="Origins of other web applications that may read (comma separated, such as "
        "https://app.example). The gateway's own page needs no entry.",
    )
    namespace: str = Field("", description="Watch this namespace only; empty: all of them.")
    driver_url: str = Field(
        "http://{generation}.{namespace}.svc:" + str(names.DRIVER_PORT),
        description="Where the driver of a generation answers.",
    )
    bridge_url: str = Field(
        "http://{bridge}.{namespace}.svc:" + str(names.BRIDGE_PORT),
        description="Where the bridge of a binding answers.",
    )
    token_file: Path = Field(
        Path("/var/run/secrets/topicbinding/token"),
        description="The projected ServiceAccount token for drivers and bridges; re-read when it changes.",
    )
    page_dir: Path = Field(Path(__file__).parent / "page" / "dist", description="The built page.")

    heartbeat_seconds: float = Field(
        2.0, gt=0, description="Between heartbeats to a viewer. Clients call a stream dead after three."
    )
    stale_seconds: float = Field(
        3.5,
        gt=0,
        description="Without a frame from the driver (it sends one a second) the table is stale. Lower than "
        "two of its heartbeats would flicker.",
    )
    idle_seconds: float = Field(
        30.0,
        ge=0,
        description="How long a table without viewers stays connected: a reload should not fetch it again.",
    )
    first_rows_seconds: float = Field(
        10.0, gt=0, description="How long a REST request waits for the first rows before it answers 503."
    )
    gather_ms: float = Field(
        20.0,
        ge=0,
        description="With many viewers, deltas that arrive within up to this time are sent as one frame; at "
        "most this is added to freshness, and without it each viewer costs one send for every few rows.",
    )
    ring_frames: int = Field(
        512, ge=1, description="Deltas kept for slow and returning viewers; behind that, a snapshot is sent."
    )
    ring_bytes: int = Field(8 << 20, ge=1, description="The same bound in bytes.")
    send_seconds: float = Field(
        30.0, gt=0, description="A viewer that takes nothing for so long is disconnected."
    )
    max_streams: int = Field(2000, ge=1, description="Open streams in this replica; more are answered 503.")
    max_streams_per_client: int = Field(250, ge=1, description="Open streams of one user or address.")
    requests_per_second: float = Field(50.0, gt=0, description="Steady rate of one user or address.")
    request_burst: int = Field(
        200, ge=1, description="Requests that may come at once: a page has many files."
    )
    review_seconds: float = Field(
        30.0,
        ge=0,
        description="How long an answer of TokenReview or SubjectAccessReview is believed; revoked rights "
        "work for at most this long.",
    )
    log_rows: int = Field(500, ge=1, description="Lines kept of orchestrator_logs for each binding.")
    bridge_poll_seconds: float = Field(
        1.0, gt=0, description="How often control_raw is fetched while somebody watches it."
    )

    @classmethod
    def from_env(cls, env: dict[str, str]) -> Self:
        values = {
            name: env[PREFIX + name.upper()] for name in cls.model_fields if PREFIX + name.upper() in env
        }
        for name in env:
            if name.startswith(PREFIX) and name[len(PREFIX) :].lower() not in cls.model_fields:
                raise SettingsError(f"{name} is not a setting of the gateway")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            variable = PREFIX + str(first["loc"][0]).upper()
            raise SettingsError(f"{variable}: {first['msg']}") from None

    @property
    def open_host_names(self) -> frozenset[str]:
        return frozenset(_list(self.open_hosts.lower()))

    @property
    def origins(self) -> frozenset[str]:
        return frozenset(_list(self.allowed_origins.lower()))


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
