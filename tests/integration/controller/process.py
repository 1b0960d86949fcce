"""A controller as a process of its own, in a namespace of its own, with the chart's permissions and no more.

Used by the integration tests and the benchmark. It talks to the real API server with the token of the chart's
ServiceAccount, not as admin; driver pods get a scheduler that does not exist and are played by the crowd.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.cluster import ROOT, Cluster
from tests.support.waiting import eventually

NOBODY = "topicbinding-stand-in"


@dataclass
class ControllerProcess:
    process: subprocess.Popen[bytes]
    log: Path
    port: int

    @property
    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def kill(self) -> None:
        """No time to say goodbye."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def make_namespace(cluster: Cluster, namespace: str) -> None:
    """An empty namespace with the restricted profile enforced, and in it the chart's roles for its
    controller."""
    remove_namespace(cluster, namespace)
    cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted",
    )  # fmt: skip
    # Only roles are taken from it. An installed controller and this one stay apart by the bindings' class.
    chart = str(ROOT / "deploy" / "helm" / "topicbinding")
    rendered = subprocess.run(
        [
            "helm", "template", "topicbinding", chart, "--namespace", namespace,
            "--set", f"watchNamespaces={{{namespace}}}", "--show-only", "templates/controller-rbac.yaml",
            "--show-only", "templates/driver-rbac.yaml",
        ],
        capture_output=True, text=True, check=True, env=cluster.environment,
    ).stdout  # fmt: skip
    cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--field-manager=topicbinding-install", "-f", "-",
        stdin=rendered,
    )  # fmt: skip


def remove_namespace(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=true", seconds=300)


def kubeconfig_of_account(cluster: Cluster, namespace: str, directory: Path) -> Path:
    """The cluster's address with the controller's own token instead of the admin's certificate."""
    token = cluster.kubectl(
        "-n", namespace, "create", "token", "topicbinding-controller", "--duration=2h"
    ).stdout
    said = yaml.safe_load(cluster.kubeconfig.read_text())
    said["users"] = [{"name": "controller", "user": {"token": token.strip()}}]
    for context in said["contexts"]:
        context["context"]["user"] = "controller"
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(said))
    return path


@contextmanager
def controller(cluster: Cluster, namespace: str, **settings: str) -> Iterator[ControllerProcess]:
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        log = where / "controller.log"
        environment = os.environ | {
            "KUBECONFIG": str(kubeconfig_of_account(cluster, namespace, where)),
            "PYTHONPATH": str(ROOT / "operator"),
            "TB_WATCH_NAMESPACES": namespace,
            "TB_SYSTEM_NAMESPACE": namespace,
            "TB_DRIVER_SCHEDULER": NOBODY,
            "TB_CONTROLLER_CLASS": NOBODY,
            "TB_PORT": "0",
            **{f"TB_{name.upper()}": value for name, value in settings.items()},
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "topicbinding", "controller"],
                env=environment, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        running = ControllerProcess(process, log, 0)
        try:
            running.port = eventually(lambda: _port(running), 30, "the controller to start")
            yield running
        except BaseException:
            print(log.read_text()[-8000:])
            raise
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _port(running: ControllerProcess) -> int | None:
    text = running.log.read_text()
    assert running.process.poll() is None, f"the controller ended:\n{text}"
    found = [line for line in text.splitlines() if "/metrics on port" in line]
    return int(found[0].rsplit(" ", 1)[1]) if found else None
