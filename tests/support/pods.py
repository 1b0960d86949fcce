"""Running something once in a pod of the local cluster and reading what it printed."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "fsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pod_spec(image: str, command: list[str], **more: Any) -> dict[str, Any]:
    """A pod of one container that the restricted profile admits; `container=` is more for the container."""
    container = {
        "name": "main",
        "image": image,
        "command": command,
        "securityContext": CONTAINER_SECURITY,
        **more.pop("container", {}),
    }
    return {
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": POD_SECURITY,
        "containers": [container],
        **more,
    }


def create(cluster: Cluster, namespace: str, kind: str, name: str, **body: Any) -> None:
    """Apply one object given as data."""
    version = {"Deployment": "apps/v1", "Role": "rbac.authorization.k8s.io/v1"}.get(kind, "v1")
    if kind == "RoleBinding":
        version = "rbac.authorization.k8s.io/v1"
    metadata = {"name": name, "namespace": namespace, **body.pop("metadata", {})}
    whole = {"apiVersion": version, "kind": kind, "metadata": metadata, **body}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(whole))


def evidence(cluster: Cluster, namespace: str, pod: str) -> str:
    """What a failed pod can tell."""
    described = cluster.kubectl("describe", "pod", pod, "-n", namespace, check=False).stdout
    logs = cluster.kubectl("logs", pod, "-n", namespace, "--tail=200", check=False).stdout
    return f"{described}\n--- log\n{logs}"


def run_to_end(cluster: Cluster, namespace: str, spec: dict[str, Any], *, seconds: float = 120) -> str:
    """Run a pod to its end; its log if it succeeded, else a failure with its description and log."""
    name = f"run-{uuid.uuid4().hex[:8]}"
    create(cluster, namespace, "Pod", name, spec={"restartPolicy": "Never", **spec})

    def phase() -> str | None:
        path = "jsonpath={.status.phase}"
        seen = cluster.kubectl("get", "pod", name, "-n", namespace, "-o", path).stdout
        return seen if seen in ("Succeeded", "Failed") else None

    try:
        end = eventually(phase, seconds, f"pod {name} to end", every=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{evidence(cluster, namespace, name)}") from None
    if end != "Succeeded":
        raise AssertionError(f"pod {name} failed\n{evidence(cluster, namespace, name)}")
    log = cluster.kubectl("logs", name, "-n", namespace).stdout
    cluster.kubectl("delete", "pod", name, "-n", namespace, "--wait=false")
    return log
