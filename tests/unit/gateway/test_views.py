"""What the API shows of a binding: roles, states, and nothing that could be secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topicbinding.api import Generation, TopicBinding
from topicbinding.gateway import views
from topicbinding.gateway.directory import Entry, Key

KEY = Key("shop", "orders")


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def make_binding(**status: Any) -> TopicBinding:
    return TopicBinding.read(
        {
            "metadata": {"namespace": "shop", "name": "orders", "uid": "b"},
            "spec": {
                "usersTopic": "users-v1",
                "accountsTopic": "accounts-v1",
                "kafka": {
                    "bootstrapServers": "kafka:9092",
                    "properties": {"client.id": "internal-name"},
                },
                "spark": {"conf": {"spark.some.key": "internal-value"}},
                "control": {"topic": "control"},
            },
            "status": status,
        }
    )


def make_generation(number: int, *, source: bool = True, **body: Any) -> Generation:
    spec: dict[str, Any] = {"binding": "orders", "bindingUid": "b", "number": number, "spark": {}}
    if source:
        spec["source"] = {
            "usersTopic": "users-v1",
            "accountsTopic": "accounts-v1",
            "joinType": "inner",
            "kafka": {"bootstrapServers": "kafka:9092"},
        }
    spec |= body.pop("spec", {})
    metadata = {"namespace": "shop", "name": f"orders-g{number}", "uid": f"g{number}"} | body.pop(
        "metadata", {}
    )
    return Generation.read({"metadata": metadata, "spec": spec, "status": body})


@pytest.mark.parametrize(
    ("generation", "role"),
    [
        (make_generation(3), "active"),
        (make_generation(4, phase="Reading", progress={"percent": 5}), "building"),
        (make_generation(2, spec={"retireAt": "2026-01-01T00:00:00Z"}), "lingering"),
        (make_generation(5, phase="Failed"), "failed"),
        (
            make_generation(
                5,
                spec={"retireAt": "2026-01-01T00:00:00Z"},
                metadata={"annotations": {"topicbinding.dev/given-up": "Superseded"}},
            ),
            "failed",
        ),
        (make_generation(6, source=False, phase="Standby"), "standby"),
        (make_generation(1, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "leaving"),
    ],
)
def test_roles(generation: Generation, role: str) -> None:
    assert views.generation(generation, active=3)["role"] == role


@pytest.mark.parametrize(
    ("binding", "generations", "state", "reason"),
    [
        (make_binding(), [], "swapping", "nothing is being served"),
        (make_binding(), [make_generation(1, phase="Starting")], "swapping", "generation 1 is starting"),
        (
            make_binding(conditions=[condition("Stalled", "True", "TopicNotFound", "no topic")]),
            [],
            "failed",
            "no topic",
        ),
        (
            make_binding(activeGeneration=3, conditions=[condition("Ready", "True", "Serving", "")]),
            [make_generation(3)],
            "live",
            "",
        ),
        (
            make_binding(
                activeGeneration=3,
                conditions=[
                    condition("Ready", "True", "Serving", ""),
                    condition("Stalled", "True", "TopicNotFound", "the newest wish failed"),
                ],
            ),
            [make_generation(3)],
            "live",
            "the newest wish failed",
        ),
        (
            make_binding(activeGeneration=3, conditions=[condition("Ready", "False", "PodLost", "pod lost")]),
            [make_generation(3)],
            "stale",
            "pod lost",
        ),
        (
            make_binding(activeGeneration=3),
            [make_generation(3, phase="Failed", message="out of memory")],
            "failed",
            "out of memory",
        ),
    ],
)
def test_the_state_of_a_binding(
    binding: TopicBinding, generations: list[Generation], state: str, reason: str
) -> None:
    entry = Entry(binding, {each.spec.number: each for each in generations})
    summary = views.summary(KEY, entry)
    assert summary["state"] == state
    assert reason in summary["reason"]


def test_the_detail_shows_tables_progress_and_control_but_no_settings() -> None:
    binding = make_binding(
        activeGeneration=1,
        usersTopic="users-v1",
        lastApplied="2026-01-01T00:00:00Z",
        control={"lastVerdict": "applied", "counts": {"applied": 3}},
    )
    building = make_generation(2, phase="Reading", progress={"percent": 40, "etaSeconds": 7})
    detail = views.detail(KEY, Entry(binding, {1: make_generation(1), 2: building}))
    assert detail["building"] == {"generation": 2, "percent": 40, "etaSeconds": 7}
    assert detail["lastApplied"] == "2026-01-01T00:00:00.000Z"
    assert [column["name"] for column in detail["tables"]["final_ui"]] == [
        "userId",
        "name",
        "email",
        "age",
        "accountType",
        "balance",
    ]
    assert detail["control"]["counts"]["applied"] == 3
    text = json.dumps(detail)
    assert "internal" not in text
    assert "kafka:9092" not in text
