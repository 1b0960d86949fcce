"""A Spark batch job in the spark image under the restricted profile: alone, and with executor pods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.ground.conftest import Broker
from tests.support import pods
from tests.support.cluster import Cluster

ROWS = 5000
PROGRAM = Path(__file__).with_name("count_topic.py")
RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "configmaps", "services", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"],
    }
]


def prepare(cluster: Cluster, namespace: str) -> None:
    """The job's program, the executors' template, and leave to start executors."""
    executor = {"spec": pods.pod_spec("", [])}
    executor["spec"]["containers"] = [
        {"name": "executor", "securityContext": pods.CONTAINER_SECURITY, "resources": {}}
    ]
    template = {"apiVersion": "v1", "kind": "Pod", **executor}
    files = {"count_topic.py": PROGRAM.read_text(), "executor.json": json.dumps(template)}
    pods.create(cluster, namespace, "ConfigMap", "job", data=files)
    pods.create(cluster, namespace, "ServiceAccount", "spark")
    pods.create(cluster, namespace, "Role", "spark", rules=RULES)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "spark"}
    subjects = [{"kind": "ServiceAccount", "name": "spark", "namespace": namespace}]
    pods.create(cluster, namespace, "RoleBinding", "spark", roleRef=role, subjects=subjects)


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize("executors", [0, 2])
def test_a_batch_job_counts_a_topic(
    cluster: Cluster, namespace: str, broker: Broker, topic: Callable[[int], str], executors: int
) -> None:
    prepare(cluster, namespace)
    image = cluster.images()["spark"]
    name = topic(4)
    producer = Producer(broker.outside)
    for number in range(ROWS):
        producer.produce(name, f"row {number}".encode(), partition=number % 4)
    assert producer.flush(30) == 0
    environment = [
        {"name": "IMAGE", "value": image},
        field("NAMESPACE", "metadata.namespace"),
        field("POD_NAME", "metadata.name"),
        field("POD_IP", "status.podIP"),
    ]
    spec = pods.pod_spec(
        image,
        ["python", "/job/count_topic.py", name, str(executors)],
        container={"env": environment, "volumeMounts": [{"name": "job", "mountPath": "/job"}]},
        volumes=[{"name": "job", "configMap": {"name": "job"}}],
        serviceAccountName="spark",
    )

    log = pods.run_to_end(cluster, namespace, spec, seconds=300)

    result = json.loads(next(line for line in log.splitlines() if line.startswith("RESULT "))[7:])
    assert result["rows"] == ROWS
    if executors:
        assert len(result["places"]) == executors
        assert all("exec" in place for place in result["places"])
    else:
        assert len(result["places"]) == 1
