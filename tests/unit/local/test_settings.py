"""The user's choices, and the files they are written into."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from localcluster import cluster, kafka
from localcluster.report import Trouble
from localcluster.settings import REPOSITORY, Settings

HOME = {"HOME": "/home/someone"}


def test_the_defaults_are_the_names_everyone_relies_on() -> None:
    settings = Settings.from_env(HOME)

    assert settings.cache == Path("/home/someone/.cache/topicbinding")
    assert settings.cluster == "topicbinding"
    assert settings.registry == "localhost:5001"
    assert (settings.kafka_port, settings.kafka_sasl_port, settings.page_port) == (9092, 9093, 8080)


def test_the_cache_follows_xdg() -> None:
    assert Settings.from_env({**HOME, "XDG_CACHE_HOME": "/big"}).cache == Path("/big/topicbinding")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_PORT", "kafka"),
        ("KAFKA_PORT", "0"),
        ("PAGE_PORT", "70000"),
        ("KAFKA_REPLICAS", "2"),
        ("PAGE_PORT", "9092"),
        ("REGISTRY_PORT", "8080"),
    ],
)
def test_a_choice_that_cannot_work_is_refused_with_what_to_do(name: str, value: str) -> None:
    with pytest.raises(Trouble) as trouble:
        Settings.from_env({**HOME, name: value})
    assert trouble.value.do


def test_the_committed_config_is_what_the_defaults_render() -> None:
    text = cluster.ONE_NODE.read_text()

    assert cluster.rendered_config(text, Settings.from_env(HOME).host_ports()) == text


def test_other_ports_are_rendered_on_loopback_alone() -> None:
    settings = Settings.from_env({**HOME, "KAFKA_PORT": "19092", "PAGE_PORT": "18080"})

    config = yaml.safe_load(cluster.rendered_config(cluster.ONE_NODE.read_text(), settings.host_ports()))

    mappings = config["nodes"][0]["extraPortMappings"]
    assert {m["containerPort"]: m["hostPort"] for m in mappings} == {
        30092: 19092,
        30192: 19192,
        30292: 19292,
        30093: 9093,
        30193: 9193,
        30293: 9293,
        30080: 18080,
    }
    assert {m["listenAddress"] for m in mappings} == {"127.0.0.1"}


def test_the_two_node_config_stands_beside_the_first() -> None:
    config = yaml.safe_load(cluster.TWO_NODES.read_text())
    second = Settings.from_env(HOME).with_two_nodes()

    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker"]
    assert not any("extraPortMappings" in node for node in config["nodes"])
    assert second.cluster == "topicbinding-two"
    assert second.kubeconfig != Settings.from_env(HOME).kubeconfig
    assert second.host_ports() == {}


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_broker_has_its_own_port_on_the_host(replicas: int) -> None:
    settings = Settings.from_env({**HOME, "KAFKA_REPLICAS": str(replicas)})

    objects = list(yaml.safe_load_all(kafka.broker_manifests(settings, "registry.example/kafka:1")))

    stateful = next(o for o in objects if o["kind"] == "StatefulSet")
    assert stateful["spec"]["replicas"] == replicas
    mapped = {mapping for mapping in settings.host_ports() if mapping != 30080}
    ports = [
        port["nodePort"]
        for o in objects
        if o["kind"] == "Service" and o["spec"].get("type") == "NodePort"
        for port in o["spec"]["ports"]
    ]
    assert len(ports) == len(set(ports)) == 2 * replicas
    assert set(ports) <= mapped, "each must be mapped by kind-config.yaml"


def test_no_manifest_holds_a_secret() -> None:
    for path in (REPOSITORY / "deploy" / "kafka").rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert "PRIVATE KEY-----" not in text
            assert "kind: Secret" not in text
