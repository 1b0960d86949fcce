"""Messages from a stock Kafka client, the bridge the controller made, and what people see with kubectl."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from tests.e2e.bridge.conftest import IN_CLUSTER_SASL, NAMESPACE, Bound, Kafka, bind
from tests.support.cluster import ROOT, Cluster
from tests.support.kafka_broker import free_port
from tests.support.waiting import eventually

GATEWAY = "http://127.0.0.1:8080"

SPELLINGS: list[tuple[Any, str, str, tuple[str, str, str]]] = [
    ({"joinType": "LEFT"}, "unchanged", "no change", ("users-v1", "accounts-v1", "left")),
    ({"joinType": " inner "}, "applied", "joinType left -> inner", ("users-v1", "accounts-v1", "inner")),
    ({"usersTopic": "users-v2"}, "applied", "users-v1 -> users-v2", ("users-v2", "accounts-v1", "inner")),
    (
        {"usersTopic": "", "accountsTopic": None, "joinType": "left_outer"},
        "applied",
        "joinType inner -> left",
        ("users-v2", "accounts-v1", "left"),
    ),
    (
        json.dumps({"accountsTopic": "accounts-v2"}),
        "applied",
        "unwrapped",
        ("users-v2", "accounts-v2", "left"),
    ),
    ({"userTopic": "x"}, "rejected", "did you mean 'usersTopic'?", ("users-v2", "accounts-v2", "left")),
    ({"joinType": "outher"}, "rejected", "is no join type", ("users-v2", "accounts-v2", "left")),
    ({"usersTopic": "None"}, "rejected", "the word 'None'", ("users-v2", "accounts-v2", "left")),
    (b"{broken", "rejected", "not JSON", ("users-v2", "accounts-v2", "left")),
    (None, "rejected", "tombstone", ("users-v2", "accounts-v2", "left")),
    ({"usersTopic": "users-v1"}, "applied", "users-v2 -> users-v1", ("users-v1", "accounts-v2", "left")),
]


@pytest.fixture(scope="module")
def spelled(cluster: Cluster, kafka: Kafka, namespace: str) -> Bound:
    """Suspended: its wishes are judged and shown, and no driver has to run for each of them."""
    kafka.make_topics("e2e-control", "e2e-receipts", "e2e-dead")
    control = {"topic": "e2e-control", "receiptsTopic": "e2e-receipts", "deadLetterTopic": "e2e-dead"}
    bound = bind(cluster, "spelled", state="Suspended", control=control)
    bound.until_connected()
    return bound


def test_the_bridge_may_touch_its_own_binding_and_nothing_else(cluster: Cluster, spelled: Bound) -> None:
    bind(cluster, "other", state="Suspended")
    account = f"system:serviceaccount:{NAMESPACE}:tb-spelled-bridge"

    def may(*what: str) -> bool:
        asked = cluster.kubectl("auth", "can-i", *what, "-n", NAMESPACE, f"--as={account}", check=False)
        return asked.stdout.strip() == "yes"

    assert may("patch", "topicbindings.topicbinding.dev/spelled")
    assert may("create", "events")
    for verb in ("get", "patch", "update", "delete"):
        assert not may(verb, "topicbindings.topicbinding.dev/other"), verb
    for what in (("get", "secrets"), ("delete", "topicbindings.topicbinding.dev/spelled"), ("get", "pods")):
        assert not may(*what), what


def test_the_spellings_people_really_sent(cluster: Cluster, kafka: Kafka, spelled: Bound) -> None:
    columns = "-o=jsonpath={.spec.usersTopic} {.spec.accountsTopic} {.spec.joinType}{'\\n'}"
    watching = subprocess.Popen(
        ["kubectl", "get", "tb", "spelled", "-n", NAMESPACE, "-w", columns],
        stdout=subprocess.PIPE,
        text=True,
        env=cluster.environment,
    )
    try:
        for message, verdict, reason, result in SPELLINGS:
            offset = kafka.send("e2e-control", message)
            told = spelled.until_verdict(offset)
            assert told[0] == verdict, (message, told)
            assert reason in (told[1] or ""), (message, told)
            spec = spelled.seen().spec
            assert (spec.users_topic, spec.accounts_topic, spec.join_type.value) == result, message
    finally:
        watching.terminate()
        seen, _ = watching.communicate()
    for result in dict.fromkeys(row[3] for row in SPELLINGS):
        assert " ".join(result) in seen, "kubectl get tb -w shows it live"

    verdicts = [row[1] for row in SPELLINGS]
    eventually(lambda: len(kafka.read("e2e-receipts")) >= len(verdicts), 30, "receipts", 1)
    first = {each["offset"]: each["verdict"] for each in reversed(kafka.read("e2e-receipts"))}
    assert [first[offset] for offset in sorted(first)] == verdicts
    reasons = {each["reason"] for each in spelled.events()}
    assert {"ControlApplied", "ControlRejected", "ControlUnchanged"} <= reasons
    counts = spelled.seen().status.control
    assert counts is not None
    assert counts.counts.rejected == verdicts.count("rejected")


def test_a_broker_that_demands_scram(cluster: Cluster, kafka: Kafka) -> None:
    secrets = {
        name: cluster.kubectl_json("get", "secret", name, "-n", "kafka", "-o", "json")["data"]
        for name in ("kafka-ca", "kafka-scram")
    }
    login = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": NAMESPACE},
        "data": secrets["kafka-ca"] | secrets["kafka-scram"],
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(login))
    kafka.make_topics("e2e-secure")
    security = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "secretRef": {"name": "login"}}
    secured = {"bootstrapServers": IN_CLUSTER_SASL, "security": security}
    bound = bind(cluster, "secure", state="Suspended", control={"topic": "e2e-secure", "kafka": secured})
    bound.until_connected()
    assert bound.until_verdict(kafka.send("e2e-secure", {"joinType": "inner"}))[0] == "applied"
    shown = cluster.kubectl("get", "tb,events,deploy,pods", "-n", NAMESPACE, "-o", "yaml").stdout
    logs = cluster.kubectl("logs", "-n", NAMESPACE, "deploy/tb-secure-bridge").stdout

    password = base64.b64decode(secrets["kafka-scram"]["password"]).decode().strip()
    assert password not in shown + logs


def test_a_message_moves_the_tables_and_its_receipt_says_so(cluster: Cluster, kafka: Kafka) -> None:
    kafka.make_topics("e2e-moving", "e2e-moving-receipts", "e2e-users", "e2e-accounts")
    bound = bind(
        cluster,
        "moving",
        control={"topic": "e2e-moving", "receiptsTopic": "e2e-moving-receipts"},
    )
    bound.until_connected()
    cluster.kubectl(
        "wait", "tb/moving", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=300s", seconds=310
    )
    before = bound.seen().status.active_generation
    kafka.send("e2e-moving", {"id": "swap", "usersTopic": "e2e-users", "accountsTopic": "e2e-accounts"})

    def ended() -> list[dict[str, Any]]:
        told = kafka.read("e2e-moving-receipts")
        return [each for each in told if each["verdict"] in ("serving", "failed")]

    receipt = eventually(ended, 300, "the second receipt", 1)[0]
    assert (receipt["id"], receipt["verdict"]) == ("swap", "serving"), receipt
    status = bound.seen().status
    assert before is not None
    assert receipt["generation"] == status.active_generation == before + 1
    assert (status.users_topic, status.accounts_topic) == ("e2e-users", "e2e-accounts")

    def rows(table: str) -> list[dict[str, Any]]:
        address = f"{GATEWAY}/v1/bindings/{NAMESPACE}/moving/tables/{table}"
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - loopback
            found: list[dict[str, Any]] = json.load(answer)["rows"]
            return found

    kafka.send("e2e-users", {"userId": "e2e-moving", "name": "Eve"})
    assert eventually(lambda: rows("final_ui"), 60, "rows of the new topics", 1)
    told = eventually(lambda: rows("control_raw"), 60, "control_raw", 1)
    assert told[-1]["verdict"] == "applied"


def test_the_command_line_opens_the_page(cluster: Cluster, spelled: Bound) -> None:
    command = [sys.executable, "-m", "topicbinding", "cli", "open", spelled.name, "-n", NAMESPACE]
    with subprocess.Popen(
        [*command, "--no-browser", "--port", str(free_port())],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT / "operator")},
    ) as opened:
        try:
            assert opened.stdout is not None
            address = opened.stdout.readline().split()[0]
            assert address.endswith(f"/#/{NAMESPACE}/{spelled.name}/final_ui")
            with urllib.request.urlopen(address.split("#")[0], timeout=30) as answer:  # noqa: S310 - loopback
                assert b"TopicBinding" in answer.read()
        finally:
            opened.send_signal(signal.SIGINT)
            assert opened.wait(20) == 130
