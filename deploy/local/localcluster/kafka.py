"""The development Kafka: certificates and a user made on the spot, brokers, host ports, sample topics."""

import base64
import json
import secrets
import socket
import struct
from string import Template

from localcluster.cluster import kubectl
from localcluster.images import Image, inputs_digest
from localcluster.report import Trouble, say, step
from localcluster.settings import REPOSITORY, Settings
from localcluster.shell import run, wait_until

MANIFESTS = REPOSITORY / "deploy" / "kafka" / "manifests"
USERNAME = "topicbinding"
# What decides whether the topics job must run again.
TOPICS = Image("", None, ("deploy/kafka/manifests/topics.yaml", "operator/topicbinding/demo/topics.py"))


def rendered(name: str, **values: object) -> str:
    """One manifest with its `${...}` filled in; a forgotten one is an error, not an empty string."""
    return Template((MANIFESTS / name).read_text()).substitute(
        {key: str(value) for key, value in values.items()}
    )


def broker_manifests(settings: Settings, image: str) -> str:
    """Everything of the broker, as it should be. Pure but for reading the files."""
    parts = [
        rendered(
            "broker.yaml",
            IMAGE=image,
            REPLICAS=settings.kafka_replicas,
            HOST_PORT=settings.kafka_port,
            HOST_SASL_PORT=settings.kafka_sasl_port,
        )
    ]
    for broker in range(settings.kafka_replicas):
        ports = {"NODE_PORT": 30092 + 100 * broker, "NODE_SASL_PORT": 30093 + 100 * broker}
        parts.append(rendered("host-ports.yaml", BROKER=broker, **ports))
    return "---\n".join(parts)


def apply(settings: Settings, image: str) -> None:
    """The brokers, as they should be; they come up while other things are done."""
    kubectl(settings, "apply", "-f", MANIFESTS / "namespace.yaml")
    _make_secrets(settings, image)
    _forget_other_size(settings)
    kubectl(settings, "apply", "-f", "-", stdin=broker_manifests(settings, image))


def wait(settings: Settings) -> None:
    """Until every broker answers."""
    state = kubectl(settings, "rollout", "status", "statefulset/kafka", "-n", "kafka", "--watch=false")
    if "complete" in state and answers(settings):
        return
    with step("kafka", f"wait for {settings.kafka_replicas} broker(s)"):
        words = ("rollout", "status", "statefulset/kafka", "-n", "kafka", "--timeout=180s")
        kubectl(settings, *words, timeout=200)
        look = "look at `kubectl logs -n kafka kafka-0`"
        wait_until("Kafka answers", lambda: answers(settings), seconds=120, every=1, do=look)


def answers(settings: Settings) -> bool:
    """Whether every broker answers on this machine's ports; true where none are mapped.

    Right after a restart the API server still tells what was true before it, and the mapped port accepts
    connections for a broker that is not there: only an answer of the broker itself counts.
    """
    if settings.two_nodes:
        return True
    return all(_api_versions(settings.kafka_port + 100 * n) for n in range(settings.kafka_replicas))


def _api_versions(port: int) -> bool:
    """Kafka's first question, the one without a client library: which versions do you speak?"""
    question = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=3) as connection:
            connection.sendall(struct.pack(">i", len(question)) + question)
            answer = connection.recv(8)
    except OSError:
        return False
    return len(answer) == 8 and struct.unpack(">ii", answer)[1] == 7


def create_topics(settings: Settings, image: str) -> None:
    """The sample topics, by a job that runs again only when their list or the brokers changed."""
    name = f"kafka-topics-{inputs_digest(REPOSITORY, TOPICS)}-{settings.kafka_replicas}"
    state = kubectl(
        settings, "get", "job", name, "-n", "kafka", "-o", "jsonpath={.status.succeeded}", check=False
    )
    if state == "1":
        return
    with step("kafka", "create the sample topics"):
        kubectl(settings, "delete", "jobs", "-l", "app=kafka-topics", "-n", "kafka", "--ignore-not-found")
        manifest = rendered("topics.yaml", NAME=name, IMAGE=image, REPLICAS=settings.kafka_replicas)
        kubectl(settings, "apply", "-f", "-", stdin=manifest)
        kubectl(
            settings,
            "wait",
            "--for=condition=Complete",
            f"job/{name}",
            "-n",
            "kafka",
            "--timeout=120s",
            timeout=140,
        )


def _make_secrets(settings: Settings, image: str) -> None:
    """Certificates and the SCRAM user, once per cluster. They exist nowhere but in the cluster."""
    have = set(kubectl(settings, "get", "secrets", "-n", "kafka", "-o", "name").split())
    if {"secret/kafka-ca", "secret/kafka-tls", "secret/kafka-scram"} <= have:
        return
    with step("kafka", "make certificates and a SCRAM user"):
        script = "/opt/kafka/make-certificates.sh"
        printed = run(
            ["docker", "run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", image, script]
        ).stdout
        authority, dashes, server = printed.partition("----\n-----BEGIN PRIVATE")
        if not dashes or "BEGIN CERTIFICATE" not in authority:
            raise Trouble(
                "the broker's image made no certificates",
                f"run `docker run --rm --entrypoint sh {image} {script}`",
            )
        wanted = {
            "kafka-ca": {"ca.crt": authority},
            "kafka-tls": {"server.pem": "-----BEGIN PRIVATE" + server},
            "kafka-scram": {"username": USERNAME, "password": secrets.token_urlsafe(24)},
        }
        for name, data in wanted.items():
            kubectl(settings, "apply", "-f", "-", stdin=_secret(name, data))


def _secret(name: str, data: dict[str, str]) -> str:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "kafka"},
            "data": encoded,
        }
    )


def _forget_other_size(settings: Settings) -> None:
    """Voters are fixed when a disk is formatted: another number of brokers starts with empty disks."""
    now = kubectl(
        settings, "get", "statefulset", "kafka", "-n", "kafka", "-o", "jsonpath={.spec.replicas}", check=False
    )
    if now and now != str(settings.kafka_replicas):
        say(f"[kafka] {now} -> {settings.kafka_replicas} brokers: the development topics are deleted")
        kubectl(settings, "delete", "statefulset", "kafka", "-n", "kafka", "--wait=true")
        kubectl(settings, "delete", "pods,pvc", "-l", "app=kafka", "-n", "kafka", "--wait=true", "--force")
        kubectl(settings, "delete", "services", "-l", "app=kafka", "-n", "kafka")
        kubectl(settings, "delete", "jobs", "-l", "app=kafka-topics", "-n", "kafka", "--ignore-not-found")
