"""Every name that more than one part relies on: labels, annotations, object names, ports, field managers.

Called by all parts. Nothing here talks to anything.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "topicbinding.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
BINDINGS: Final = "topicbindings"
GENERATIONS: Final = "generations"
BINDING_KIND: Final = "TopicBinding"
GENERATION_KIND: Final = "Generation"

# Labels: how children are found without listing the world.
LABEL_BINDING: Final = f"{GROUP}/binding"
LABEL_GENERATION: Final = f"{GROUP}/generation"
LABEL_COMPONENT: Final = f"{GROUP}/component"
LABEL_CHOICE: Final = f"{GROUP}/choice"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "topicbinding"

# Annotations people or programs put on a binding.
ANNOTATION_PAUSED: Final = f"{GROUP}/paused"
ANNOTATION_ROLLBACK: Final = f"{GROUP}/rollback"
ANNOTATION_POSITION: Final = f"{GROUP}/control-position"
# Annotation the controller puts on a generation it no longer believes in; the value is the reason.
ANNOTATION_GIVEN_UP: Final = f"{GROUP}/given-up"

CONTROLLER_MANAGER: Final = "topicbinding-controller"
BRIDGE_MANAGER: Final = "topicbinding-bridge"
DRIVER_MANAGER: Final = "topicbinding-driver"

DRIVER_PORT: Final = 8600
BRIDGE_PORT: Final = 8601
GATEWAY_PORT: Final = 8080
SPARK_DRIVER_PORT: Final = 7078
SPARK_BLOCK_MANAGER_PORT: Final = 7079

# A driver and a bridge answer only to a token made for this audience.
DRIVER_AUDIENCE: Final = "topicbinding-driver"

KAFKA_SECRET_DIR: Final = "/etc/topicbinding/kafka"  # noqa: S105 - a mount path, not a secret
CONTROL_KAFKA_SECRET_DIR: Final = "/etc/topicbinding/control-kafka"  # noqa: S105
CHECKPOINT_DIR: Final = "/var/lib/topicbinding"

USERS_TABLE: Final = "users_ui"
ACCOUNTS_TABLE: Final = "accounts_ui"
FINAL_TABLE: Final = "final_ui"
STATUS_TABLE: Final = "orchestrator_status"
LOGS_TABLE: Final = "orchestrator_logs"
CONTROL_TABLE: Final = "control_raw"
DATA_TABLES: Final = (USERS_TABLE, ACCOUNTS_TABLE, FINAL_TABLE)

# `<binding>-g<N>-checkpoint` and label values must stay within 63 characters.
MAX_BINDING_NAME: Final = 40


def stable_service(binding: str) -> str:
    return f"tb-{binding}"


def generation_name(binding: str, number: int) -> str:
    """Name of the Generation, of its driver pod and of its headless Service."""
    return f"{binding}-g{number}"


def checkpoint_claim(generation: str) -> str:
    return f"{generation}-checkpoint"


def driver_account(binding: str) -> str:
    return f"tb-{binding}-driver"


def bridge_name(binding: str) -> str:
    """Name of the bridge's Deployment, Service, ServiceAccount and Role."""
    return f"tb-{binding}-bridge"
