"""Puts one control message on a binding's control topic. The only part of this that needs Kafka."""

from __future__ import annotations

from topicbinding.api import TopicBinding
from topicbinding.cli.kubectl import Kubectl, KubectlError
from topicbinding.kafka.port import Connection
from topicbinding.kafka.settings import Credentials, credentials_from, librdkafka, reveal

SEND_SECONDS = 15.0


def deliver(kubectl: Kubectl, binding: TopicBinding, body: bytes, servers: str | None) -> tuple[int, int]:
    """Partition and offset. Credentials come from the binding's Secret, if the person may read it."""
    control = binding.spec.control
    if control is None:
        raise KubectlError("this binding has no control topic (spec.control)")
    kafka = control.kafka or binding.spec.kafka
    reference = kafka.security.secret_ref
    credentials = credentials_from(kubectl.secret(reference.name)) if reference else Credentials()
    if servers is not None:
        kafka = kafka.model_copy(update={"bootstrap_servers": servers})
    connection = Connection(reveal(librdkafka(kafka, credentials)), "kubectl-topicbinding")
    connection.describe(control.topic, SEND_SECONDS)  # a missing topic or a failed login has a clear answer
    return connection.sender().send_one(control.topic, body, SEND_SECONDS)
