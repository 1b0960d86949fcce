"""The one patch: what it names, and above all what it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topicbinding.api import Choice, TopicBindingSpec
from topicbinding.bridge.patch import binding_patch, difference
from topicbinding.bridge.position import Position

POSITION = Position(topic="c", topic_id="t", offsets={"0": 3}, answered={"0": 3})
SEEN: dict[str, Any] = {
    "metadata": {"resourceVersion": "77", "annotations": {"somebody": "else's"}},
    "spec": TopicBindingSpec.read(
        {
            "usersTopic": "u1",
            "accountsTopic": "a1",
            "kafka": {"bootstrapServers": "k:1", "properties": {"client.id": "x"}},
            "control": {"topic": "c"},
        }
    ).wire(),
}


def choice(**change: Any) -> Choice:
    return Choice.read({**SEEN["spec"], **change})


def test_the_position_alone() -> None:
    patch = binding_patch(SEEN, None, POSITION)
    assert set(patch) == {"metadata"}
    assert patch["metadata"]["resourceVersion"] == "77"
    assert list(patch["metadata"]["annotations"]) == ["topicbinding.dev/control-position"]
    stored = json.loads(patch["metadata"]["annotations"]["topicbinding.dev/control-position"])
    assert (stored["topic"], stored["topicId"], stored["offsets"]) == ("c", "t", {"0": 3})


def test_a_wish_names_only_what_changes() -> None:
    assert binding_patch(SEEN, choice(usersTopic="u2"), POSITION)["spec"] == {"usersTopic": "u2"}
    assert binding_patch(SEEN, choice(joinType="inner"), POSITION)["spec"] == {"joinType": "inner"}


def test_a_rollback_removes_what_was_not_there() -> None:
    back = choice(kafka={"bootstrapServers": "k:2"}, startingOffsets="earliest")
    assert binding_patch(SEEN, back, POSITION)["spec"] == {
        "kafka": {"bootstrapServers": "k:2", "properties": {"client.id": None}},
        "startingOffsets": "earliest",
    }


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {}, {"a": None}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({"a": {"b": 1}}, {"a": 5}, {"a": 5}),
    ],
)
def test_difference(old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]) -> None:
    assert difference(old, new) == patch
