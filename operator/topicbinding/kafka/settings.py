"""Renders one `KafkaSpec` and its mounted Secret into the dialects of librdkafka and of the JVM client.

Called by the bridge and the command line (librdkafka) and by the driver (both: librdkafka to validate, the
JVM's for Spark's `kafka.*` options). Rendering is pure: `read_credentials` is the only function that touches
a file, and everything that came from one stays a `SecretStr` until `reveal` hands it to a client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from topicbinding.api import KafkaSpec, Mechanism, OAuth, Protocol

Rendered = dict[str, str | SecretStr]

# A property may be meant for one dialect: librdkafka refuses names it does not know, the JVM ignores them.
LIBRDKAFKA_PREFIX: Final = "librdkafka."
JVM_PREFIX: Final = "jvm."

_LOGIN_MODULES: Final = {
    Mechanism.PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    Mechanism.OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_CALLBACK_HANDLER: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
)
# JVM clients from 4.0 on ask a token endpoint only if this system property names it.
_ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

# What may not be passed through, and why. Exact names first, then whole families.
_REFUSED: Final = {
    "bootstrap.servers": "set kafka.bootstrapServers instead",
    "metadata.broker.list": "set kafka.bootstrapServers instead",
    "security.protocol": "set kafka.security.protocol instead",
    "group.id": "every reader keeps its own position; a group would move it",
    "group.instance.id": "every reader keeps its own position; a group would move it",
    "group.protocol": "every reader keeps its own position; a group would move it",
    "auto.offset.reset": "where reading begins is decided by startingOffsets and the stored position",
    "enable.auto.commit": "every reader keeps its own position; a commit would move it",
    "enable.auto.offset.store": "every reader keeps its own position; a commit would move it",
    "enable.partition.eof": "the end of a partition is how 'caught up' is known",
    "transactional.id": "two programs with one transactional id would fence each other off",
    "allow.auto.create.topics": "a misspelt topic must be an error, not a new empty topic",
    "plugin.library.paths": "it loads code into the program",
    "interceptor.classes": "it loads code into the program",
    "metric.reporters": "it loads code into the program",
    "key.deserializer": "it loads code into the program",
    "value.deserializer": "it loads code into the program",
    "key.serializer": "it loads code into the program",
    "value.serializer": "it loads code into the program",
    "partition.assignment.strategy": "it loads code into the program",
    "security.providers": "it loads code into the program",
    "config.providers": "it loads code into the program",
    "debug": "it can print what must stay secret",
    "log_level": "it can print what must stay secret",
    "ssl.endpoint.identification.algorithm": "set kafka.security.verifyHostname instead",
}
_REFUSED_FAMILIES: Final = (
    ("sasl.", "log in with kafka.security; credentials come from its Secret alone"),
    ("ssl.keystore.", "log in with kafka.security; credentials come from its Secret alone"),
    ("ssl.truststore.", "put the certificate authority into the Secret as 'ca.crt'"),
    ("ssl.key", "put the key into the Secret as 'tls.key'"),
    ("ssl.certificate", "put the certificate into the Secret as 'tls.crt'"),
    ("ssl.ca.", "put the certificate authority into the Secret as 'ca.crt'"),
    ("ssl.engine.", "it loads code into the program"),
    ("ssl.providers", "it loads code into the program"),
    ("config.providers.", "it loads code into the program"),
)
_CREDENTIAL_WORDS: Final = re.compile(r"password|passphrase|secret|token|jaas", re.IGNORECASE)
_PROPERTY_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")  # RFC 7628: a key is letters only
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f]")


class KafkaSettingsError(ValueError):
    """The settings or the Secret cannot work; `reason` becomes the reason of a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Credentials:
    """What the Secret holds; each field is the Secret's key with '_' for '-' and '.'."""

    username: SecretStr | None = None
    password: SecretStr | None = None
    client_id: SecretStr | None = None
    client_secret: SecretStr | None = None
    ca_crt: SecretStr | None = None
    tls_crt: SecretStr | None = None
    tls_key: SecretStr | None = None

    def values(self) -> tuple[SecretStr, ...]:
        """Everything there is, for whoever must keep it out of a log."""
        found = (getattr(self, each.name) for each in fields(self))
        return tuple(value for value in found if value is not None)

    def need(self, name: str, what_for: str) -> str:
        value: SecretStr | None = getattr(self, name)
        key = _KEYS[name]
        if value is None:
            raise KafkaSettingsError("SecretIncomplete", f"{what_for} needs the key '{key}' in the Secret")
        return value.get_secret_value()


_KEYS: Final = {
    "username": "username",
    "password": "password",
    "client_id": "client-id",
    "client_secret": "client-secret",
    "ca_crt": "ca.crt",
    "tls_crt": "tls.crt",
    "tls_key": "tls.key",
}
_LINES: Final = frozenset({"ca_crt", "tls_crt", "tls_key"})


