"""The kind cluster: creating, checking, bringing back, deleting. Only ever ours, by its name."""

import json
import os
import re
from datetime import datetime
from functools import partial
from pathlib import Path

from localcluster import versions
from localcluster.report import Trouble, say, step
from localcluster.settings import REPOSITORY, Settings
from localcluster.shell import run, wait_until

ONE_NODE = REPOSITORY / "kind-config.yaml"
TWO_NODES = REPOSITORY / "kind-config.two-nodes.yaml"
SYSTEM_NAMESPACES = ("kube-system", "local-path-storage")
# On namespaces that tests make: what a killed run left is swept when the cluster is brought back.
TEST_LABEL = "topicbinding.dev/test"


def tool_env(settings: Settings) -> dict[str, str]:
    """Our tools first, our kubeconfig always."""
    return {
        "PATH": f"{settings.bin}{os.pathsep}{os.environ.get('PATH', '')}",
        "KUBECONFIG": str(settings.kubeconfig),
    }


def kubectl(
    settings: Settings,
    *words: str | Path,
    stdin: str | None = None,
    check: bool = True,
    timeout: float | None = 120,
) -> str:
    """One kubectl call against our cluster; its output."""
    context = f"kind-{settings.cluster}"
    command: list[str | Path] = [
        _path(settings, "kubectl"),
        "--kubeconfig",
        settings.kubeconfig,
        "--context",
        context,
        *words,
    ]
    return run(command, stdin=stdin, check=check, timeout=timeout).stdout


def _path(settings: Settings, tool: str) -> str:
    made = settings.bin / tool
    return str(made) if made.exists() else tool


def _kind(settings: Settings, *words: str | Path, timeout: float | None = None) -> str:
    return run([_path(settings, "kind"), *words], env=tool_env(settings), timeout=timeout).stdout


def rendered_config(text: str, ports: dict[int, int]) -> str:
    """The committed file with other host ports, chosen by NodePort. Pure."""

    def mapped(match: re.Match[str]) -> str:
        return f"{match[1]}{ports.get(int(match[2]), int(match[4]))}"

    return re.sub(r"((?:containerPort: (\d+), hostPort: ))()(\d+)", mapped, text)


def nodes(settings: Settings) -> dict[str, bool]:
    """Our node containers -> running?"""
    rows = run(
        [
            "docker",
            "container",
            "ls",
            "-a",
            "--filter",
            f"label=io.x-k8s.kind.cluster={settings.cluster}",
            "--format",
            "{{.Names}} {{.State}}",
        ]
    ).stdout
    return {node: state == "running" for node, state in (line.split() for line in rows.splitlines())}


def ready(settings: Settings) -> bool:
    """Whether every node is there and says so itself."""
    if not settings.kubeconfig.exists():
        return False
    text = kubectl(settings, "get", "nodes", "-o", "json", "--request-timeout=5s", check=False, timeout=10)
    return bool(text) and all_nodes_ready(text)


def all_nodes_ready(listing: str) -> bool:
    """Reads `kubectl get nodes -o json`. Pure."""
    items = json.loads(listing)["items"]
    return bool(items) and all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        for node in items
    )


def pods_started_since(listing: str, since: datetime) -> bool:
    """Reads `kubectl get pods -o json`: what should run was started after `since` and is ready.

    Right after a restart the API server still tells what was true before it; start times cannot lie. Pure.
    """
    for pod in json.loads(listing)["items"]:
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            continue
        statuses = pod["status"].get("containerStatuses", [])
        if not statuses:
            return False
        for status in statuses:
            started = status.get("state", {}).get("running", {}).get("startedAt")
            if not status["ready"] or not started or datetime.fromisoformat(started) < since:
                return False
    return True


def create(settings: Settings, *, image: str | None) -> None:
    """A new cluster from the committed file; `image` None lets kind pull its own."""
    with step("cluster", f"create kind cluster {settings.cluster}"):
        rendered = settings.cache / f"kind-{settings.cluster}.yaml"
        config = TWO_NODES if settings.two_nodes else ONE_NODE
        rendered.write_text(rendered_config(config.read_text(), settings.host_ports()))
        chosen = ["--image", image] if image else []
        _kind(
            settings,
            "create",
            "cluster",
            "--name",
            settings.cluster,
            "--config",
            rendered,
            "--kubeconfig",
            settings.kubeconfig,
            "--wait",
            "180s",
            *chosen,
        )
    _finish(settings, image)


