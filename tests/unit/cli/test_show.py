"""What the command line prints, and the exit codes scripts rely on."""

from __future__ import annotations

from typing import Any

import pytest

from topicbinding.api import Generation, TopicBinding
from topicbinding.cli.show import Health, health, line_text, status_text, tree_text

KAFKA = {"bootstrapServers": "k:1"}
NOW = "2026-01-02T03:04:05Z"


def binding(
    observed: int | None = 3, paused: bool = False, control: bool = False, **states: str
) -> TopicBinding:
    annotations = {"topicbinding.dev/paused": "true"} if paused else {}
    status: dict[str, Any] = {
        "usersTopic": "u1",
        "accountsTopic": "a1",
        "joinType": "left",
        "lastApplied": NOW,
        "activeGeneration": 4,
        "latestGeneration": 5,
        "observedGeneration": observed,
        "conditions": [
            {"type": kind, "status": state, "reason": "Why", "message": "so", "lastTransitionTime": NOW}
            for kind, state in states.items()
        ],
    }
    if control:
        status["control"] = {
            "topic": "control",
            "position": {"0": 7},
            "lastMessage": "{}",
            "lastVerdict": "unchanged",
            "lastReason": "no change",
            "counts": {"applied": 2, "merged": 0, "unchanged": 1, "rejected": 0},
        }
    return TopicBinding.read(
        {
            "metadata": {"name": "demo", "namespace": "ns", "generation": 3, "annotations": annotations},
            "spec": {"usersTopic": "u2", "accountsTopic": "a1", "joinType": "inner", "kafka": KAFKA},
            "status": status,
        }
    )


@pytest.mark.parametrize(
    ("observed", "states", "code"),
    [
        (3, {"Ready": "True", "Progressing": "False", "Stalled": "False"}, Health.SERVED),
        (3, {"Ready": "True", "Progressing": "True"}, Health.MOVING),
        (3, {"Ready": "False", "Progressing": "True"}, Health.MOVING),
        (2, {"Ready": "True"}, Health.MOVING),
        (None, {}, Health.MOVING),
        (3, {"Ready": "True", "Stalled": "True"}, Health.STALLED),
        (3, {"Ready": "False"}, Health.STALLED),
    ],
)
def test_health(observed: int | None, states: dict[str, Any], code: Health) -> None:
    assert health(binding(observed, **states)) is code


def test_the_exit_codes_are_a_promise() -> None:
    assert [each.value for each in (Health.SERVED, Health.MOVING, Health.STALLED, Health.UNKNOWN)] == [
        0,
        1,
        2,
        3,
    ]


def test_status_text() -> None:
    assert status_text(binding(paused=True, control=True, Ready="True")).splitlines() == [
        "ns/demo: served",
        "  wished    users u2, accounts a1, inner join",
        "  served    generation 4: users u1, accounts a1, left join",
        "  applied   2026-01-02T03:04:05Z",
        "  paused    reconciliation is paused: nothing follows until 'resume'",
        "  Ready             True    Why: so",
        "  control   control at 0:7; 2 applied, 0 merged, 1 unchanged, 0 rejected",
        "  last      unchanged: no change [{}]",
    ]


def test_line_text() -> None:
    assert line_text(binding(control=True, Ready="True")) == (
        "served   gen 4/5 u1 + a1 left applied 2026-01-02T03:04:05Z Ready=True(Why) last message unchanged"
    )


def generation(number: int, source: bool = True, **status: Any) -> Generation:
    spec: dict[str, Any] = {"binding": "demo", "bindingUid": "uid", "number": number, "spark": {}}
    if source:
        topics = {"usersTopic": f"u{number}", "accountsTopic": "a1", "joinType": "left", "kafka": KAFKA}
        spec["source"] = topics
    return Generation.read({"metadata": {"name": f"demo-g{number}"}, "spec": spec, "status": status})


def pod(name: str, component: str, number: int | None) -> dict[str, Any]:
    labels = {"topicbinding.dev/component": component}
    if number is not None:
        labels["topicbinding.dev/generation"] = str(number)
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}}


def test_tree_text() -> None:
    generations = [
        generation(4, phase="CaughtUp", rows={"users": 1, "accounts": 2, "final": 3}),
        generation(5, phase="Reading", progress={"percent": 40}),
        generation(6, source=False, phase="Standby"),
    ]
    pods = [
        pod("demo-g4", "driver", 4),
        pod("demo-g4-exec-1", "executor", 4),
        pod("tb-demo-bridge-x", "bridge", None),
    ]
    text = tree_text(binding(Ready="True"), generations, pods)
    assert text.splitlines() == [
        "demo  served",
        "├─ generation 6  Standby  a warm standby",
        "├─ generation 5  Reading  u5 + a1 left  40 %",
        "├─ generation 4  CaughtUp  u4 + a1 left  ACTIVE  3 rows",
        "│   ├─ driver demo-g4  Running",
        "│   └─ executor demo-g4-exec-1  Running",
        "└─ bridge tb-demo-bridge-x  Running",
    ]
