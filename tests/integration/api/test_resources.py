"""The schemas, judged by the real API server: good objects round-trip, bad ones get a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster import Cluster
from topicbinding.api import Generation, TopicBinding
from topicbinding.api.names import API_VERSION

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = sorted((EXAMPLES / "good").glob("*.yaml"))
BAD = sorted((EXAMPLES / "bad").glob("*.yaml"))


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> str:
    cluster.apply_crds()
    return "default"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_example_round_trips(cluster: Cluster, namespace: str, path: Path) -> None:
    model = TopicBinding.read(yaml.safe_load(path.read_text()))
    sent = {
        "apiVersion": API_VERSION,
        "kind": "TopicBinding",
        "metadata": model.metadata,
        "spec": model.spec.wire(),
    }
    stored = cluster.kubectl_json(
        "apply", "--dry-run=server", "-n", namespace, "-f", "-", "-o", "json", stdin=json.dumps(sent)
    )
    assert stored["spec"] == sent["spec"]
    assert TopicBinding.read(stored).spec == model.spec


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_servers_defaults_are_the_models(cluster: Cluster, namespace: str, path: Path) -> None:
    stored = cluster.kubectl_json("apply", "--dry-run=server", "-n", namespace, "-f", str(path), "-o", "json")
    assert TopicBinding.read(stored).spec == TopicBinding.read(yaml.safe_load(path.read_text())).spec
    without_empty = {
        key: value for key, value in TopicBinding.read(stored).spec.wire().items() if value != {}
    }
    assert without_empty.keys() == {key for key, value in stored["spec"].items() if value != {}}


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_example_is_refused_in_words(cluster: Cluster, namespace: str, path: Path) -> None:
    expected = path.read_text().splitlines()[0].removeprefix("# expect: ")
    answer = cluster.kubectl("apply", "--dry-run=server", "-n", namespace, "-f", str(path), check=False)
    assert answer.returncode != 0
    assert expected in answer.stderr


def test_every_bad_example_says_what_to_expect() -> None:
    assert len(BAD) >= 20
    assert all(path.read_text().startswith("# expect: ") for path in BAD)


SPEC: dict[str, Any] = {
    "binding": "immutable",
    "bindingUid": "0",
    "number": 1,
    "spark": {"image": "registry.example.test/driver:1"},
}
SOURCE: dict[str, Any] = {
    "usersTopic": "u",
    "accountsTopic": "a",
    "joinType": "left",
    "kafka": {"bootstrapServers": "kafka:9092"},
}


@pytest.fixture
def standby(cluster: Cluster, namespace: str) -> Any:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "Generation",
        "metadata": {"name": "immutable-g1"},
        "spec": SPEC,
    }
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest))
    yield "immutable-g1"
    cluster.kubectl("delete", "generation", "immutable-g1", "-n", namespace, "--wait=true")


def patch(cluster: Cluster, namespace: str, name: str, spec: dict[str, Any]) -> tuple[int, str]:
    body = json.dumps({"spec": spec})
    answer = cluster.kubectl(
        "patch", "generation", name, "-n", namespace, "--type=merge", "-p", body, check=False
    )
    return answer.returncode, answer.stderr


def test_a_generation_takes_its_source_once_and_its_retirement_any_time(
    cluster: Cluster, namespace: str, standby: str
) -> None:
    code, words = patch(cluster, namespace, standby, {"number": 2})
    assert code != 0
    assert "a generation cannot be changed" in words
    assert patch(cluster, namespace, standby, {"source": SOURCE})[0] == 0
    code, words = patch(cluster, namespace, standby, {"source": {"usersTopic": "other"}})
    assert code != 0
    assert "the source of a generation cannot be changed" in words
    code, words = patch(cluster, namespace, standby, {"source": None})
    assert code != 0
    assert patch(cluster, namespace, standby, {"retireAt": "2026-01-01T00:00:00Z"})[0] == 0
    assert patch(cluster, namespace, standby, {"retireAt": None})[0] == 0
    stored = cluster.kubectl_json("get", "generation", standby, "-n", namespace, "-o", "json")
    assert Generation.read(stored).spec.source is not None
