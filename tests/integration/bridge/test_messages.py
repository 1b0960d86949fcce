"""The bridge against a real broker and a real API server: messages in, binding and verdicts out."""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.bridge.conftest import Stage
from tests.support.bridge_process import GATEWAY_ACCOUNT

MakeStage = Callable[..., Stage]


def test_the_spellings_people_really_sent(stage: MakeStage) -> None:
    on = stage()
    on.running()
    rows: list[tuple[Any, str, tuple[str, str, str]]] = [
        ({"joinType": "LEFT"}, "unchanged", ("u1", "a1", "left")),
        ({"joinType": " inner "}, "applied", ("u1", "a1", "inner")),
        ({"usersTopic": "u2"}, "applied", ("u2", "a1", "inner")),
        (
            {"usersTopic": "", "accountsTopic": None, "joinType": "natural"},
            "applied",
            ("u2", "a1", "natural"),
        ),
        (json.dumps({"accountsTopic": "a2"}), "applied", ("u2", "a2", "natural")),
        ({"userTopic": "u3"}, "rejected", ("u2", "a2", "natural")),
        ({"usersTopic": "None"}, "rejected", ("u2", "a2", "natural")),
        (b"not json at all", "rejected", ("u2", "a2", "natural")),
        (None, "rejected", ("u2", "a2", "natural")),
        ({"type": "rollback"}, "rejected", ("u2", "a2", "natural")),
        ({"usersTopic": "u4", "joinType": "left-outer"}, "applied", ("u4", "a2", "left")),
    ]
    for offset, (message, verdict, result) in enumerate(rows):
        on.send(message)
        on.until(lambda at=offset: on.control().position.get("0") == at + 1, f"message {offset}")  # type: ignore[misc]
        assert (on.control().last_verdict, on.three()) == (verdict, result), message
    counts = on.control().counts
    assert (counts.applied, counts.unchanged, counts.rejected, counts.merged) == (5, 1, 5, 0)
    assert on.condition() == ("True", "Connected")


