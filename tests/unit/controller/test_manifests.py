"""What the builders build, compared with golden YAML in manifests/. TB_WRITE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from topicbinding.api import Source
from topicbinding.controller import manifests
from topicbinding.controller.actions import CreateGeneration
from topicbinding.controller.children import children
from topicbinding.controller.observed import (
    Manifest,
    SeenBinding,
    SeenGeneration,
    read_binding,
    read_generation,
)
from topicbinding.controller.settings import Settings
from topicbinding.controller.situation import resolved

GOLDEN = Path(__file__).parent / "manifests"
SETTINGS = Settings(control_image="control:1", spark_image="spark:1")
PLAIN: dict[str, Any] = {
    "usersTopic": "users-v1",
    "accountsTopic": "accounts-v1",
    "kafka": {"bootstrapServers": "kafka:9092"},
}
FULL: dict[str, Any] = PLAIN | {
    "kafka": {
        "bootstrapServers": "kafka:9094",
        "security": {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-512",
            "secretRef": {"name": "kafka-user"},
        },
    },
    "control": {
        "topic": "control",
        "kafka": {
            "bootstrapServers": "control:9094",
            "security": {"protocol": "SSL", "secretRef": {"name": "control-user"}},
        },
    },
    "spark": {
        "image": "own:2",
        "cores": 4,
        "memory": "4Gi",
        "executors": {"instances": 2},
        "checkpoint": {"type": "pvc", "size": "5Gi", "storageClassName": "fast"},
    },
}


def binding(spec: dict[str, Any]) -> SeenBinding:
    meta = {
        "name": "orders",
        "namespace": "shop",
        "uid": "binding-uid",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T12:00:00Z",
    }
    return read_binding({"metadata": meta, "spec": spec})


def created(seen: SeenBinding) -> Manifest:
    choice = seen.spec.choice
    reference = choice.kafka.security.secret_ref
    action = CreateGeneration(
        number=2,
        source=Source.of(choice),
        spark=resolved(choice.spark, SETTINGS.policy),
        choice_hash="0123456789abcdef",
        secret=reference.name if reference else None,
        wished_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
        reason="Building",
        note="",
    )
    return manifests.generation(seen, action)


def generation(seen: SeenBinding) -> SeenGeneration:
    made = created(seen)
    made["metadata"] |= {"uid": "generation-uid", "resourceVersion": "2"}
    return read_generation(made)


def built(spec: dict[str, Any]) -> dict[str, list[Manifest]]:
    seen = binding(spec)
    own = generation(seen)
    claim = manifests.checkpoint_claim(own)
    return {
        "binding": [*children(seen, SETTINGS), manifests.stable_service(seen, None)],
        "generation": [
            created(seen),
            manifests.headless_service(own),
            *([claim] if claim else []),
            manifests.driver_pod(own, SETTINGS),
        ],
    }


@pytest.mark.parametrize("part", ["binding", "generation"])
@pytest.mark.parametrize(("name", "spec"), [("plain", PLAIN), ("full", FULL)], ids=["plain", "full"])
def test_manifests_are_as_agreed(name: str, spec: dict[str, Any], part: str) -> None:
    text = yaml.safe_dump_all(built(spec)[part], sort_keys=False, width=110)
    path = GOLDEN / f"{name}-{part}.yaml"
    if os.environ.get("TB_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize(
    ("quantity", "amount"), [("1536Mi", 1_610_612_736), ("2G", 2_000_000_000), ("512", 512), ("1Ki", 1024)]
)
def test_memory_in_bytes(quantity: str, amount: int) -> None:
    assert manifests.in_bytes(quantity) == amount


def test_the_selector_matches_nothing_before_a_flip_and_one_generation_after() -> None:
    assert "topicbinding.dev/generation" not in manifests.selector("orders", None)
    assert manifests.selector("orders", None)["topicbinding.dev/none"] == "true"
    assert manifests.selector("orders", 3)["topicbinding.dev/generation"] == "3"


def test_nothing_secret_is_in_a_manifest() -> None:
    for parts in built(FULL).values():
        for each in parts:
            assert each["kind"] != "Secret"
            for container in (each.get("spec") or {}).get("containers", ()):
                assert all("secretKeyRef" not in str(entry) for entry in container["env"])
