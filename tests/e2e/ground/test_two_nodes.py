"""The cluster of two nodes, beside the first: traffic between nodes, and three brokers of which one dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import pods
from tests.support.cluster import CACHE, ROOT, Cluster
from tests.support.waiting import eventually

SERVE = """
import http.server
class Name(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"from the other node")
http.server.ThreadingHTTPServer(("", 8000), Name).serve_forever()
"""
# A Service is refused until the node's rules know its pods: asked again, with a deadline.
ASK = """
import sys, time, urllib.error, urllib.request
deadline = time.monotonic() + 60
def ask(url):
    while True:
        try:
            return urllib.request.urlopen(url, timeout=10).read().decode()
        except (urllib.error.URLError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
print([ask(url) for url in sys.argv[1:]])
"""


def local(*command: str, **environment: str) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "deploy/local"), *command],
        check=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def two_nodes(cluster: Cluster) -> Iterator[Cluster]:
    """Asks for the first cluster too: its images are what the pods run."""
    local("two-nodes")
    yield Cluster(kubeconfig=CACHE / "kubeconfig-two")
    local("two-nodes-down")


# Produces until it is told that the leader's pod is gone and another broker leads, and a while longer.
PRODUCE = """
import sys, time
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
where = {"bootstrap.servers": "kafka.kafka.svc:9092"}
admin, lost, sent = AdminClient(where), [], 0
producer = Producer(where | {"acks": "all", "enable.idempotence": True})
def leader():
    return admin.list_topics("users-v1", timeout=20).topics["users-v1"].partitions[0].leader
first = leader()
print("LEADER", first, flush=True)
deadline = time.monotonic() + 90
while leader() == first and time.monotonic() < deadline or sent < 200:
    producer.produce("users-v1", b"{}", on_delivery=lambda error, _: error and lost.append(error.str()))
    sent += 1
    producer.poll(0.05)
assert producer.flush(60) == 0
print("MOVED", leader() != first, "LOST", lost, flush=True)
"""


def test_pods_on_different_nodes_reach_each_other(two_nodes: Cluster) -> None:
    image = two_nodes.images()["control"]
    nodes = two_nodes.kubectl_json("get", "nodes", "-o", "json")["items"]
    names = [node["metadata"]["name"] for node in nodes]
    assert len(names) == 2
    for number, (here, there) in enumerate([names, names[::-1]]):
        server = f"server-{number}"
        probe = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
        spec = pods.pod_spec(
            image, ["python", "-c", SERVE], container={"readinessProbe": probe}, nodeName=there
        )
        labels = {"app": server}
        pods.create(two_nodes, "default", "Pod", server, metadata={"labels": labels}, spec=spec)
        ports = [{"port": 80, "targetPort": 8000}]
        pods.create(two_nodes, "default", "Service", server, spec={"selector": labels, "ports": ports})
        two_nodes.kubectl("wait", "--for=condition=Ready", f"pod/{server}", "--timeout=120s", seconds=130)
        address = json.loads(two_nodes.kubectl("get", "pod", server, "-o", "json").stdout)["status"]["podIP"]

        asked = ["python", "-c", ASK, f"http://{address}:8000", f"http://{server}.default.svc"]
        printed = pods.run_to_end(two_nodes, "default", pods.pod_spec(image, asked, nodeName=here))

        assert printed == "['from the other node', 'from the other node']\n"


def test_three_brokers_survive_the_loss_of_a_leader(two_nodes: Cluster) -> None:
    local("kafka", "--two-nodes", KAFKA_REPLICAS="3")
    spec = pods.pod_spec(two_nodes.images()["control"], ["python", "-c", PRODUCE])
    pods.create(two_nodes, "default", "Pod", "producer", spec={"restartPolicy": "Never", **spec})

    def printed(word: str) -> str | None:
        log = two_nodes.kubectl("logs", "producer", check=False).stdout
        return next((line for line in log.splitlines() if line.startswith(word)), None)

    leader = eventually(lambda: printed("LEADER"), 60, "the producer to begin").split()[1]
    two_nodes.kubectl("delete", "pod", f"kafka-{leader}", "-n", "kafka", "--force", "--grace-period=0")
    end = eventually(lambda: printed("MOVED"), 150, "the producer to end")

    assert end == "MOVED True LOST []"
    two_nodes.kubectl("rollout", "status", "statefulset/kafka", "-n", "kafka", "--timeout=120s", seconds=130)
