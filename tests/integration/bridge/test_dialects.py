"""One settings block, two dialects, one real broker: librdkafka and Java log in with what was rendered."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.identity import CLIENT_ID, CLIENT_SECRET
from tests.support.kafka_broker import PASSWORD, USERNAME, Broker
from topicbinding.api import KafkaSpec
from topicbinding.kafka.port import Connection
from topicbinding.kafka.records import KafkaProblem
from topicbinding.kafka.settings import jvm, jvm_system_properties, librdkafka, read_credentials, reveal

LOGINS: list[tuple[str, str, str | None]] = [
    ("PLAINTEXT", "PLAINTEXT", None),
    ("SSL", "SSL", None),
    ("SASL_SSL", "SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SASL_SSL", "PLAIN"),
    ("SASL_PLAINTEXT", "SASL_PLAINTEXT", "PLAIN"),
    ("OAUTH", "SASL_PLAINTEXT", "OAUTHBEARER"),
]
IDS = [f"{protocol}-{mechanism}" for _listener, protocol, mechanism in LOGINS]


@pytest.fixture
def secrets(broker: Broker, tmp_path: Path) -> Path:
    (tmp_path / "username").write_text(USERNAME)
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "client-id").write_text(CLIENT_ID)
    (tmp_path / "client-secret").write_text(CLIENT_SECRET)
    for name, file in (("ca.crt", "ca.crt"), ("tls.crt", "client.crt"), ("tls.key", "client.key")):
        shutil.copy(broker.directory / file, tmp_path / name)
    return tmp_path


@pytest.fixture
def token_url(broker: Broker) -> Iterator[str]:
    with broker.identity.serving() as url:
        yield url


def spec(broker: Broker, listener: str, protocol: str, mechanism: str | None, token_url: str) -> KafkaSpec:
    security: dict[str, Any] = {"protocol": protocol, "secretRef": {"name": "x"}}
    if mechanism:
        security["mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        security["oauth"] = {
            "tokenEndpointUrl": token_url,
            "scope": "read",
            "extensions": {"logicalCluster": "lkc-1"},
        }
    return KafkaSpec.read({"bootstrapServers": broker.listener(listener), "security": security})


@pytest.mark.parametrize(("listener", "protocol", "mechanism"), LOGINS, ids=IDS)
def test_librdkafka_logs_in(
    broker: Broker, secrets: Path, token_url: str, listener: str, protocol: str, mechanism: str | None
) -> None:
    topic = f"dialect-{listener}-{mechanism}".lower().replace("_", "-")
    broker.create_topic(topic)
    rendered = librdkafka(spec(broker, listener, protocol, mechanism, token_url), read_credentials(secrets))
    connection = Connection(reveal(rendered), "test")
    assert connection.describe(topic, 20).topic_id == broker.topic_id(topic)
    if mechanism == "OAUTHBEARER":
        assert "read" in broker.identity.scopes_asked


@pytest.mark.parametrize(("listener", "protocol", "mechanism"), LOGINS, ids=IDS)
def test_java_logs_in(
    broker: Broker, secrets: Path, token_url: str, listener: str, protocol: str, mechanism: str | None
) -> None:
    kafka = spec(broker, listener, protocol, mechanism, token_url)
    system = [f"-D{name}={value}" for name, value in jvm_system_properties(kafka).items()]
    ended = broker.java_client(reveal(jvm(kafka, read_credentials(secrets))), *system)
    said = (ended.stdout + ended.stderr).decode()
    assert ended.returncode == 0, said
    assert "Dynamic configs for broker 1 are:" in said


def test_a_wrong_client_secret_is_a_failed_login(broker: Broker, secrets: Path, token_url: str) -> None:
    (secrets / "client-secret").write_text("wr0ng-client-secret")
    kafka = spec(broker, "OAUTH", "SASL_PLAINTEXT", "OAUTHBEARER", token_url)
    connection = Connection(reveal(librdkafka(kafka, read_credentials(secrets))), "test")
    with pytest.raises(KafkaProblem) as caught:
        connection.describe("any", 4)
    assert caught.value.reason == "KafkaAuthenticationFailed"
    assert "wr0ng" not in str(caught.value)