def test_a_verdict_is_visible_in_four_places_and_a_dead_letter_is_whole(stage: MakeStage) -> None:
    on = stage(answers=True)
    bridge = on.running()
    with on.broker.producer() as producer:
        producer.produce(on.topic, json.dumps({"id": "r1", "usersTopic": "u2"}))
    on.until_three("u2", "a1", "left")
    with on.broker.producer() as producer:
        producer.produce(
            on.topic,
            b'{"userTopic": "\xc3\xbc"}',
            key=b"k\x00",
            headers=[("trace", b"\x01\x02"), ("n", None)],
        )
    on.until(lambda: on.control().last_verdict == "rejected", "the verdict in the status")

    control = on.control()
    assert control.last_message == '{"userTopic": "ü"}'
    assert "did you mean 'usersTopic'?" in (control.last_reason or "")

    def told() -> list[dict[str, Any]]:
        return [each for each in on.events() if each["reason"].startswith("Control")]

    on.until(lambda: len(told()) >= 2, "two Events")
    assert {each["reason"]: each["type"] for each in told()} == {
        "ControlApplied": "Normal",
        "ControlRejected": "Warning",
    }

    token = on.cluster.kubectl(
        "create", "token", GATEWAY_ACCOUNT, "-n", on.namespace, "--audience=topicbinding-driver"
    ).stdout.strip()
    rows = bridge.get("/v1/control_raw", token)["messages"]
    assert [(row["offset"], row["verdict"], row["id"]) for row in rows] == [
        (0, "applied", "r1"),
        (1, "rejected", None),
    ]
    for wrong in (None, "nonsense", _token(on, GATEWAY_ACCOUNT, "other"), _token(on, "default")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            bridge.get("/v1/control_raw", wrong)
        assert refused.value.code == 401
        refused.value.close()

    receipts = [json.loads(each.value() or b"") for each in on.read_all(f"{on.topic}-receipts", 2)]
    assert [(each["id"], each["offset"], each["verdict"]) for each in receipts] == [
        ("r1", 0, "applied"),
        (None, 1, "rejected"),
    ]
    (dead,) = on.read_all(f"{on.topic}-dead", 1)
    headers = dict(dead.headers() or [])
    assert (dead.key(), dead.value()) == (b"k\x00", b'{"userTopic": "\xc3\xbc"}')
    assert (headers["trace"], headers["n"]) == (b"\x01\x02", None)
    assert b"did you mean" in (headers["topicbinding-reason"] or b"")
    assert headers["topicbinding-offset"] == b"1"

    assert 'topicbinding_bridge_messages_total{verdict="applied"} 1.0' in bridge.get("/metrics")


def _token(on: Stage, account: str, audience: str = "topicbinding-driver") -> str:
    made = on.cluster.kubectl("create", "token", account, "-n", on.namespace, f"--audience={audience}")
    return made.stdout.strip()


def test_receipts_tell_later_what_became_of_the_wish(stage: MakeStage) -> None:
    on = stage(answers=True)
    on.running()

    def serve(generation: int, *, stalled: bool = False) -> None:
        spec = on.binding()
        now = "2026-01-01T00:00:00Z"
        served = {} if stalled else {
            "usersTopic": spec.spec.users_topic,
            "accountsTopic": spec.spec.accounts_topic,
            "joinType": spec.spec.join_type.value,
            "activeGeneration": generation,
        }  # fmt: skip
        conditions = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Serving",
                "message": "",
                "lastTransitionTime": now,
            },
            {
                "type": "Stalled",
                "status": str(stalled),
                "reason": "TopicNotFound" if stalled else "NotStalled",
                "message": "no topic u3" if stalled else "",
                "lastTransitionTime": now,
            },
        ]
        kept = [each for each in on.raw()["status"]["conditions"] if each["type"] == "ControlConnected"]
        on.set_status(
            {
                **served,
                "latestGeneration": generation,
                "observedGeneration": spec.metadata["generation"],
                "conditions": kept + conditions,
            }
        )

    on.send({"id": "one", "usersTopic": "u2"})
    on.until_three("u2", "a1", "left")
    serve(2)
    told = [json.loads(each.value() or b"") for each in on.read_all(f"{on.topic}-receipts", 2)]
    assert [(each["id"], each["verdict"], each.get("generation")) for each in told] == [
        ("one", "applied", None),
        ("one", "serving", 2),
    ]
    on.send({"id": "two", "usersTopic": "u3"})
    on.until_three("u3", "a1", "left")
    serve(3, stalled=True)
    told = [json.loads(each.value() or b"") for each in on.read_all(f"{on.topic}-receipts", 4)]
    assert [(each["id"], each["verdict"], each.get("generation")) for each in told[2:]] == [
        ("two", "applied", None),
        ("two", "failed", 3),
    ]
    assert "TopicNotFound" in told[3]["reason"]


def test_a_field_set_by_hand_in_between_is_kept_and_ownership_tells_who_set_what(stage: MakeStage) -> None:
    on = stage()
    on.running()
    on.send({"usersTopic": "u2"})
    on.until_three("u2", "a1", "left")
    on.cluster.kubectl(
        "patch", "tb", on.name, "-n", on.namespace, "--type=merge", "--field-manager=by-hand",
        "-p", '{"spec": {"accountsTopic": "by-hand"}}',
    )  # fmt: skip
    on.send({"joinType": "inner"})
    on.until_three("u2", "by-hand", "inner")
    seen = on.cluster.kubectl_json(
        "get", "tb", on.name, "-n", on.namespace, "--show-managed-fields", "-o", "json"
    )
    owners = {
        field: entry["manager"]
        for entry in seen["metadata"]["managedFields"]
        for field in entry["fieldsV1"].get("f:spec", {})
    }
    assert owners["f:usersTopic"] == "topicbinding-bridge"
    assert owners["f:joinType"] == "topicbinding-bridge"
    assert owners["f:accountsTopic"] == "by-hand"


