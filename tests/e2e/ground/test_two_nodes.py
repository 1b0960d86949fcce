"""The cluster of two nodes, beside the first: pods on different nodes reach each other both ways."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import pods
from tests.support.cluster import CACHE, ROOT, Cluster

SERVE = """
import http.server
class Name(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"from the other node")
http.server.ThreadingHTTPServer(("", 8000), Name).serve_forever()
"""
ASK = """
import sys, urllib.request
print([urllib.request.urlopen(url, timeout=10).read().decode() for url in sys.argv[1:]])
"""


def local(command: str) -> None:
    subprocess.run([sys.executable, ROOT / "deploy/local", command], check=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def two_nodes(cluster: Cluster) -> Iterator[Cluster]:
    """Asks for the first cluster too: its images are what the pods run."""
    local("two-nodes")
    yield Cluster(kubeconfig=CACHE / "kubeconfig-two")
    local("two-nodes-down")


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