def _finish(settings: Settings, image: str | None) -> None:
    """What every start needs, the first and those after a stop: routes between nodes, system pods ready."""
    with step("cluster", "wait for its pods"):
        wait_until("all nodes are ready", lambda: ready(settings), seconds=180)
        if image == versions.MADE_NODE_IMAGE:
            _route_between_nodes(settings)
        for namespace in SYSTEM_NAMESPACES:
            kubectl(
                settings,
                "wait",
                "--for=condition=Ready",
                "pods",
                "--all",
                "-n",
                namespace,
                "--timeout=180s",
                timeout=200,
            )


def _route_between_nodes(settings: Settings) -> None:
    """The made node has no kindnetd: nodes learn each other's pod addresses from us."""
    listing = json.loads(kubectl(settings, "get", "nodes", "-o", "json"))["items"]
    if len(listing) < 2:
        return
    places = {
        node["metadata"]["name"]: (
            node["spec"]["podCIDR"],
            next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"),
        )
        for node in listing
    }
    for name in places:
        for other, (pods, address) in places.items():
            if other != name:
                run(["docker", "exec", name, "ip", "route", "replace", pods, "via", address])


def node_image(settings: Settings) -> str:
    """The image our control plane was made from."""
    return run(
        ["docker", "container", "inspect", "-f", "{{.Config.Image}}", settings.control_plane]
    ).stdout.strip()


def recover(settings: Settings) -> bool:
    """Bring back a cluster whose containers exist. True when it stands; False when it is beyond help."""
    try:
        stopped = [name for name, running in nodes(settings).items() if not running]
        if stopped:
            with step("cluster", "start " + ", ".join(stopped)):
                run(["docker", "start", *stopped])
        since = max(map(_started, nodes(settings)))
        _kind(
            settings,
            "export",
            "kubeconfig",
            "--name",
            settings.cluster,
            "--kubeconfig",
            settings.kubeconfig,
            timeout=60,
        )
        with step("cluster", "wait for it to come back"):
            came_back = partial(_came_back, settings, since)
            wait_until("the cluster's pods run again", came_back, seconds=180, every=1)
        _finish(settings, node_image(settings))
        kubectl(settings, "delete", "namespaces", "-l", f"{TEST_LABEL}=true", "--wait=false")
    except Trouble as trouble:
        say(f"[cluster] could not be brought back: {trouble.what}")
        return False
    return True


def _started(node: str) -> datetime:
    """When the node's container was started last."""
    text = run(["docker", "container", "inspect", "-f", "{{.State.StartedAt}}", node]).stdout.strip()
    return datetime.fromisoformat(text[:19] + "+00:00")


def _came_back(settings: Settings, since: datetime) -> bool:
    for namespace in SYSTEM_NAMESPACES:
        words = ("get", "pods", "-n", namespace, "-o", "json", "--request-timeout=5s")
        text = kubectl(settings, *words, check=False, timeout=10)
        if not text or not pods_started_since(text, since):
            return False
    return True


def trust_registry(settings: Settings) -> None:
    """Tell every node where `localhost:<port>` images really are."""
    directory = f"/etc/containerd/certs.d/{settings.registry}"
    hosts = f'[host."http://{settings.registry_container}:5000"]\n'
    for name in nodes(settings):
        if run(["docker", "exec", name, "cat", f"{directory}/hosts.toml"], check=False).stdout != hosts:
            run(["docker", "exec", name, "mkdir", "-p", directory])
            run(["docker", "exec", "-i", name, "tee", f"{directory}/hosts.toml"], stdin=hosts)


def delete(settings: Settings) -> None:
    """Remove the cluster with its volumes and its kubeconfig, if it is there."""
    if nodes(settings):
        with step("cluster", f"delete kind cluster {settings.cluster}"):
            place = ("--name", settings.cluster, "--kubeconfig", settings.kubeconfig)
            _kind(settings, "delete", "cluster", *place, timeout=120)
    settings.kubeconfig.unlink(missing_ok=True)


def remove_network() -> None:
    """kind leaves its network; it goes when no container is on it."""
    users = run(["docker", "network", "inspect", "kind", "-f", "{{len .Containers}}"], check=False)
    if users.returncode == 0 and users.stdout.strip() == "0":
        run(["docker", "network", "rm", "kind"], check=False)
