"""How to reach Kafka: one block for every client, secrets only by reference.

Rendered into each client's dialect by `topicbinding.kafka.settings`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from topicbinding.api.base import Model
from topicbinding.api.schema import rules


class Protocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Mechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


ShortText = Annotated[str, Field(max_length=512)]


class SecretReference(Model):
    """A Secret in the binding's namespace. Its keys are read by name: `username`, `password`, `client-id`,
    `client-secret`, `ca.crt`, `tls.crt`, `tls.key`, whichever the mechanism needs."""

    name: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="Name of the Secret.",
    )


class OAuth(Model):
    """OAUTHBEARER with OIDC client credentials; `client-id` and `client-secret` come from the Secret."""

    token_endpoint_url: str = Field(
        pattern=r"^https?://", max_length=1024, description="The token endpoint to ask."
    )
    scope: str | None = Field(None, max_length=512, description="Scope to ask for.")
    sub_claim_name: str | None = Field(None, max_length=128, description="Claim that names the principal.")
    extensions: dict[str, ShortText] = Field(
        default_factory=dict,
        max_length=16,
        description="SASL extensions, such as a logical cluster or an identity pool.",
    )


class Security(Model):
    """How a client proves who it is and knows the broker."""

    model_config = rules(
        (
            "!self.protocol.startsWith('SASL') || (has(self.mechanism) && has(self.secretRef))",
            "a SASL protocol needs 'mechanism' and 'secretRef' (a Secret that holds the credentials)",
        ),
        (
            "!has(self.mechanism) || self.mechanism != 'OAUTHBEARER' || has(self.oauth)",
            "OAUTHBEARER needs 'oauth' with its 'tokenEndpointUrl'",
        ),
    )

    protocol: Protocol = Field(Protocol.PLAINTEXT, description="What the listener speaks.")
    mechanism: Mechanism | None = Field(None, description="SASL mechanism; needed for SASL protocols.")
    secret_ref: SecretReference | None = Field(
        None, description="The Secret with the credentials and, for TLS, `ca.crt`."
    )
    oauth: OAuth | None = Field(None, description="Needed for OAUTHBEARER.")
    verify_hostname: bool = Field(True, description="Check the broker's name against its certificate.")


class KafkaSpec(Model):
    """How to reach Kafka."""

    bootstrap_servers: str = Field(
        min_length=1,
        max_length=2048,
        pattern=r"^[^\s,]+(,[^\s,]+)*$",
        description="host:port, several separated by commas.",
    )
    security: Security = Field(default=Security(), description="How to log in.")
    properties: dict[str, ShortText] = Field(
        default_factory=dict,
        max_length=64,
        description="Client properties passed through to every client. Credentials are refused here.",
    )
