"""Driver pods in the cluster, as the job's tests see them: a binding, its generations, and the tables they
serve."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

IN_CLUSTER = "kafka.kafka.svc:9092"
SLOW = 420.0
"""A cold driver on a machine that is busy with everybody's tests."""


class Bindings:
    """One namespace with bindings."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def apply(self, name: str, spec: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": "topicbinding.dev/v1alpha1",
            "kind": "TopicBinding",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {**spec, "spark": {**spec["spark"], "image": self._cluster.images()["spark"]}},
        }
        self._cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        answer = self._cluster.kubectl(
            "-n", self.namespace, "get", kind, name, "-o", "json", "--ignore-not-found"
        )
        found: dict[str, Any] = json.loads(answer.stdout) if answer.stdout.strip() else {}
        return found

    def names(self, kind: str, selector: str) -> list[str]:
        answer = self._cluster.kubectl("-n", self.namespace, "get", kind, "-l", selector, "-o", "name")
        return [line.split("/", 1)[1] for line in answer.stdout.split()]

    def delete_pod(self, name: str) -> None:
        self._cluster.kubectl("-n", self.namespace, "delete", "pod", name, "--grace-period=0", "--force")

    def wait_active(self, name: str, number: int, seconds: float = SLOW) -> None:
        try:
            eventually(
                lambda: self.get("topicbinding", name).get("status", {}).get("activeGeneration") == number,
                seconds,
                f"generation {number} of {name} to be served",
                every=1,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def wait_caught_up(self, generation: str, but_not_pod: str = "", seconds: float = SLOW) -> dict[str, Any]:
        def probe() -> dict[str, Any] | None:
            status = self.get("generation", generation).get("status", {})
            fits = status.get("phase") == "CaughtUp" and status.get("podUid") != but_not_pod
            return status if fits else None

        try:
            return eventually(probe, seconds, f"{generation} to catch up", every=1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    @contextmanager
    def tables(self, pod: str) -> Iterator[Tables]:
        """The tables of a driver pod, read with the gateway's own right to do so."""
        token = self._cluster.kubectl(
            "-n", "topicbinding-system", "create", "token", "topicbinding-gateway",
            "--audience", "topicbinding-driver",
        ).stdout.strip()  # fmt: skip
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        forward = subprocess.Popen(
            ["kubectl", "-n", self.namespace, "port-forward", f"pod/{pod}", f"{port}:8600"],
            env=self._cluster.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            found = Tables(port, token)
            eventually(found.answers, 60, f"{pod} to answer")
            yield found
        finally:
            forward.terminate()
            forward.wait(10)

    def story(self) -> str:
        """What is needed to understand a failure."""
        parts = [
            self._cluster.kubectl("-n", self.namespace, *words, check=False).stdout[-6000:]
            for words in (
                ("get", "topicbinding,generation,pod,pvc", "-o", "wide"),
                ("get", "events", "--sort-by=.lastTimestamp"),
                ("get", "generation", "-o", "yaml"),
                ("logs", "-l", "topicbinding.dev/component=driver", "--tail=40", "--prefix"),
            )
        ]
        return "\n---\n".join(parts)


class Tables:
    """The HTTP API of one driver."""

    def __init__(self, port: int, token: str) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._token = token

    def answers(self) -> bool:
        try:
            return self._get("/healthz") == b"ok\n"
        except OSError:
            return False

    def table(self, name: str) -> list[dict[str, Any]]:
        body = self._get(f"/v1/tables/{name}?format=arrow&limit=1000000")
        rows: list[dict[str, Any]] = pa.ipc.open_stream(body).read_all().to_pylist()
        return rows

    def _get(self, path: str) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - the port-forward on loopback
            self._base + path, headers={"Authorization": f"Bearer {self._token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body