def read_credentials(directory: Path) -> Credentials:
    """The mounted Secret. A missing file is a missing key, which is no error until a mechanism needs it."""
    found: dict[str, bytes] = {}
    for key in _KEYS.values():
        try:
            found[key] = (directory / key).read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(key, error) from None
    return credentials_from(found)


def credentials_from(secret: Mapping[str, bytes]) -> Credentials:
    """The Secret's keys that a client may need; others are left alone."""
    found: dict[str, SecretStr] = {}
    for name, key in _KEYS.items():
        if key not in secret:
            continue
        try:
            text = secret[key].decode()
        except UnicodeDecodeError as error:
            raise _unreadable(key, error) from None  # the cause would carry the bytes
        # Secrets made with `echo` end in a newline that nobody meant.
        text = text if name in _LINES else text.rstrip("\r\n")
        if name not in _LINES and _CONTROL_CHARACTER.search(text):
            raise KafkaSettingsError("SecretIncomplete", f"the Secret's key '{key}' has a control character")
        if text.strip():
            found[name] = SecretStr(text)
    return Credentials(**found)


def _unreadable(key: str, error: Exception) -> KafkaSettingsError:
    why = f"the Secret's key '{key}' cannot be read as text ({type(error).__name__})"
    return KafkaSettingsError("SecretIncomplete", why)


def librdkafka(spec: KafkaSpec, credentials: Credentials) -> Rendered:
    """For confluent_kafka."""
    security = spec.security
    rendered: Rendered = dict(_passed_through(spec.properties, LIBRDKAFKA_PREFIX, JVM_PREFIX))
    rendered["bootstrap.servers"] = spec.bootstrap_servers
    rendered["security.protocol"] = security.protocol.value
    if _uses_tls(security.protocol):
        if credentials.ca_crt is not None:
            rendered["ssl.ca.pem"] = credentials.ca_crt
        if _has_client_certificate(credentials):
            rendered["ssl.certificate.pem"] = SecretStr(credentials.need("tls_crt", "a client certificate"))
            rendered["ssl.key.pem"] = SecretStr(credentials.need("tls_key", "a client certificate"))
        rendered["ssl.endpoint.identification.algorithm"] = "https" if security.verify_hostname else "none"
    mechanism = _mechanism(spec)
    if mechanism is None:
        return rendered
    rendered["sasl.mechanism"] = mechanism.value
    if mechanism is Mechanism.OAUTHBEARER:
        oauth = _oauth(spec)
        rendered["sasl.oauthbearer.method"] = "oidc"
        rendered["sasl.oauthbearer.token.endpoint.url"] = oauth.token_endpoint_url
        rendered["sasl.oauthbearer.client.id"] = SecretStr(credentials.need("client_id", "OAUTHBEARER"))
        rendered["sasl.oauthbearer.client.secret"] = SecretStr(
            credentials.need("client_secret", "OAUTHBEARER")
        )
        if oauth.scope:
            rendered["sasl.oauthbearer.scope"] = oauth.scope
        if oauth.sub_claim_name:
            rendered["sasl.oauthbearer.sub.claim.name"] = oauth.sub_claim_name
        if oauth.extensions:
            pairs = (f"{name}={value}" for name, value in sorted(oauth.extensions.items()))
            rendered["sasl.oauthbearer.extensions"] = ",".join(pairs)
    else:
        rendered["sasl.username"] = SecretStr(credentials.need("username", mechanism.value))
        rendered["sasl.password"] = SecretStr(credentials.need("password", mechanism.value))
    return rendered


