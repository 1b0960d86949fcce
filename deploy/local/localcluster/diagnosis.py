"""Looking at what is there: the short status, and the folder of evidence after a failure."""

import json
from pathlib import Path

from localcluster import cluster, facts, images, registry
from localcluster.making import remove
from localcluster.report import Trouble, say, step
from localcluster.settings import Settings
from localcluster.shell import run

LOG_LINES = 2000
KINDS = "all,pvc,configmaps,topicbindings,generations"


def status(settings: Settings) -> None:
    """A few lines for people; trouble when the cluster cannot be used."""
    if not facts.engine_answers():
        raise Trouble("no Docker engine answers", "run `make up`")
    owner = "started by us" if facts.our_dockerd(settings) else "the machine's own"
    say(f"engine    {owner}")
    nodes = cluster.nodes(settings)
    state = "ready" if nodes and cluster.ready(settings) else "not ready"
    say(f"cluster   {settings.cluster}: {len(nodes)} node(s), {state}")
    say(f"kubectl   context kind-{settings.cluster} in {settings.kubeconfig}")
    say(f"registry  {settings.registry}: {'answers' if registry.answers(settings) else 'does not answer'}")
    say(f"kafka     127.0.0.1:{settings.kafka_port} PLAINTEXT, localhost:{settings.kafka_sasl_port} SASL_SSL")
    known = settings.cache / "images.json"
    now = images.current(settings)
    for name, reference in (json.loads(known.read_text()) if known.exists() else {}).items():
        say(f"image     {reference}{'' if now.get(name) == reference else '  (the code has changed since)'}")
    if state != "ready":
        raise Trouble(f"the cluster {settings.cluster} is not ready", "run `make up`")


def collect(settings: Settings, folder: str) -> None:
    """Whatever is needed to understand a failure without the machine. No part can stop the others."""
    target = Path(folder)
    with step("collect", f"events, descriptions and logs into {target}"):
        for namespace in _names(settings, "namespaces"):
            place = target / namespace
            place.mkdir(parents=True, exist_ok=True)
            words = ("-n", namespace)
            _keep(
                place / "objects.txt",
                settings,
                "get",
                KINDS,
                "-o",
                "wide",
                *words,
            )
            _keep(place / "events.txt", settings, "get", "events", "--sort-by=.lastTimestamp", *words)
            _keep(place / "pods.txt", settings, "describe", "pods", *words)
            for pod in _names(settings, "pods", *words):
                logs = ("logs", pod, "--all-containers", "--timestamps", f"--tail={LOG_LINES}", *words)
                _keep(place / f"{pod}.log", settings, *logs)
                if _restarted(settings, pod, namespace):
                    _keep(place / f"{pod}.previous.log", settings, *logs, "--previous")
        target.mkdir(parents=True, exist_ok=True)
        _keep(target / "topicbindings.yaml", settings, "get", "topicbindings,generations", "-A", "-o", "yaml")
        _keep(target / "nodes.txt", settings, "describe", "nodes")
        (target / "containers.txt").write_text(run(["docker", "ps", "-a"], check=False, timeout=20).stdout)


def _keep(path: Path, settings: Settings, *words: str) -> None:
    try:
        path.write_text(cluster.kubectl(settings, *words, check=False, timeout=30))
    except Trouble as trouble:
        path.write_text(f"{trouble}\n")


def _names(settings: Settings, *words: str) -> list[str]:
    text = cluster.kubectl(
        settings, "get", *words, "-o", "name", "--request-timeout=10s", check=False, timeout=20
    )
    return [line.split("/", 1)[1] for line in text.split()]


def _restarted(settings: Settings, pod: str, namespace: str) -> bool:
    path = "jsonpath={.status.containerStatuses[*].restartCount}"
    counts = cluster.kubectl(
        settings, "get", "pod", pod, "-n", namespace, "-o", path, check=False, timeout=20
    )
    return any(count != "0" for count in counts.split())


def empty_cache(settings: Settings) -> None:
    """Remove all below the cache but the lock that we hold."""
    for path in settings.cache.iterdir():
        if path.name != "lock":
            remove(path)
