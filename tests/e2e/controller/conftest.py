"""The installed chart in the cluster, stand-in drivers as real pods, one namespace with the restricted
profile."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from localcluster import engine
from tests.support.cluster import ROOT, Cluster
from tests.support.waiting import eventually

NAMESPACE = "e2e-controller"


def standin_image(cluster: Cluster) -> str:
    """The control image with the stand-in's program instead, made once for each pair of sources."""
    directory = ROOT / "tests" / "standin"
    control = cluster.images()["control"]
    digest = hashlib.sha256(control.encode())
    for path in sorted(directory.glob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    registry = control.rsplit("/", 1)[0]
    image = f"{registry}/standin:{digest.hexdigest()[:16]}"
    docker = engine.require_docker_cli()
    for command in (
        [docker, "build", "-q", "--build-arg", f"CONTROL={control}", "-t", image, str(directory)],
        [docker, "push", "-q", image],
    ):
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=cluster.environment | {"DOCKER_BUILDKIT": "1"},
        )
        assert answer.returncode == 0, f"{' '.join(command)}\n{answer.stdout}{answer.stderr}"
    return image


@dataclass
class Bindings:
    """kubectl, in words."""

    cluster: Cluster
    image: str

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *arguments, check=check, stdin=stdin).stdout

    def apply(self, name: str, **spec: Any) -> None:
        said: dict[str, Any] = {
            "usersTopic": "users-1",
            "accountsTopic": "accounts-1",
            "kafka": {"bootstrapServers": "kafka.kafka.svc:9092"},
            "linger": {"seconds": 8},
            "spark": {"image": self.image, "cores": 1, "memory": "128Mi"},
        }
        manifest = {
            "apiVersion": "topicbinding.dev/v1alpha1",
            "kind": "TopicBinding",
            "metadata": {"name": name},
            "spec": said | spec,
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.get("tb", name).get("status", {})
        return status

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        said = self.status(name).get("conditions", [])
        return next((each for each in said if each["type"] == kind), {})

    def names(self, kinds: str, binding: str) -> list[str]:
        text = self.kubectl("get", kinds, "-l", f"topicbinding.dev/binding={binding}", "-o", "name")
        return sorted(line.rsplit("/", 1)[-1] for line in text.split())

    def serves(self, name: str, number: int, seconds: float = 120) -> None:
        def probe() -> bool:
            return self.status(name).get("activeGeneration") == number

        eventually(probe, seconds, f"{name} to serve generation {number}", every=0.5)

    def evidence(self) -> str:
        parts = [
            ("get", "tb,gen,pods,svc", "-o", "wide"),
            ("get", "events", "--sort-by=.lastTimestamp"),
            ("describe", "tb"),
        ]
        told = [self.kubectl(*part, check=False) for part in parts]
        log = self.cluster.kubectl(
            "-n", "topicbinding-system", "logs", "deploy/topicbinding-controller", "--tail=100", check=False
        )
        return "\n---\n".join([*told, log.stdout])


@pytest.fixture(scope="session")
def bindings(cluster: Cluster) -> Iterator[Bindings]:
    image = standin_image(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true", seconds=180)
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    yield Bindings(cluster, image)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(autouse=True)
def clean_up_with_evidence(request: pytest.FixtureRequest, bindings: Bindings) -> Iterator[None]:
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before:
        print(bindings.evidence())
    # A small node has room for a few drivers only.
    bindings.kubectl("delete", "tb", "--all", "--wait=false")
