"""A real broker of a test's own, on loopback, that may be stopped, killed and started again.

The shared development Kafka must stay up for everybody; tests that take a broker away use this one. Its jars
are those of the development Kafka, resolved once into the cache. Listeners: PLAINTEXT for the tests
themselves, SASL_SSL and SASL_PLAINTEXT (SCRAM and PLAIN), OAUTH, and SSL that demands a client certificate.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Message, Producer, TopicCollection
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.certificates import Authority
from tests.support.cluster import CACHE, ROOT
from tests.support.identity import IdentityProvider
from tests.support.waiting import eventually

# The library's annotations leave these out.
_admin_names: Any = kafka_admin
AclBinding, AclOperation = _admin_names.AclBinding, _admin_names.AclOperation
AclPermissionType, ResourceType = _admin_names.AclPermissionType, _admin_names.ResourceType
ResourcePatternType = _admin_names.ResourcePatternType

JARS = CACHE / "test-broker" / "target" / "jars"
CLUSTER_ID = "dG9waWNiaW5kaW5nLXRlcw"
USERNAME = "alice"
PASSWORD = "sw0rd-f1sh.77=x"
SECONDS_TO_START = 60
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


def jars() -> Path:
    """The broker's jars; resolved on first use, by one process at a time."""
    JARS.parent.mkdir(parents=True, exist_ok=True)
    with (JARS.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(JARS.glob("kafka_2.13-*.jar")):
            # In the cache, because Maven writes beside the pom it is given.
            shutil.copy(ROOT / "deploy/kafka/pom.xml", JARS.parent.parent / "pom.xml")
            command = ["mvn", "-q", "-B", "dependency:copy-dependencies"]
            subprocess.run(command, cwd=JARS.parent.parent, check=True, timeout=300)
    return JARS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Broker:
    """One KRaft node. `start` and `stop` may be called again and again; data and ports stay."""

    directory: Path
    ports: Mapping[str, int] = field(
        default_factory=lambda: {
            name: free_port()
            for name in ("PLAINTEXT", "SASL_SSL", "SASL_PLAINTEXT", "SSL", "OAUTH", "CONTROLLER")
        }
    )
    # Whoever holds a token of this provider may log in at the OAUTH listener.
    identity: IdentityProvider = field(default_factory=IdentityProvider)
    _process: subprocess.Popen[bytes] | None = None
    _admin: AdminClient | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports['PLAINTEXT']}"

    def listener(self, name: str) -> str:
        return f"localhost:{self.ports[name]}"

    @property
    def _keys_url(self) -> str:
        return (self.directory / "jwks.json").as_uri()

    def make(self) -> None:
        """Certificates, settings and a formatted disk."""
        self.directory.mkdir(parents=True, exist_ok=True)
        authority = Authority.make()
        server = authority.issue("localhost")
        client = authority.issue("client")
        (self.directory / "ca.crt").write_text(authority.certificate)
        (self.directory / "server.pem").write_text(server.key + server.certificate)
        (self.directory / "client.crt").write_text(client.certificate)
        (self.directory / "client.key").write_text(client.key)
        (self.directory / "jwks.json").write_text(json.dumps(self.identity.published()))
        (self.directory / "server.properties").write_text(self._properties())
        self._java(
            "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID,
            "--config", str(self.directory / "server.properties"),
            "--add-scram", f"SCRAM-SHA-256=[name={USERNAME},password={PASSWORD}]",
            "--add-scram", f"SCRAM-SHA-512=[name={USERNAME},password={PASSWORD}]",
        ).check_returncode()  # fmt: skip

    def start(self) -> None:
        log = (self.directory / "broker.log").open("ab")
        self._process = subprocess.Popen(
            [
                "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={ROOT / 'deploy/kafka/log4j2.properties'}",
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys_url}",
                "-cp", f"{jars()}/*", "kafka.Kafka", str(self.directory / "server.properties"),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        log.close()
        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            try:
                self.admin().list_topics(timeout=2)
                return
            except KafkaException:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.directory / "broker.log").read_text()[-4000:]) from None

    def stop(self) -> None:
        """At once, as when a machine dies."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None
        self._admin = None

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        plain = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=plain)
        self.admin().create_topics([topic])[name].result(30)
        eventually(lambda: name in self.admin().list_topics(timeout=5).topics, 30, f"topic {name}", 0.05)

    def reserve_topic(self, name: str, principal: str) -> None:
        """Only this principal may read the topic; others may see that it is there."""
        rules = [
            AclBinding(
                ResourceType.TOPIC, name, ResourcePatternType.LITERAL, who, "*", operation,
                AclPermissionType.ALLOW,
            )
            for who, operation in ((principal, AclOperation.READ), ("User:*", AclOperation.DESCRIBE))
        ]  # fmt: skip
        for future in self.admin().create_acls(rules).values():
            future.result(30)

    def delete_topic(self, name: str) -> None:
        self.admin().delete_topics([name])[name].result(30)
        eventually(lambda: name not in self.admin().list_topics(timeout=5).topics, 30, f"no {name}", 0.05)

    def topic_id(self, name: str) -> str:
        return str(self.admin().describe_topics(TopicCollection([name]))[name].result(30).topic_id)

    @contextlib.contextmanager
    def producer(self) -> Iterator[Producer]:
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "linger.ms": 0,
                "message.max.bytes": 20_000_000,
                "log_level": 0,
            }
        )
        yield producer
        assert producer.flush(30) == 0

    def send(self, topic: str, *values: bytes | str | None, partition: int = -1) -> list[Message]:
        sent: list[Message] = []

        def keep(error: object, message: Message) -> None:
            assert error is None, error
            sent.append(message)

        with self.producer() as producer:
            for value in values:
                producer.produce(topic, value, partition=partition, on_delivery=keep)
        return sent

    def java_client(self, properties: Mapping[str, str], *system: str) -> subprocess.CompletedProcess[bytes]:
        """A real Java client logs in with these properties and asks for the broker's settings."""
        file = self.directory / "client.properties"
        escaped = {
            name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
        return self._java(
            *system, "kafka.admin.ConfigCommand", "--bootstrap-server", properties["bootstrap.servers"],
            "--command-config", str(file), "--describe", "--entity-type", "brokers", "--entity-name", "1",
        )  # fmt: skip

    def _java(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", *arguments],
            capture_output=True,
            timeout=120,
            check=False,
            env=os.environ,
        )

    def _properties(self) -> str:
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        advertised = ",".join(
            f"{name}://localhost:{port}" for name, port in self.ports.items() if name != "CONTROLLER"
        )
        plain = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USERNAME}="{PASSWORD}";'
        )
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.ports['CONTROLLER']}",
            "listeners": listeners,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,OAUTH:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
            **{
                f"listener.name.{name}.{mechanism}.sasl.jaas.config": plain if mechanism == "plain" else scram
                for name in ("sasl_ssl", "sasl_plaintext")
                for mechanism in ("plain", "scram-sha-256", "scram-sha-512")
            },
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": (
                f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.jwks.endpoint.url": self._keys_url,
            "sasl.oauthbearer.expected.audience": "kafka",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.crt"),
            "listener.name.ssl.ssl.client.auth": "required",
            # Everybody may do everything, until a test says who may read a topic. We come without a name.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": "false",
            "message.max.bytes": "20000000",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.check.interval.ms": "500",
            "file.delete.delay.ms": "0",
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


@contextlib.contextmanager
def running_broker(directory: Path) -> Iterator[Broker]:
    broker = Broker(directory)
    broker.make()
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(directory / "data", ignore_errors=True)
