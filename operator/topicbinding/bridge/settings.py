"""Every tunable of the bridge, with its unit, its reason, and what breaks when it is wrong."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topicbinding.api import names


@dataclass(frozen=True)
class BridgeSettings:
    """Made from the environment by `from_environment`; tests make it by hand."""

    namespace: str
    binding: str
    pod_name: str = "topicbinding-bridge"
    # Tells this process's own writing from another bridge's.
    writer: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    # Whose token may read control_raw. Empty: nobody's.
    gateway_subject: str = ""
    listen_host: str = "0.0.0.0"  # noqa: S104 - a pod's own address; a NetworkPolicy says who reaches it
    listen_port: int = names.BRIDGE_PORT
    kafka_secret_dir: Path = Path(names.KAFKA_SECRET_DIR)
    control_secret_dir: Path = Path(names.CONTROL_KAFKA_SECRET_DIR)

    # Seconds one poll waits for a first message. Longer delays only housekeeping, never a message.
    poll_seconds: float = 0.25
    # Seconds between two patches of the binding. Shorter: more load on the API server under a flood of
    # messages. Longer: a second message waits so long for its turn.
    patch_spacing_seconds: float = 0.05
    # Seconds that telling people (status, Events) may wait for a stream of messages without a pause.
    tell_seconds: float = 0.5
    # Seconds between two looks at the topic (is it the same, is the broker there). Longer: a topic that was
    # made again is noticed later.
    look_seconds: float = 2.0
    # Seconds Kafka may take to answer a question. Shorter than a slow broker: it is called unreachable.
    kafka_timeout_seconds: float = 5.0
    # Seconds to wait after a failure, doubled up to the second figure.
    backoff_seconds: float = 0.5
    backoff_max_seconds: float = 5.0
    # Messages kept one by one until they are settled, and bytes kept for dead letters. A longer backlog is
    # still folded whole; its oldest messages then get no receipt of their own.
    held_messages: int = 20_000
    held_bytes: int = 32 * 1024 * 1024
    # Seconds without a sign of life from the loop until the pod is restarted. Must exceed the longest wait
    # for Kafka and the API server together.
    alive_seconds: float = 120.0


def from_environment(environment: Mapping[str, str] = os.environ) -> BridgeSettings:
    missing = [name for name in ("TB_NAMESPACE", "TB_BINDING") if not environment.get(name)]
    if missing:
        raise ValueError(f"the bridge needs {' and '.join(missing)} in its environment")
    return BridgeSettings(
        namespace=environment["TB_NAMESPACE"],
        binding=environment["TB_BINDING"],
        pod_name=environment.get("POD_NAME", "topicbinding-bridge"),
        gateway_subject=environment.get("TB_GATEWAY_SUBJECT", ""),
        listen_host=environment.get("TB_LISTEN_HOST", "0.0.0.0"),  # noqa: S104
        listen_port=int(environment.get("TB_LISTEN_PORT", str(names.BRIDGE_PORT))),
        kafka_secret_dir=Path(environment.get("TB_KAFKA_SECRET_DIR", names.KAFKA_SECRET_DIR)),
        control_secret_dir=Path(
            environment.get("TB_CONTROL_KAFKA_SECRET_DIR", names.CONTROL_KAFKA_SECRET_DIR)
        ),
    )