def jvm(spec: KafkaSpec, credentials: Credentials) -> Rendered:
    """For Kafka's Java client. Certificates go in as text, so executors need no file of their own."""
    security = spec.security
    rendered: Rendered = dict(_passed_through(spec.properties, JVM_PREFIX, LIBRDKAFKA_PREFIX))
    rendered["bootstrap.servers"] = spec.bootstrap_servers
    rendered["security.protocol"] = security.protocol.value
    if _uses_tls(security.protocol):
        if credentials.ca_crt is not None:
            rendered["ssl.truststore.type"] = "PEM"
            rendered["ssl.truststore.certificates"] = credentials.ca_crt
        if _has_client_certificate(credentials):
            key = credentials.need("tls_key", "a client certificate")
            if "-----BEGIN PRIVATE KEY-----" not in key:
                raise KafkaSettingsError(
                    "SecretIncomplete",
                    "the Secret's key 'tls.key' must be an unencrypted PKCS#8 key "
                    "('-----BEGIN PRIVATE KEY-----'): Java reads no other; convert it with 'openssl pkcs8'",
                )
            rendered["ssl.keystore.type"] = "PEM"
            rendered["ssl.keystore.certificate.chain"] = SecretStr(
                credentials.need("tls_crt", "a client certificate")
            )
            rendered["ssl.keystore.key"] = SecretStr(key)
        rendered["ssl.endpoint.identification.algorithm"] = "https" if security.verify_hostname else ""
    mechanism = _mechanism(spec)
    if mechanism is None:
        return rendered
    rendered["sasl.mechanism"] = mechanism.value
    if mechanism is Mechanism.OAUTHBEARER:
        oauth = _oauth(spec)
        options = {
            "clientId": credentials.need("client_id", "OAUTHBEARER"),
            "clientSecret": credentials.need("client_secret", "OAUTHBEARER"),
        }
        if oauth.scope:
            options["scope"] = oauth.scope
        options |= {f"extension_{name}": value for name, value in sorted(oauth.extensions.items())}
        rendered["sasl.oauthbearer.token.endpoint.url"] = oauth.token_endpoint_url
        rendered["sasl.login.callback.handler.class"] = _OAUTH_CALLBACK_HANDLER
        if oauth.sub_claim_name:
            rendered["sasl.oauthbearer.sub.claim.name"] = oauth.sub_claim_name
    else:
        options = {
            "username": credentials.need("username", mechanism.value),
            "password": credentials.need("password", mechanism.value),
        }
    rendered["sasl.jaas.config"] = SecretStr(_jaas(_LOGIN_MODULES[mechanism], options))
    return rendered


def jvm_system_properties(spec: KafkaSpec) -> dict[str, str]:
    """What the JVM must be started with (`-D`) before its client may use these settings."""
    if _mechanism(spec) is Mechanism.OAUTHBEARER:
        return {_ALLOWED_URLS: _oauth(spec).token_endpoint_url}
    return {}


def reveal(rendered: Mapping[str, str | SecretStr]) -> dict[str, str]:
    """Plain values, for the client's constructor and nothing else."""
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in rendered.items()
    }


def refusal(name: str) -> str | None:
    """Why a property may not be passed through; None: it may. Also used by `lint`."""
    plain = name
    for prefix in (LIBRDKAFKA_PREFIX, JVM_PREFIX):
        plain = plain.removeprefix(prefix)
    if not _PROPERTY_NAME.fullmatch(plain):
        return "that is no property name"
    lowered = plain.lower()
    if lowered in _REFUSED:
        return _REFUSED[lowered]
    for family, why in _REFUSED_FAMILIES:
        if lowered.startswith(family):
            return why
    if _CREDENTIAL_WORDS.search(lowered):
        return "credentials come from the Secret alone"
    if lowered.endswith((".class", ".classes")):
        return "it loads code into the program"
    return None


def _passed_through(properties: Mapping[str, str], ours: str, others: str) -> dict[str, str]:
    taken: dict[str, str] = {}
    for name, value in sorted(properties.items()):
        why = refusal(name)
        if why is not None:
            raise KafkaSettingsError(
                "KafkaPropertyRefused", f"kafka.properties: {name[:80]!r} is refused: {why}"
            )
        if name.startswith(others):
            continue
        plain = name.removeprefix(ours)
        # The one meant for this dialect wins over the one meant for both, whichever comes first.
        if name == plain and ours + plain in properties:
            continue
        taken[plain] = value
    return taken


def _uses_tls(protocol: Protocol) -> bool:
    return protocol in (Protocol.SSL, Protocol.SASL_SSL)


def _has_client_certificate(credentials: Credentials) -> bool:
    """One half without the other is a mistake that `need` names."""
    return credentials.tls_crt is not None or credentials.tls_key is not None


def _mechanism(spec: KafkaSpec) -> Mechanism | None:
    security = spec.security
    if security.protocol not in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL):
        return None
    if security.mechanism is None:
        raise KafkaSettingsError(
            "KafkaSettingsInvalid", f"kafka.security: {security.protocol.value} needs a mechanism"
        )
    return security.mechanism


def _oauth(spec: KafkaSpec) -> OAuth:
    oauth = spec.security.oauth
    if oauth is None:
        raise KafkaSettingsError(
            "KafkaSettingsInvalid", "kafka.security: OAUTHBEARER needs 'oauth' with its 'tokenEndpointUrl'"
        )
    for name, value in oauth.extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise KafkaSettingsError(
                "KafkaSettingsInvalid",
                f"kafka.security.oauth.extensions: {name[:40]!r}: a name is letters only, and not 'auth'",
            )
        if "," in value or _CONTROL_CHARACTER.search(value):
            raise KafkaSettingsError(
                "KafkaSettingsInvalid",
                f"kafka.security.oauth.extensions: the value of {name!r} has a comma or a control character",
            )
    return oauth


def _jaas(module: str, options: Mapping[str, str]) -> str:
    """JAAS reads a quoted value with backslash escapes; an unescaped quote would end it early."""
    quoted = (
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"'))
        for name, value in options.items()
    )
    return f"{module} required {' '.join(quoted)};"
