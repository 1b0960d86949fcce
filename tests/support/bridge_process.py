"""The bridge as a process of its own, under its own restricted role, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster import ROOT, Cluster
from tests.support.kafka_broker import free_port
from tests.support.waiting import eventually

GATEWAY_ACCOUNT = "test-gateway"


def role(namespace: str, binding: str) -> str:
    """What the controller gives a bridge: this one binding, and Events."""
    rules = [
        {
            "apiGroups": ["topicbinding.dev"],
            "resources": ["topicbindings"],
            "resourceNames": [binding],
            "verbs": ["get", "watch", "patch"],
        },
        {
            "apiGroups": ["topicbinding.dev"],
            "resources": ["topicbindings/status"],
            "resourceNames": [binding],
            "verbs": ["get", "patch"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    name = f"tb-{binding}-bridge"
    meta = {"name": name, "namespace": namespace}
    documents = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]
    return yaml.safe_dump_all(documents)


@dataclass
class Bridge:
    """One bridge process. Its log is a file, kept for the failure message."""

    cluster: Cluster
    namespace: str
    binding: str
    kubeconfig: Path
    secrets: Path
    module: tuple[str, ...] = ("topicbinding", "bridge")
    port: int = field(default_factory=free_port)
    log: Path = field(default_factory=lambda: Path(tempfile.mkstemp(suffix=".bridge.log")[1]))
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Bridge:
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}",
            "KUBECONFIG": str(self.kubeconfig),
            "TB_NAMESPACE": self.namespace,
            "TB_BINDING": self.binding,
            "TB_LISTEN_HOST": "127.0.0.1",
            "TB_LISTEN_PORT": str(self.port),
            "TB_KAFKA_SECRET_DIR": str(self.secrets),
            "TB_CONTROL_KAFKA_SECRET_DIR": str(self.secrets),
            "TB_GATEWAY_SUBJECT": f"system:serviceaccount:{self.namespace}:{GATEWAY_ACCOUNT}",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.module], stdout=log, stderr=log, env=environment, cwd=ROOT
            )
        return self

    def kill(self) -> None:
        """At once, as when a node dies."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def stop(self) -> int:
        """As Kubernetes does it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def wait_until_dead(self, seconds: float = 30) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def get(self, path: str, token: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
            body = answer.read().decode()
        return json.loads(body) if path.startswith("/v1") else body

    def healthy(self) -> bool:
        try:
            return bool(self.get("/healthz") == "ok\n")
        except OSError:
            return False

    def memory_mib(self) -> float:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def lines(self) -> str:
        return self.log.read_text(errors="replace")


def restricted_kubeconfig(
    cluster: Cluster, namespace: str, account: str, path: Path, server: str | None
) -> Path:
    """A kubeconfig with the account's own token; `server` puts a proxy between."""
    known = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", account, "-n", namespace, "--duration=2h").stdout.strip()
    ours = known["clusters"][0]["cluster"]
    if server is not None:
        ours["server"] = server
    known["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(known))
    return path


@contextlib.contextmanager
def namespace_for(cluster: Cluster, name: str) -> Iterator[str]:
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=true")
    cluster.kubectl("create", "namespace", name)
    # Whatever a killed run leaves behind is swept by this label.
    cluster.kubectl("label", "namespace", name, "topicbinding.dev/test=true")
    eventually(
        lambda: cluster.kubectl("get", "serviceaccount", "default", "-n", name, check=False).returncode == 0,
        30,
        "the namespace's default account",
    )
    try:
        yield name
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
