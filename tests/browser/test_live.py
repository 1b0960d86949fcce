"""The page against the real thing: kind, Kafka, Spark, the installed operator and its gateway.

What a person does: opens the page, sees rows, sends a control message, and sees the table move to other
topics with the filter still set and no reload; then the driver is killed, and the page says stale, then live.
Screenshots of every step are kept in artifacts/browser.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from tests.browser.conftest import Tab

PAGE = os.environ.get("TB_PAGE_URL", "http://127.0.0.1:8080")
KAFKA = os.environ.get("TB_KAFKA", "127.0.0.1:9092")
COLD_SECONDS = 300.0
"""A cold driver on a busy machine of two cores; a quiet one needs ten."""
KUBE = Cluster()
SCRIPT = "<script>window.hacked = 1</script>"


class Topics:
    """Topics of this test alone, on the cluster's Kafka."""

    def __init__(self, mark: str) -> None:
        self.names = {
            each: f"browser-{mark}-{each}"
            for each in ("users-a", "users-b", "accounts-a", "accounts-b", "control")
        }
        self._admin = AdminClient({"bootstrap.servers": KAFKA})
        self._producer = Producer({"bootstrap.servers": KAFKA, "linger.ms": 0})
        made = self._admin.create_topics([NewTopic(name, 1, 1) for name in self.names.values()])
        for future in made.values():
            future.result(30)
        for side in ("a", "b"):
            for number in range(40):
                person = {
                    "userId": f"{side}{number:03d}",
                    "name": SCRIPT if number == 1 else f"Name {number}",
                    "email": f"{number}@example.org",
                    "age": 20 + number,
                }
                account = {
                    "userId": person["userId"],
                    "accountType": "gold" if number % 2 else "basic",
                    "balance": number * 10.5,
                }
                self.send(f"users-{side}", person)
                self.send(f"accounts-{side}", account)

    def send(self, topic: str, value: dict[str, Any]) -> None:
        self._producer.produce(self.names[topic], json.dumps(value).encode())
        assert self._producer.flush(30) == 0

    def delete(self) -> None:
        for future in self._admin.delete_topics(list(self.names.values())).values():
            future.result(30)


@dataclass(frozen=True)
class Stage:
    namespace: str
    topics: Topics


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    mark = uuid.uuid4().hex[:6]
    namespace = f"tb-browser-{mark}"
    topics = Topics(mark)
    KUBE.kubectl("create", "namespace", namespace)
    KUBE.kubectl("label", "namespace", namespace, "topicbinding.dev/test=true")
    try:
        names = topics.names
        binding = {
            "apiVersion": "topicbinding.dev/v1alpha1",
            "kind": "TopicBinding",
            "metadata": {"name": "people", "namespace": namespace},
            "spec": {
                "usersTopic": names["users-a"],
                "accountsTopic": names["accounts-a"],
                "joinType": "left",
                "startingOffsets": "earliest",
                "kafka": {"bootstrapServers": "kafka.kafka.svc:9092"},
                "control": {"topic": names["control"]},
                "linger": {"seconds": 20},
            },
        }
        KUBE.kubectl("apply", "-f", "-", stdin=json.dumps(binding))
        eventually(lambda: _ready(namespace), COLD_SECONDS, "the binding to be served")
        yield Stage(namespace, topics)
    finally:
        KUBE.kubectl("delete", "topicbinding", "people", "-n", namespace, "--wait=false", check=False)
        KUBE.kubectl("delete", "namespace", namespace, "--wait=false", check=False)
        topics.delete()


def _ready(namespace: str) -> bool:
    body = KUBE.kubectl_json("get", "topicbinding", "people", "-n", namespace, "-o", "json")
    conditions = body.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def test_a_control_message_moves_the_open_table(stage: Stage, tab: Tab) -> None:
    topics = stage.topics
    await tab.open(f"{PAGE}/#/{stage.namespace}/people/final_ui")
    await tab.state("live", 60)
    await tab.until_cells("contains|a000", 60)
    await tab.until_cells("contains|<script>", 30)
    assert await tab.page.evaluate("window.hacked") is None, "a name is text"
    topics.send("users-a", {"userId": "a900", "name": "Late", "age": 1})
    await tab.page.wait_for_function(
        "() => Number(document.querySelector('[data-fact=rows]').textContent) === 41"
    )
    await tab.page.evaluate("window.sameDocument = true")
    await tab.page.evaluate(
        "document.querySelector('perspective-viewer').restore({filter: [['accountType', '==', 'gold']]})"
    )
    await tab.until_cells("all|4|gold")
    await tab.screenshot("live-before")
    sent = time.monotonic()
    topics.send(
        "control", {"usersTopic": topics.names["users-b"], "accountsTopic": topics.names["accounts-b"]}
    )
    await tab.page.locator(".generation.building, .generation.lingering").first.wait_for(
        timeout=COLD_SECONDS * 1000
    )
    await tab.screenshot("live-building")
    assert await tab.page.get_attribute("#badge", "data-state") in ("live", "swapping"), (
        "the old one still serves"
    )
    await tab.until_cells("all|0|b0", COLD_SECONDS)
    print(f"\ncontrol message -> new rows on the page: {time.monotonic() - sent:.1f} s (cold pod)")
    await tab.state("live", 30)
    assert await tab.fact("generation") == "2"
    assert topics.names["users-b"] in await tab.page.inner_text("#head")
    assert {row[4] for row in await tab.cells()} == {"gold"}, "the filter is still set"
    assert await tab.page.evaluate("window.sameDocument") is True, "no reload"
    assert await tab.page.evaluate("window.topicbinding.table.swaps") == 1
    assert await tab.page.evaluate("window.topicbinding.table.connections") == 1
    await tab.page.locator("#control .verdict.applied").first.wait_for(timeout=30_000)
    topics.send("control", {"userTopic": "x"})
    await tab.page.locator("#control").get_by_text("usersTopic").last.wait_for(timeout=30_000)
    await tab.page.locator("#control .verdict.rejected").first.wait_for(timeout=30_000)
    await tab.screenshot("live-swapped")
    assert tab.complaints == []


async def test_a_killed_driver_is_stale_and_comes_back_live(stage: Stage, tab: Tab) -> None:
    await tab.open(f"{PAGE}/#/{stage.namespace}/people/final_ui")
    await tab.state("live", 60)
    await tab.page.locator("#grid td").first.wait_for(state="attached", timeout=60_000)
    rows = await tab.fact("rows")
    body = await asyncio.to_thread(
        KUBE.kubectl_json, "get", "topicbinding", "people", "-n", stage.namespace, "-o", "json"
    )
    pod = f"people-g{body['status']['activeGeneration']}"
    await asyncio.to_thread(
        KUBE.kubectl,
        "delete",
        "pod",
        pod,
        "-n",
        stage.namespace,
        "--grace-period=0",
        "--force",
        "--wait=false",
    )
    await tab.state("stale", 60)
    assert await tab.cells(), "the rows stay"
    await tab.screenshot("live-stale")
    await tab.state("live", COLD_SECONDS)
    assert await tab.fact("rows") == rows, "the restarted driver read the same rows"
    await tab.screenshot("live-again")