def test_a_rollback_takes_the_whole_choice_of_the_previous_generation(stage: MakeStage) -> None:
    on = stage()
    on.running()
    on.send({"usersTopic": "u2"})
    on.until_three("u2", "a1", "left")
    before = on.raw()["spec"] | {"usersTopic": "u0", "joinType": "inner", "startingOffsets": "earliest"}
    choice = {name: value for name, value in before.items() if name not in ("control", "linger", "state")}
    on.set_status({"previous": {"generation": 1, "choice": choice}})
    on.send({"type": "rollback"})
    on.until_three("u0", "a1", "inner")
    assert on.binding().spec.starting_offsets == "earliest"
    assert on.binding().spec.control is not None


def test_on_start_everything_is_read_before_the_first_patch(stage: MakeStage) -> None:
    on = stage()
    before = on.raw()["metadata"]["generation"]
    on.send(*({"usersTopic": f"u{number}"} for number in range(500)), b"junk", {"joinType": "inner"})
    on.running()
    on.until_three("u499", "a1", "inner")
    on.until_position(502)
    assert on.raw()["metadata"]["generation"] == before + 1, "one application, not several"
    counts = on.until(lambda: on.control().counts.merged and on.control().counts, "counts")
    assert (counts.applied, counts.merged, counts.rejected) == (1, 500, 1)


def test_several_partitions_are_ordered_by_timestamp_and_said_once(stage: MakeStage) -> None:
    on = stage(partitions=3)
    start = int(time.time() * 1000) - 10_000
    with on.broker.producer() as producer:
        for number, (partition, topic) in enumerate([(0, "first"), (2, "second"), (1, "last")]):
            body = json.dumps({"usersTopic": topic})
            producer.produce(on.topic, body, partition=partition, timestamp=start + number)
    bridge = on.running()
    on.until_three("last", "a1", "left")
    on.send({"usersTopic": "more"}, partition=2)
    on.until_three("more", "a1", "left")
    assert bridge.lines().count("ordered by their timestamps") == 1


def test_huge_and_odd_messages_reach_the_dead_letter_topic_whole(stage: MakeStage) -> None:
    on = stage(answers=True)
    bridge = on.running()
    huge = b'{"usersTopic": "' + b"x" * 10_000_000 + b'"}'
    odd = [b"\xff\xfe", b"[" * 50_000, huge, b"", b"NaN", b'{"usersTopic":"a\\u0000b"}']
    on.send(*odd)
    on.until_position(len(odd), 40)
    dead = on.read_all(f"{on.topic}-dead", len(odd), 40)
    assert [each.value() for each in dead] == odd
    assert on.three() == ("u1", "a1", "left")
    on.send({"usersTopic": "still-alive"})
    on.until_three("still-alive", "a1", "left")
    assert bridge.healthy()


def test_answers_that_cannot_be_sent_are_said_and_stop_nothing(stage: MakeStage) -> None:
    on = stage(answers=True)
    on.broker.delete_topic(f"{on.topic}-receipts")
    on.broker.delete_topic(f"{on.topic}-dead")
    on.broker.create_topic(f"{on.topic}-dead", max_message_bytes="100000")
    on.running()
    on.send(b"x" * 500_000, {"usersTopic": "u2"})
    on.until_three("u2", "a1", "left")
    (dead,) = on.read_all(f"{on.topic}-dead", 1)
    assert dead.value() == b"x" * 4_096, "what the topic takes of it"
    assert dict(dead.headers() or [])["topicbinding-cut-from"] == b"500000"
    said = on.until(
        lambda: [each for each in on.events() if each["reason"] == "ControlAnswerDropped"], "it is said", 40
    )
    assert "-receipts" in said[0]["message"]
    on.send({"usersTopic": "u3"})
    on.until_three("u3", "a1", "left")
