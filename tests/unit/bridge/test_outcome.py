"""What the binding's status says about a wish on its way."""

from __future__ import annotations

from typing import Any

import pytest

from topicbinding.api import TopicBinding, choice_hash
from topicbinding.bridge.outcome import End, Outcome, outcome
from topicbinding.bridge.position import Awaited

SPEC = {"usersTopic": "u2", "accountsTopic": "a1", "joinType": "left", "kafka": {"bootstrapServers": "k:1"}}
SERVED = {"usersTopic": "u2", "accountsTopic": "a1", "joinType": "left", "activeGeneration": 4}
OLD = {"usersTopic": "u1", "accountsTopic": "a1", "joinType": "left", "activeGeneration": 3}


def conditions(**states: str) -> list[dict[str, str]]:
    return [
        {
            "type": kind,
            "status": status,
            "reason": f"{kind}Reason",
            "message": "why",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, status in states.items()
    ]


def status(served: dict[str, Any], observed: int | None = 5, **states: str) -> dict[str, Any]:
    return {
        **served,
        "observedGeneration": observed,
        "latestGeneration": 4,
        "conditions": conditions(**states),
    }


CASES: list[tuple[str, dict[str, Any], Outcome]] = [
    ("no status yet", {}, Outcome(None)),
    ("not seen yet", status(SERVED, observed=4, Ready="True"), Outcome(None)),
    ("an old stall", status(OLD, observed=4, Ready="True", Stalled="True"), Outcome(None)),
    ("building", status(OLD, Ready="True", Progressing="True"), Outcome(4)),
    ("between", status(OLD, Ready="True"), Outcome(None)),
    ("serving", status(SERVED, Ready="True", Progressing="False", Stalled="False"), Outcome(4, End.SERVING)),
    ("served but not ready", status(SERVED, Ready="False"), Outcome(None)),
    (
        "failed",
        status(OLD, Ready="True", Stalled="True", Progressing="False"),
        Outcome(4, End.FAILED, "StalledReason: why"),
    ),
]


@pytest.mark.parametrize(("_name", "reported", "expected"), CASES, ids=[row[0] for row in CASES])
def test_outcome(_name: str, reported: dict[str, Any], expected: Outcome) -> None:
    binding = TopicBinding.read({"spec": SPEC, "status": reported, "metadata": {"generation": 5}})
    awaited = Awaited(partition=0, offset=1, binding_generation=5, choice=choice_hash(binding.spec.choice))
    assert outcome(awaited, binding) == expected


def test_a_wish_that_the_binding_no_longer_has_was_overtaken() -> None:
    binding = TopicBinding.read({"spec": SPEC, "status": status(SERVED, Ready="True")})
    seen = outcome(Awaited(partition=0, offset=1, binding_generation=5, choice="another"), binding)
    assert seen.end is End.FAILED
    assert "overtaken" in seen.reason
