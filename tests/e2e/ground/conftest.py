"""A namespace of its own for each module, the restricted profile enforced; and the development Kafka."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported all the same

from tests.support.cluster import Cluster

Config = dict[str, Any]


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """Made up, so that runs do not meet."""
    name = f"ground-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "topicbinding.dev/test": "true"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@dataclass(frozen=True, repr=False)  # a failure report must not show the password
class Broker:
    """The development Kafka as clients must be configured for it, outside the cluster and in it."""

    outside: Config
    outside_scram: Config
    inside: Config
    inside_scram: Config
    authority: str
    """The certificate authority's certificate; in pods it is to be at /kafka/ca.crt."""


@pytest.fixture(scope="session")
def broker(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    authority = _secret(cluster, "kafka-ca")["ca.crt"]
    user = _secret(cluster, "kafka-scram")
    ca: Path = tmp_path_factory.mktemp("kafka") / "ca.crt"
    ca.write_text(authority)
    scram = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user["username"],
        "sasl.password": user["password"],
    }
    return Broker(
        outside={"bootstrap.servers": "127.0.0.1:9092"},
        outside_scram={"bootstrap.servers": "localhost:9093", "ssl.ca.location": str(ca), **scram},
        inside={"bootstrap.servers": "kafka.kafka.svc:9092"},
        inside_scram={
            "bootstrap.servers": "kafka.kafka.svc:9094",
            "ssl.ca.location": "/kafka/ca.crt",
            **scram,
        },
        authority=authority,
    )


@pytest.fixture
def topic(broker: Broker) -> Iterator[Callable[[int], str]]:
    """Makes topics with so many partitions; they are gone after the test."""
    admin = AdminClient(broker.outside)
    made: list[str] = []

    def make(partitions: int = 1) -> str:
        name = f"ground-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        made.append(name)
        return name

    yield make
    for future in admin.delete_topics(made).values() if made else []:
        future.result(30)


def _secret(cluster: Cluster, name: str) -> dict[str, str]:
    data = cluster.kubectl_json("get", "secret", name, "-n", "kafka", "-o", "json")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}
