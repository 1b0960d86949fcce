"""The development Kafka: produce and consume from the host and from a pod, open and with SCRAM over TLS."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.e2e.ground.conftest import Broker, Config
from tests.support import pods
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

Topic = Callable[[int], str]
ROWS = [f"row {number}" for number in range(100)]
PRODUCE_AND_CONSUME = """
import json, sys, time
from confluent_kafka import Consumer, Producer
config, topic, count = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
producer = Producer(config)
for number in range(count):
    producer.produce(topic, f"row {number}".encode())
assert producer.flush(30) == 0
consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
seen, deadline = [], time.monotonic() + 30
while len(seen) < count and time.monotonic() < deadline:
    message = consumer.poll(0.5)
    if message is not None:
        assert message.error() is None, message.error()
        seen.append(message.value().decode())
consumer.close()
print(json.dumps(seen))
"""


def consume(config: Config, topic: str, count: int) -> list[str]:
    consumer = Consumer({**config, "group.id": f"{topic}-host", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[str] = []

    def poll() -> bool:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            seen.append((message.value() or b"").decode())
        return len(seen) >= count

    try:
        eventually(poll, 30, f"{count} rows of {topic}", every=0)
    finally:
        consumer.close()
    return seen


@pytest.mark.parametrize("way", ["outside", "outside_scram"])
def test_the_host_produces_and_consumes(broker: Broker, topic: Topic, way: str) -> None:
    config: Config = getattr(broker, way)
    name = topic(1)
    producer = Producer(config)
    for row in ROWS:
        producer.produce(name, row.encode())
    assert producer.flush(30) == 0

    assert consume(config, name, len(ROWS)) == ROWS


@pytest.mark.parametrize("way", ["inside", "inside_scram"])
def test_a_pod_produces_and_consumes(
    cluster: Cluster, namespace: str, broker: Broker, topic: Topic, way: str
) -> None:
    pods.create(cluster, namespace, "ConfigMap", "kafka-ca", data={"ca.crt": broker.authority})
    name = topic(1)
    program = [PRODUCE_AND_CONSUME, json.dumps(getattr(broker, way)), name, str(len(ROWS))]
    spec = pods.pod_spec(
        cluster.images()["control"],
        ["python", "-c", *program],
        container={"volumeMounts": [{"name": "ca", "mountPath": "/kafka"}]},
        volumes=[{"name": "ca", "configMap": {"name": "kafka-ca"}}],
    )

    assert json.loads(pods.run_to_end(cluster, namespace, spec)) == ROWS
    # And the host sees the same rows, through its own listener.
    assert consume(broker.outside, name, len(ROWS)) == ROWS


def test_a_wrong_password_is_refused(broker: Broker) -> None:
    errors: list[str] = []
    wrong: Config = {"sasl.password": "wrong", "error_cb": lambda error: errors.append(error.str())}
    admin = AdminClient(broker.outside_scram | wrong)

    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)

    admin.poll(1)
    assert any("SASL authentication error" in error for error in errors)


def test_a_certificate_of_another_authority_is_refused(broker: Broker) -> None:
    system = "/etc/ssl/certs/ca-certificates.crt"

    with pytest.raises(KafkaException):
        AdminClient({**broker.outside_scram, "ssl.ca.location": system}).list_topics(timeout=3)


def test_topics_are_not_made_by_asking_for_them(broker: Broker) -> None:
    admin = AdminClient(broker.outside)

    admin.list_topics("never-made", timeout=10)

    assert "never-made" not in admin.list_topics(timeout=10).topics


def test_the_sample_topics_are_there(broker: Broker) -> None:
    topics = AdminClient(broker.outside).list_topics(timeout=10).topics

    wanted = ("users-v1", "accounts-v1", "users-v2", "accounts-v2", "bindings-control")
    assert {name: len(topics[name].partitions) for name in wanted} == dict.fromkeys(wanted, 1)
