"""The installed operator, the development Kafka as seen from this machine, and a namespace of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.bridge_process import namespace_for
from tests.support.cluster import Cluster
from tests.support.waiting import eventually
from topicbinding.api import TopicBinding

FROM_HERE = "127.0.0.1:9092"
IN_CLUSTER = "kafka.kafka.svc:9092"
IN_CLUSTER_SASL = "kafka.kafka.svc:9094"
NAMESPACE = "e2e-bridge"


@dataclass(frozen=True)
class Kafka:
    """A stock client on this machine."""

    admin: AdminClient
    producer: Producer

    def make_topics(self, *topics: str) -> None:
        """Fresh and empty."""
        there = self.admin.list_topics(timeout=20).topics
        old = [name for name in topics if name in there]
        if old:
            for future in self.admin.delete_topics(old).values():
                future.result(30)
            eventually(
                lambda: not set(old) & set(self.admin.list_topics(timeout=20).topics), 30, "old topics to go"
            )
        for future in self.admin.create_topics(
            [NewTopic(name, num_partitions=1) for name in topics]
        ).values():
            future.result(30)

    def send(self, topic: str, message: Any) -> int:
        """Its offset."""
        value = message if isinstance(message, bytes | None) else json.dumps(message).encode()
        sent: list[int] = []

        def keep(error: object, kept: Message) -> None:
            assert error is None, error
            sent.append(kept.offset() or 0)

        self.producer.produce(topic, value, on_delivery=keep)
        assert self.producer.flush(30) == 0
        return sent[0]

    def read(self, topic: str) -> list[Any]:
        """Everything in a topic of one partition, as JSON."""
        consumer = Consumer({"bootstrap.servers": FROM_HERE, "group.id": "e2e-bridge"})
        try:
            where = TopicPartition(topic, 0)
            _low, high = consumer.get_watermark_offsets(where, timeout=20)
            consumer.assign([TopicPartition(topic, 0, 0)])
            found: list[Any] = []
            while len(found) < high:
                found += [json.loads(each.value() or b"") for each in consumer.consume(100, timeout=1)]
            return found
        finally:
            consumer.close()


@dataclass(frozen=True)
class Bound:
    """One binding on the cluster."""

    cluster: Cluster
    name: str

    def seen(self) -> TopicBinding:
        return TopicBinding.read(
            self.cluster.kubectl_json("get", "tb", self.name, "-n", NAMESPACE, "-o", "json")
        )

    def until_connected(self, seconds: float = 180) -> None:
        def connected() -> bool:
            found = self.seen().status.condition("ControlConnected")
            return found is not None and found.status == "True"

        eventually(connected, seconds, f"{self.name}: ControlConnected", 1)

    def until_verdict(self, offset: int, seconds: float = 60) -> tuple[str | None, str | None]:
        """The verdict in the status, once the position has passed the message."""

        def told() -> bool:
            control = self.seen().status.control
            return control is not None and control.position.get("0", 0) == offset + 1

        eventually(told, seconds, f"{self.name}: offset {offset} to be judged", 0.3)
        control = self.seen().status.control
        assert control is not None
        return control.last_verdict, control.last_reason

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.kubectl_json(
            "get",
            "events",
            "-n",
            NAMESPACE,
            "--field-selector",
            f"involvedObject.name={self.name}",
            "-o",
            "json",
        )["items"]
        return found


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    return Kafka(AdminClient({"bootstrap.servers": FROM_HERE}), Producer({"bootstrap.servers": FROM_HERE}))


@pytest.fixture(scope="session", autouse=True)
def namespace(cluster: Cluster) -> Iterator[str]:
    with namespace_for(cluster, NAMESPACE) as name:
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        yield name


@pytest.fixture(autouse=True)
def explain(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """On failure: what one needs to understand it."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed == before:
        return
    for command in (
        ("get", "tb,generations,deploy,pods", "-n", NAMESPACE, "-o", "wide"),
        ("get", "events", "-n", NAMESPACE, "--sort-by=.lastTimestamp"),
        ("describe", "pods", "-n", NAMESPACE),
        ("logs", "-n", NAMESPACE, "-l", "topicbinding.dev/component=bridge", "--tail=80", "--prefix"),
        ("logs", "-n", NAMESPACE, "-l", "topicbinding.dev/component=driver", "--tail=80", "--prefix"),
    ):
        print(f"--- kubectl {' '.join(command)}\n{cluster.kubectl(*command, check=False).stdout}")


def bind(cluster: Cluster, name: str, **spec: Any) -> Bound:
    body = {
        "apiVersion": "topicbinding.dev/v1alpha1",
        "kind": "TopicBinding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "usersTopic": "users-v1",
            "accountsTopic": "accounts-v1",
            "joinType": "left",
            "startingOffsets": "earliest",
            "kafka": {"bootstrapServers": IN_CLUSTER},
            **spec,
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    return Bound(cluster, name)
