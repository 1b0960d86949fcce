"""A broker of our own, the real API server behind a proxy, and bindings the controller leaves alone."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from confluent_kafka import Consumer, Message, TopicPartition

from tests.support.bridge_process import (
    GATEWAY_ACCOUNT,
    Bridge,
    namespace_for,
    restricted_kubeconfig,
    role,
)
from tests.support.cluster import Cluster
from tests.support.kafka_broker import Broker, running_broker
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from topicbinding.api import ControlStatus, TopicBinding
from topicbinding.api.names import ANNOTATION_PAUSED, ANNOTATION_POSITION

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.apply_crds()
    return cluster


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def namespace(cluster: Cluster) -> Iterator[str]:
    with namespace_for(cluster, "tbc-bridge") as name:
        cluster.kubectl("create", "serviceaccount", GATEWAY_ACCOUNT, "-n", name)
        yield name


@dataclass
class Stage:
    """One binding with its control topic, and everything a test wants to do to it."""

    cluster: Cluster
    broker: Broker
    namespace: str
    name: str
    topic: str
    directory: Path
    secrets: Path
    bridges: list[Bridge] = field(default_factory=list)
    proxies: list[TcpProxy] = field(default_factory=list)

    def bridge(self, *module: str, proxied: bool = False) -> Bridge:
        """A bridge under the role the controller would give it, not yet started."""
        server = None
        if proxied:
            known = yaml.safe_load(self.cluster.kubeconfig.read_text())
            address = urlsplit(known["clusters"][0]["cluster"]["server"])
            assert address.hostname is not None
            assert address.port is not None
            proxy = TcpProxy(address.hostname, address.port)
            self.proxies.append(proxy)
            server = f"https://127.0.0.1:{proxy.port}"
        path = self.directory / f"kubeconfig-{len(self.bridges)}"
        account = f"tb-{self.name}-bridge"
        kubeconfig = restricted_kubeconfig(self.cluster, self.namespace, account, path, server)
        made = Bridge(self.cluster, self.namespace, self.name, kubeconfig, self.secrets)
        if module:
            made.module = module
        self.bridges.append(made)
        return made

    def running(self, **more: Any) -> Bridge:
        """A bridge that has read to the end."""
        bridge = self.bridge(**more).start()
        self.until_listening(bridge)
        return bridge

    def until_listening(self, bridge: Bridge, seconds: float = 40) -> None:
        eventually(lambda: "listening on topic" in bridge.lines(), seconds, "the bridge to listen", 0.05)

    def send(self, *messages: Any, partition: int = -1) -> list[Message]:
        values = [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in messages]
        return self.broker.send(self.topic, *values, partition=partition)

    def raw(self) -> dict[str, Any]:
        seen: dict[str, Any] = self.cluster.kubectl_json(
            "get", "tb", self.name, "-n", self.namespace, "-o", "json"
        )
        return seen

    def binding(self) -> TopicBinding:
        return TopicBinding.read(self.raw())

    def three(self) -> tuple[str, str, str]:
        spec = self.binding().spec
        return spec.users_topic, spec.accounts_topic, spec.join_type.value

    def position(self) -> dict[str, Any]:
        annotations = self.raw()["metadata"].get("annotations", {})
        stored: dict[str, Any] = json.loads(annotations.get(ANNOTATION_POSITION, "{}"))
        return stored

    def control(self) -> ControlStatus:
        return self.binding().status.control or ControlStatus()

    def condition(self) -> tuple[str, str]:
        found = self.binding().status.condition("ControlConnected")
        return (found.status, found.reason) if found else ("", "")

    def events(self) -> list[dict[str, Any]]:
        selector = f"involvedObject.name={self.name}"
        answer = self.cluster.kubectl_json(
            "get", "events", "-n", self.namespace, "--field-selector", selector, "-o", "json"
        )
        found: list[dict[str, Any]] = answer["items"]
        return found

    def until(self, probe: Callable[[], Any], what: str, seconds: float = 20) -> Any:
        return eventually(probe, seconds, what, 0.1)

    def until_three(self, users: str, accounts: str, join: str, seconds: float = 20) -> None:
        wanted = (users, accounts, join)
        self.until(lambda: self.three() == wanted, f"{wanted}; now {self.three()}", seconds)

    def until_position(self, offset: int, seconds: float = 20, partition: int = 0) -> None:
        def there() -> bool:
            return bool(self.position().get("offsets", {}).get(str(partition), 0) >= offset)

        self.until(there, f"position {offset}", seconds)

    def read_all(self, topic: str, count: int, seconds: float = 20) -> list[Message]:
        """At least `count` messages of a topic, from its beginning."""
        consumer = Consumer({"bootstrap.servers": self.broker.address, "group.id": "test", "log_level": 0})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Message] = []
        deadline = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < deadline:
            found += [each for each in consumer.consume(1_000, timeout=0.2) if each.error() is None]
        consumer.close()
        assert len(found) >= count, f"{len(found)} of {count} messages in {topic}"
        return found

    def set_status(self, status: dict[str, Any]) -> None:
        """Plays the controller."""
        self.cluster.kubectl(
            "patch", "tb", self.name, "-n", self.namespace, "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip


@pytest.fixture
def stage(
    cluster: Cluster,
    broker: Broker,
    namespace: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Stage]]:
    """Makes a binding of u1, a1, left with a control topic of its own."""
    made: list[Stage] = []

    def make(
        partitions: int = 1,
        answers: bool = False,
        kafka: dict[str, Any] | None = None,
        topic_config: dict[str, str] | None = None,
    ) -> Stage:
        number = next(_NUMBERS)
        name, topic = f"b{number}", f"control-{number}"
        broker.create_topic(topic, partitions, **(topic_config or {}))
        control: dict[str, Any] = {"topic": topic}
        if answers:
            control |= {"deadLetterTopic": f"{topic}-dead", "receiptsTopic": f"{topic}-receipts"}
            broker.create_topic(f"{topic}-dead", max_message_bytes="15000000")
            broker.create_topic(f"{topic}-receipts")
        body = {
            "apiVersion": "topicbinding.dev/v1alpha1",
            "kind": "TopicBinding",
            # These tests play the controller themselves: no installed one may serve this binding.
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": {ANNOTATION_PAUSED: "true", "topicbinding.dev/controller": "tests"},
            },
            "spec": {
                "usersTopic": "u1",
                "accountsTopic": "a1",
                "joinType": "left",
                "kafka": kafka or {"bootstrapServers": broker.address},
                "control": control,
            },
        }
        cluster.kubectl("apply", "--server-side", "--field-manager=person", "-f", "-", stdin=json.dumps(body))
        cluster.kubectl("apply", "-f", "-", stdin=role(namespace, name))
        secrets = tmp_path / f"secrets-{number}"
        secrets.mkdir()
        one = Stage(cluster, broker, namespace, name, topic, tmp_path, secrets)
        made.append(one)
        return one

    yield make
    report = getattr(request.node, "failed_call", False)
    for one in made:
        for bridge in one.bridges:
            bridge.kill()
            if report:
                print(f"--- {bridge.binding}\n{bridge.lines()[-6000:]}")
            bridge.log.unlink(missing_ok=True)
        for proxy in one.proxies:
            proxy.cut()
        cluster.kubectl("delete", "tb", one.name, "-n", namespace, "--wait=false", "--ignore-not-found")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call":
        item.failed_call = report.failed  # type: ignore[attr-defined]
    return report
