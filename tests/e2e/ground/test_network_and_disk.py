"""From inside the cluster: names resolve, a Service reaches all its pods, a claim keeps what was written."""

from __future__ import annotations

import json

from tests.support import pods
from tests.support.cluster import Cluster

SERVE = """
import http.server, socket
class Name(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(f"i am {socket.gethostname()}".encode())
http.server.ThreadingHTTPServer(("", 8000), Name).serve_forever()
"""
# A Service is refused until the node's rules know its pods: asked again, with a deadline.
ASK = """
import json, socket, time, urllib.error, urllib.request
answers, deadline = [], time.monotonic() + 60
while len(answers) < 40:
    try:
        answers.append(urllib.request.urlopen("http://named:80", timeout=5).read().decode())
    except (urllib.error.URLError, TimeoutError):
        if time.monotonic() > deadline:
            raise
        time.sleep(0.5)
print(json.dumps({"address": socket.gethostbyname("named"), "answers": sorted(set(answers))}))
"""


def test_a_service_is_found_by_name_and_reaches_every_pod_behind_it(cluster: Cluster, namespace: str) -> None:
    image = cluster.images()["control"]
    probe = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
    spec = pods.pod_spec(image, ["python", "-c", SERVE], container={"readinessProbe": probe})
    labels = {"app": "named"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    wanted = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    pods.create(cluster, namespace, "Deployment", "named", spec=wanted)
    ports = [{"port": 80, "targetPort": 8000}]
    pods.create(cluster, namespace, "Service", "named", spec={"selector": labels, "ports": ports})
    cluster.kubectl("rollout", "status", "deployment/named", "-n", namespace, "--timeout=90s")

    printed = pods.run_to_end(cluster, namespace, pods.pod_spec(image, ["python", "-c", ASK]))

    service = cluster.kubectl_json("get", "service", "named", "-n", namespace, "-o", "json")
    behind = cluster.kubectl_json("get", "pods", "-n", namespace, "-l", "app=named", "-o", "json")["items"]
    expected = {
        "address": service["spec"]["clusterIP"],
        # The bodies, not the fact of an answer: a stranger outside the cluster might answer too.
        "answers": sorted(f"i am {pod['metadata']['name']}" for pod in behind),
    }
    assert json.loads(printed) == expected


def test_a_claim_keeps_what_one_pod_wrote_for_the_next(cluster: Cluster, namespace: str) -> None:
    image = cluster.images()["control"]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}
    pods.create(cluster, namespace, "PersistentVolumeClaim", "kept", spec=claim)
    volumes = [{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]
    mounts = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}

    def run(program: str) -> str:
        command = ["python", "-c", program]
        spec = pods.pod_spec(image, command, container=mounts, volumes=volumes)
        return pods.run_to_end(cluster, namespace, spec)

    run("open('/kept/note', 'w').write('still here')")

    assert run("print(open('/kept/note').read())") == "still here\n"


def test_the_restricted_profile_is_enforced(cluster: Cluster, namespace: str) -> None:
    answer = cluster.kubectl("run", "root", "--image=any", "-n", namespace, check=False)

    assert answer.returncode != 0
    assert 'violates PodSecurity "restricted' in answer.stderr
