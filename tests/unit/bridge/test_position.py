"""Where reading goes on after a restart, and what is said about it."""

from __future__ import annotations

import pytest

from topicbinding.api import VerdictCounts
from topicbinding.bridge.fold import Verdict
from topicbinding.bridge.position import Awaited, Position, Start, Trace, resume
from topicbinding.kafka.records import Span, TopicState


def topic(*spans: tuple[int, int], name: str = "control", topic_id: str | None = "id-1") -> TopicState:
    return TopicState(name, topic_id, {number: Span(*span) for number, span in enumerate(spans)})


def stored(*offsets: int, topic_id: str | None = "id-1", **more: object) -> Position:
    by_name = {str(number): offset for number, offset in enumerate(offsets)}
    return Position.model_validate(
        {"topic": "control", "topicId": topic_id, "offsets": by_name, "answered": by_name, **more}
    )


CASES: list[tuple[str, Position | None, TopicState, dict[int, int], str]] = [
    ("nothing stored", None, topic((0, 9)), {0: 0}, ""),
    ("nothing stored, trimmed log", None, topic((4, 9)), {0: 4}, ""),
    ("goes on", stored(5), topic((0, 9)), {0: 5}, ""),
    ("at the end", stored(9), topic((0, 9)), {0: 9}, ""),
    ("retention overtook us", stored(5), topic((7, 9)), {0: 7}, "ControlMessagesLost"),
    ("retention left nothing", stored(5), topic((9, 9)), {0: 9}, "ControlMessagesLost"),
    ("past the end", stored(10), topic((0, 9)), {0: 0}, "ControlTopicRecreated"),
    ("another id", stored(5), topic((0, 9), topic_id="id-2"), {0: 0}, "ControlTopicRecreated"),
    ("broker without ids", stored(5), topic((0, 9), topic_id=None), {0: 5}, ""),
    ("stored without id", stored(5, topic_id=None), topic((0, 9)), {0: 5}, ""),
    ("another topic", stored(5), topic((2, 9), name="other"), {0: 2}, "ControlTopicChanged"),
    ("a new partition", stored(5), topic((0, 9), (3, 4)), {0: 5, 1: 3}, ""),
    ("fewer partitions", stored(5, 6), topic((0, 9)), {0: 0}, "ControlTopicRecreated"),
]


@pytest.mark.parametrize(("_name", "kept", "state", "offsets", "said"), CASES, ids=[row[0] for row in CASES])
def test_resume(
    _name: str, kept: Position | None, state: TopicState, offsets: dict[int, int], said: str
) -> None:
    start = resume(kept, state)
    assert start.offsets == offsets
    assert [notice.reason for notice in start.notices] == ([said] if said else [])
    assert all(start.look_back[number] <= offset for number, offset in start.offsets.items())
    assert (start.kept is not None) == (kept is not None and said in ("", "ControlMessagesLost"))


@pytest.mark.parametrize(
    ("offset", "answered", "low", "look_back"),
    [(500, 500, 0, 300), (500, 500, 450, 450), (500, 100, 0, 100), (500, 100, 200, 200), (50, 50, 0, 0)],
)
def test_the_past_is_read_again_for_control_raw_and_for_missing_answers(
    offset: int, answered: int, low: int, look_back: int
) -> None:
    kept = stored(offset, answered={"0": answered})
    assert resume(kept, topic((low, 1_000))).look_back == {0: look_back}


def test_the_annotation_survives_the_way_there_and_back() -> None:
    position = Position(
        topic="control",
        topic_id="id",
        offsets={"0": 42},
        answered={"0": 40},
        counts=VerdictCounts(applied=1, rejected=2),
        trail=tuple(
            Trace(partition=0, offset=number, verdict=verdict, generation=7 if number else None)
            for number, verdict in enumerate(Verdict)
        ),
        awaited=Awaited(partition=0, offset=41, id="r", binding_generation=5, choice="abc"),
    )
    assert Position.parse(position.annotation()) == position


def test_the_annotation_stays_small_however_long_the_trail() -> None:
    trail = tuple(Trace(partition=0, offset=n, verdict=Verdict.MERGED) for n in range(10**6, 10**6 + 5_000))
    position = Position(topic="c", offsets={"0": 10**6 + 5_000}, trail=trail)
    assert len(position.annotation()) < 6_000
    kept = Position.parse(position.annotation())
    assert kept is not None
    assert kept.trail == trail[-200:]


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "null",
        "[]",
        "{",
        "{}",
        '{"topic": 1}',
        '{"topic":"c","offsets":{"0":-1}}',
        '{"topic":"c","trail":[1]}',
        '{"topic":"c","trail":[[0,1,"z"]]}',
        "[" * 100_000,
    ],
)
def test_an_annotation_that_is_not_ours(annotation: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        Position.parse(annotation)


def test_the_annotation_of_the_contract_is_enough() -> None:
    position = Position.parse('{"topic": "c", "topicId": "t", "offsets": {"0": 42}}')
    assert position is not None
    start = resume(position, TopicState("c", "t", {0: Span(0, 50)}))
    assert start == Start({0: 42}, {0: 0}, position)


def test_no_annotation_is_no_position() -> None:
    assert Position.parse(None) is None
