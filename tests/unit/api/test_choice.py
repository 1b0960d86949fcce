"""Which changes make another choice, and which do not."""

from __future__ import annotations

from typing import Any

import pytest

from topicbinding.api import TopicBindingSpec, choice_hash

BASE: dict[str, Any] = {
    "usersTopic": "users-v1",
    "accountsTopic": "accounts-v1",
    "kafka": {"bootstrapServers": "kafka:9092"},
}


def hash_of(**changes: Any) -> str:
    return choice_hash(TopicBindingSpec.read(BASE | changes).choice)


@pytest.mark.parametrize(
    "change",
    [
        {"usersTopic": "users-v2"},
        {"accountsTopic": "accounts-v2"},
        {"joinType": "inner"},
        {"startingOffsets": "earliest"},
        {"tables": {"key": "name", "accounts": {"columns": [{"name": "name"}]}}},
        {"kafka": {"bootstrapServers": "other:9092"}},
        {"kafka": {"bootstrapServers": "kafka:9092", "properties": {"fetch.max.bytes": "1"}}},
        {"spark": {"cores": 3}},
        {"spark": {"image": "example.test/driver:2"}},
    ],
)
def test_what_makes_another_choice(change: dict[str, Any]) -> None:
    assert hash_of(**change) != hash_of()


@pytest.mark.parametrize(
    "change",
    [
        {"linger": {"seconds": 900}},
        {"control": {"topic": "bindings-control"}},
        {"progressDeadlineSeconds": 30},
        {"standby": 1},
        {"state": "Suspended"},
        {"joinType": "left"},
        {"startingOffsets": "latest"},
        {"spark": {"cores": 2}},
    ],
)
def test_what_stays_the_same_choice(change: dict[str, Any]) -> None:
    assert hash_of(**change) == hash_of()


def test_the_hash_is_fit_for_a_label() -> None:
    assert len(hash_of()) <= 63
    assert hash_of().isalnum()
