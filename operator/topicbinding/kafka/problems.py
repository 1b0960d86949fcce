"""What the client library's errors mean to people: one reason and one sentence for each.

Used by everything that talks to Kafka from Python, so that the bridge's condition and a generation's status
say the same words for the same trouble.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from topicbinding.kafka.records import KafkaProblem

LOGIN_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
NOT_ALLOWED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
NO_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)

UNREACHABLE: Final = "KafkaUnreachable"
TOPIC_NOT_FOUND: Final = "TopicNotFound"


class Troubles:
    """Turns errors into problems, remembering what the client said beside its answers: a login that is
    refused is told only there, and the answer itself is a time-out."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._heard: KafkaError | None = None

    def heard_of(self, error: KafkaError) -> None:
        """For the client's `error_cb`."""
        # A login failure explains the lost connections that follow it: keep the better reason.
        if self._heard is None or self._heard.code() not in LOGIN_REFUSED | {KafkaError._SSL}:
            self._heard = error

    def over(self) -> None:
        """An answer came: whatever was heard before explains nothing any more."""
        self._heard = None

    def problem(self, error: KafkaError, topic: str, advice: str = "") -> KafkaProblem:
        """The problem behind an error about a topic; `advice` is added if there is no such topic."""
        code = error.code()
        if code in NO_TOPIC:
            said = advice or ": create it, or correct its name"
            return KafkaProblem(TOPIC_NOT_FOUND, f"Kafka has no topic {topic!r}{said}")
        if code in NOT_ALLOWED:
            return not_allowed(topic)
        if self._heard is not None and code not in LOGIN_REFUSED:
            error, code = self._heard, self._heard.code()
        if code in LOGIN_REFUSED:
            return KafkaProblem(
                "KafkaAuthenticationFailed",
                "Kafka refused the login: check the Secret and kafka.security.mechanism",
            )
        if code == KafkaError._SSL:
            return KafkaProblem(
                "KafkaTlsFailed",
                "the TLS handshake with Kafka failed: check 'ca.crt' in the Secret, the broker's "
                "certificate and its host name",
            )
        return self.unreachable(error.name())

    def unreachable(self, why: str) -> KafkaProblem:
        return KafkaProblem(
            UNREACHABLE,
            f"no broker answers at {self._servers} ({why}): "
            "check bootstrapServers, the network and the broker",
        )


def not_allowed(topic: str) -> KafkaProblem:
    return KafkaProblem(
        "KafkaNotAuthorized",
        f"Kafka does not allow this account to read {topic!r}: give it DESCRIBE and READ on the topic",
    )
