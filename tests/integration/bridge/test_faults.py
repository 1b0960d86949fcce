"""Every way the ground may move under the bridge, with a real broker, a real API server and real kills."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from tests.integration.bridge.conftest import Stage
from tests.support.bridge_process import GATEWAY_ACCOUNT, Bridge
from tests.support.dying_bridge import LOST_ANSWER, POINTS
from tests.support.waiting import eventually

MakeStage = Callable[..., Stage]
OUTAGE_SECONDS = 60


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_an_application_is_neither_lost_nor_repeated(
    stage: MakeStage, point: str
) -> None:
    on = stage(answers=True)
    before = on.raw()["metadata"]["generation"]
    dying = on.bridge("tests.support.dying_bridge", point).start()
    on.until_listening(dying)
    on.send({"id": "r", "usersTopic": "u2"})
    assert dying.wait_until_dead() == -9
    patched = on.three()[0] == "u2"
    assert patched == (point != "before-patch")
    if patched:
        # Somebody moves on by hand: a repeated application would undo it.
        on.cluster.kubectl(
            "patch", "tb", on.name, "-n", on.namespace, "--type=merge", "-p", '{"spec": {"usersTopic": "u9"}}'
        )
    on.running()
    on.until_position(1)
    on.until(lambda: on.control().last_verdict == "applied", "the verdict in the status")
    assert on.three()[0] == ("u9" if patched else "u2")
    assert on.raw()["metadata"]["generation"] == before + (2 if patched else 1)
    counts = on.control().counts
    assert (counts.applied, counts.unchanged, counts.rejected) == (1, 0, 0)
    receipts = [json.loads(each.value() or b"") for each in on.read_all(f"{on.topic}-receipts", 1)]
    assert {(each["id"], each["offset"]) for each in receipts} == {("r", 0)}
    assert receipts[0]["verdict"] == "applied"
    on.until(lambda: any(each["reason"] == "ControlApplied" for each in on.events()), "the Event")
    # Nothing is left to be told again at the next start.
    on.until(lambda: on.position()["answered"] == {"0": 1}, "answered to be stored")


def test_a_patch_whose_answer_is_lost_is_told_once_and_not_repeated(stage: MakeStage) -> None:
    on = stage(answers=True)
    before = on.raw()["metadata"]["generation"]
    bridge = on.bridge("tests.support.dying_bridge", LOST_ANSWER).start()
    on.until_listening(bridge)
    on.send({"usersTopic": "u2"}, b"junk")
    on.until(lambda: on.control().last_verdict == "rejected", "both verdicts in the status")
    on.send({"usersTopic": "u3"})
    on.until_three("u3", "a1", "left")
    assert on.raw()["metadata"]["generation"] == before + 2
    counts = on.until(lambda: on.control().counts.applied == 2 and on.control().counts, "counts")
    assert (counts.applied, counts.rejected, counts.unchanged) == (2, 1, 0)
    told = [json.loads(each.value() or b"") for each in on.read_all(f"{on.topic}-receipts", 3)]
    first = [(each["offset"], each["verdict"]) for each in told if each["verdict"] != "failed"]
    assert first == [(0, "applied"), (1, "rejected"), (2, "applied")]
    assert len(on.read_all(f"{on.topic}-dead", 1)) == 1


def test_what_was_said_before_a_restart_is_still_in_control_raw(stage: MakeStage) -> None:
    on = stage()
    first = on.running()
    on.send({"usersTopic": "u2"}, {"usersTopic": "u2"})
    on.until_position(2)
    on.send(b"junk", {"joinType": "inner"})
    on.until_position(4)
    verdicts = [(each["offset"], each["verdict"]) for each in _control_raw(on, first)]
    assert first.stop() == 0
    second = on.running()
    assert [(each["offset"], each["verdict"]) for each in _control_raw(on, second)] == verdicts
    assert verdicts[2] == (2, "rejected")


def _control_raw(on: Stage, bridge: Bridge) -> list[dict[str, object]]:
    token = on.cluster.kubectl(
        "create", "token", GATEWAY_ACCOUNT, "-n", on.namespace, "--audience=topicbinding-driver"
    ).stdout.strip()
    rows: list[dict[str, object]] = bridge.get("/v1/control_raw", token)["messages"]
    return rows


def test_the_broker_stops_and_comes_back(stage: MakeStage) -> None:
    on = stage()
    bridge = on.running()
    on.send({"usersTopic": "before"})
    on.until_three("before", "a1", "left")
    on.broker.stop()
    try:
        on.until(lambda: on.condition() == ("False", "KafkaUnreachable"), "the condition to say so", 30)
        gone = time.monotonic()
        eventually(lambda: time.monotonic() - gone > OUTAGE_SECONDS, OUTAGE_SECONDS + 5, "the outage to last")
        assert bridge.healthy(), "liveness must not depend on Kafka"
        assert on.three()[0] == "before"
    finally:
        on.broker.start()
    on.send({"usersTopic": "after"})
    on.until_three("after", "a1", "left", 30)
    on.until(lambda: on.condition() == ("True", "Connected"), "the condition to recover", 30)
    assert on.position()["offsets"] == {"0": 2}


def test_the_api_server_stops_and_comes_back(stage: MakeStage) -> None:
    on = stage()
    bridge = on.running(proxied=True)
    on.send({"usersTopic": "before"})
    on.until_three("before", "a1", "left")
    generation = on.raw()["metadata"]["generation"]
    (proxy,) = on.proxies
    proxy.cut()
    on.send({"usersTopic": "during"}, {"joinType": "inner"}, b"junk")
    gone = time.monotonic()
    eventually(lambda: time.monotonic() - gone > OUTAGE_SECONDS, OUTAGE_SECONDS + 5, "the outage to last")
    assert bridge.healthy()
    assert on.position()["offsets"] == {"0": 1}, "it must not advance"
    on.send({"usersTopic": "newest"})
    proxy.mend()
    on.until_three("newest", "a1", "inner", 30)
    assert on.position()["offsets"] == {"0": 5}
    assert on.raw()["metadata"]["generation"] == generation + 1, "one application of the newest wish"


def test_a_bridge_that_starts_while_the_api_server_is_away_waits_for_it(stage: MakeStage) -> None:
    on = stage()
    on.send({"usersTopic": "u2"})
    bridge = on.bridge(proxied=True)
    on.proxies[0].cut()
    bridge.start()
    eventually(bridge.healthy, 30, "a sign of life")
    on.proxies[0].mend()
    on.until_three("u2", "a1", "left", 30)


def test_the_topic_is_deleted_and_made_again(stage: MakeStage) -> None:
    on = stage()
    on.running()
    on.send({"usersTopic": "u2"}, {"usersTopic": "u3"}, {"usersTopic": "u4"})
    on.until_three("u4", "a1", "left")
    old = on.position()["topicId"]
    on.broker.delete_topic(on.topic)
    on.until(lambda: on.condition() == ("False", "TopicNotFound"), "the condition to say so", 30)
    on.broker.create_topic(on.topic)
    on.send({"usersTopic": "of-the-new-topic"})
    on.until_three("of-the-new-topic", "a1", "left", 30)
    position = on.position()
    assert position["offsets"] == {"0": 1}
    assert position["topicId"] == on.broker.topic_id(on.topic) != old
    on.until(lambda: any(each["reason"] == "ControlTopicRecreated" for each in on.events()), "it is said")
    on.until(lambda: on.condition() == ("True", "Connected"), "connected again")


def test_the_topic_is_made_again_while_no_bridge_runs(stage: MakeStage) -> None:
    on = stage()
    first = on.running()
    on.send(*({"usersTopic": f"u{n}"} for n in range(5)))
    on.until_three("u4", "a1", "left")
    first.kill()
    on.broker.delete_topic(on.topic)
    on.broker.create_topic(on.topic)
    # As many messages as before, so that the old position would fit and only the id gives it away.
    on.send(*({"usersTopic": f"new{n}"} for n in range(5)))
    on.running()
    on.until_three("new4", "a1", "left")
    on.until(lambda: any(each["reason"] == "ControlTopicRecreated" for each in on.events()), "it is said")


def test_retention_removed_what_was_not_read(stage: MakeStage) -> None:
    on = stage(topic_config={"segment_bytes": "1048576"})
    first = on.running()
    on.send({"usersTopic": "u2"})
    on.until_three("u2", "a1", "left")
    first.kill()
    on.send({"usersTopic": "lost-1"}, {"accountsTopic": "lost-2"}, {"joinType": "inner"})
    _trim(on, 3)
    on.running()
    on.until_three("u2", "a1", "inner")
    said = on.until(
        lambda: [each for each in on.events() if each["reason"] == "ControlMessagesLost"], "it is said"
    )
    assert "offsets 1 to 2 of partition 0" in said[0]["message"]
    assert on.position()["offsets"] == {"0": 4}


def _trim(on: Stage, offset: int) -> None:
    """What retention does, without waiting for it: the log now starts at `offset`."""
    where = TopicPartition(on.topic, 0, offset)
    on.broker.admin().delete_records([where])[where].result(30)


def test_two_bridges_at_once_are_harmless(stage: MakeStage) -> None:
    on = stage(answers=True)
    before = on.raw()["metadata"]["generation"]
    bridges = [on.bridge().start() for _ in range(2)]
    for each in bridges:
        on.until_listening(each)
    wishes = 25
    for number in range(wishes):
        on.send({"id": str(number), "usersTopic": f"t{number}"})
    on.until_three(f"t{wishes - 1}", "a1", "left")
    on.until_position(wishes)
    counts = on.until(
        lambda: sum(on.control().counts.model_dump().values()) == wishes and on.control().counts, "counts"
    )
    assert counts.rejected == counts.unchanged == 0
    assert on.raw()["metadata"]["generation"] == before + counts.applied
    receipts = [json.loads(each.value() or b"") for each in on.read_all(f"{on.topic}-receipts", wishes)]
    first = [each for each in receipts if each["verdict"] in ("applied", "merged")]
    assert sorted(each["offset"] for each in first) == list(range(wishes)), "each told exactly once"


def test_a_burst_ends_in_the_last_wish_with_flat_memory(stage: MakeStage) -> None:
    on = stage()
    bridge = on.running()
    on.send({"usersTopic": "warm-up"})
    on.until_three("warm-up", "a1", "left")
    generation = on.raw()["metadata"]["generation"]
    start = bridge.memory_mib()
    count = 10_000
    on.send(*({"usersTopic": f"t{number}", "padding": "x" * 500} for number in range(count)))
    on.until_three(f"t{count - 1}", "a1", "left", 60)
    on.until_position(count + 1, 60)
    patches = on.raw()["metadata"]["generation"] - generation
    grown = bridge.memory_mib() - start
    print(f"\n{count} messages: {patches} patches, {start:.0f} MiB + {grown:.0f} MiB")
    assert patches <= 30, "a burst must fold, not patch message by message"
    assert grown < 64
    on.until(lambda: sum(on.control().counts.model_dump().values()) == count + 1, "every one has its verdict")


def test_a_backlog_longer_than_is_held_is_one_application_and_every_message_is_answered(
    stage: MakeStage,
) -> None:
    on = stage(answers=True)
    generation = on.raw()["metadata"]["generation"]
    count = 60_000
    on.send(*({"usersTopic": f"t{number}"} for number in range(count)), {"joinType": "inner"})
    bridge = on.bridge().start()
    on.until_three(f"t{count - 1}", "a1", "inner", 60)
    assert on.raw()["metadata"]["generation"] == generation + 1
    counts = on.until(lambda: on.control().counts.merged and on.control().counts, "counts")
    assert (counts.applied, counts.merged) == (1, count)
    print(f"\nbacklog of {count}: {bridge.memory_mib():.0f} MiB")
    assert bridge.memory_mib() < 300
    told = [json.loads(each.value() or b"") for each in on.read_all(f"{on.topic}-receipts", count + 1, 60)]
    verdicts = {each["offset"]: each["verdict"] for each in told if each["verdict"] != "failed"}
    assert verdicts == dict.fromkeys(range(count), "merged") | {count: "applied"}


def test_settings_changed_in_place_are_followed(stage: MakeStage) -> None:
    on = stage()
    on.running()
    other = f"{on.topic}-other"
    on.broker.create_topic(other)
    on.broker.send(other, json.dumps({"usersTopic": "from-the-other"}))
    on.cluster.kubectl(
        "patch", "tb", on.name, "-n", on.namespace, "--type=merge",
        "-p", json.dumps({"spec": {"control": {"topic": other}}}),
    )  # fmt: skip
    on.until_three("from-the-other", "a1", "left", 30)
    assert on.position()["topic"] == other


def test_without_a_control_topic_nothing_of_it_stays_in_the_status(stage: MakeStage) -> None:
    on = stage()
    on.running()
    on.send({"usersTopic": "u2"})
    on.until(lambda: on.control().last_verdict == "applied", "the verdict")
    on.cluster.kubectl(
        "patch", "tb", on.name, "-n", on.namespace, "--type=merge", "-p", '{"spec": {"control": null}}'
    )
    on.until(lambda: on.binding().status.control is None, "status.control to go")
    assert on.condition() == ("", "")


def test_a_position_broken_by_hand_is_said_and_the_topic_read_again(stage: MakeStage) -> None:
    on = stage()
    on.send({"usersTopic": "u2"})
    on.cluster.kubectl(
        "annotate", "tb", on.name, "-n", on.namespace, "topicbinding.dev/control-position=[not ours"
    )
    on.running()
    on.until_three("u2", "a1", "left")
    on.until(lambda: any(each["reason"] == "ControlPositionUnreadable" for each in on.events()), "it is said")
