"""The sample topics. Made by the development Kafka's job and again by the producer: either may come first."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported all the same

# One partition each: rows then come in the order they were produced in, as a newcomer expects.
SAMPLE_TOPICS = ("users-v1", "accounts-v1", "users-v2", "accounts-v2", "bindings-control")


def create(
    admin: AdminClient, replication: int, names: Iterable[str] = SAMPLE_TOPICS, *, seconds: float = 60
) -> list[str]:
    """Create what is missing and say what was created; a topic that exists is left as it is."""
    wanted = [NewTopic(name, num_partitions=1, replication_factor=replication) for name in names]
    created = []
    for name, future in admin.create_topics(
        wanted, operation_timeout=seconds, request_timeout=seconds
    ).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return created
