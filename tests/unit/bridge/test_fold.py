"""What a run of messages does to a binding's choice, and the one verdict each of them gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topicbinding.api import Choice
from topicbinding.bridge.fold import Base, Folded, Heard, Verdict, fold
from topicbinding.control.message import understand

KAFKA = {"bootstrapServers": "kafka:9092"}


def choice(users: str = "u1", accounts: str = "a1", join: str = "left", **more: Any) -> Choice:
    return Choice.read(
        {"usersTopic": users, "accountsTopic": accounts, "joinType": join, "kafka": KAFKA, **more}
    )


HERE = choice()
BEFORE = choice("u0", "a0", "inner")


def heard(*messages: dict[str, Any] | bytes | None) -> list[Heard]:
    values = [json.dumps(each).encode() if isinstance(each, dict) else each for each in messages]
    return [
        Heard(partition=0, offset=10 + index, timestamp_ms=1_000 + index, said=understand(value))
        for index, value in enumerate(values)
    ]


def three(folded: Folded) -> tuple[str, str, str]:
    return folded.choice.users_topic, folded.choice.accounts_topic, folded.choice.join_type.value


U2, U3, BACK = {"usersTopic": "u2"}, {"usersTopic": "u3"}, {"type": "rollback"}
CASES: list[tuple[str, list[Any], tuple[str, str, str], str]] = [
    ("nothing", [], ("u1", "a1", "left"), ""),
    ("one field", [U2], ("u2", "a1", "left"), "applied"),
    ("what is there already", [{"usersTopic": "u1", "joinType": "LEFT"}], ("u1", "a1", "left"), "unchanged"),
    ("natural is not left", [{"joinType": "natural"}], ("u1", "a1", "natural"), "applied"),
    ("empty object", [{}], ("u1", "a1", "left"), "unchanged"),
    ("two fields from two messages", [U2, {"joinType": "inner"}], ("u2", "a1", "inner"), "merged applied"),
    ("the newest wish wins", [U2, U3], ("u3", "a1", "left"), "merged applied"),
    ("a heartbeat after a change", [U2, U2], ("u2", "a1", "left"), "applied unchanged"),
    ("there and back", [U2, {"usersTopic": "u1"}], ("u1", "a1", "left"), "merged unchanged"),
    (
        "a bad one between",
        [U2, b"junk", {"joinType": "inner"}],
        ("u2", "a1", "inner"),
        "merged rejected applied",
    ),
    ("bad ones only", [b"junk", None], ("u1", "a1", "left"), "rejected rejected"),
    ("half of it wrong", [{"usersTopic": "u2", "joinType": "x"}], ("u1", "a1", "left"), "rejected"),
    ("rollback", [BACK], ("u0", "a0", "inner"), "applied"),
    ("rollback and on", [BACK, U2], ("u2", "a0", "inner"), "merged applied"),
    ("undo in the same poll", [U2, BACK], ("u1", "a1", "left"), "merged unchanged"),
    ("undo the second", [U2, U3, BACK], ("u2", "a1", "left"), "merged merged applied"),
    ("back and forth", [BACK, BACK], ("u1", "a1", "left"), "merged unchanged"),
]


@pytest.mark.parametrize(("_name", "messages", "result", "verdicts"), CASES, ids=[row[0] for row in CASES])
def test_fold(_name: str, messages: list[Any], result: tuple[str, str, str], verdicts: str) -> None:
    folded = fold(Base(HERE, BEFORE), heard(*messages))
    assert three(folded) == result
    assert " ".join(each.verdict.value for each in folded.judged) == verdicts
    assert folded.changed == ("applied" in verdicts)
    assert folded.changed == (folded.choice != HERE)


@pytest.mark.parametrize(("_name", "messages", "result", "verdicts"), CASES, ids=[row[0] for row in CASES])
def test_letting_go_of_messages_changes_neither_the_result_nor_the_counts(
    _name: str, messages: list[Any], result: tuple[str, str, str], verdicts: str
) -> None:
    base, all_of_them = Base(HERE, BEFORE), heard(*messages)
    whole = fold(base, all_of_them)
    for cut in range(len(all_of_them) + 1):
        first = fold(base, all_of_them[:cut])
        second = fold(base, all_of_them[cut:], first.carried)
        assert second.choice == whole.choice
        assert second.changed == whole.changed
        assert second.counts == whole.counts
        assert second.applied == whole.applied
        # Some are answered when the first part is let go, the others when the rest is settled: each once.
        open_one = first.carried.last_change
        early = [each for each in first.judged if open_one is None or each.heard is not open_one.heard]
        answered = {each.heard: each.verdict for each in (*early, *second.judged)}
        assert len(answered) == len(early) + len(second.judged)
        assert answered == {each.heard: each.verdict for each in whole.judged}


def test_rollback_with_nothing_before_is_rejected() -> None:
    folded = fold(Base(HERE), heard(BACK))
    assert not folded.changed
    assert folded.judged[0].verdict is Verdict.REJECTED
    assert "nothing to go back to" in folded.judged[0].reason


def test_rollback_takes_the_whole_choice_back() -> None:
    before = choice("u1", "a1", "left", startingOffsets="earliest", spark={"cores": 4})
    folded = fold(Base(HERE, before), heard(BACK))
    assert folded.choice == before
    assert folded.judged[0].verdict is Verdict.APPLIED


def test_a_rollback_to_an_equal_choice_written_differently_is_no_change() -> None:
    before = choice(spark={"cores": 2}, startingOffsets="latest")
    assert not fold(Base(HERE, before), heard(BACK)).changed


def test_folding_is_onto_the_binding_not_onto_defaults() -> None:
    here = choice("by-hand", "a9", "natural", startingOffsets="earliest")
    folded = fold(Base(here), heard({"accountsTopic": "a2"}))
    assert folded.choice == choice("by-hand", "a2", "natural", startingOffsets="earliest")


def test_reasons_say_what_happened() -> None:
    folded = fold(Base(HERE), heard(U2, {"usersTopic": "u3", "joinType": "inner"}, json.dumps("{}").encode()))
    first, second, third = folded.judged
    assert first.reason == "usersTopic u1 -> u2; folded into offset 11 of the same poll"
    assert second.reason == "usersTopic u2 -> u3, joinType left -> inner"
    assert third.reason.startswith("no change; the JSON object came inside a JSON string")


def test_ten_thousand_messages_are_one_application() -> None:
    folded = fold(Base(HERE), heard(*({"usersTopic": f"t{n}"} for n in range(10_000))))
    assert three(folded)[0] == "t9999"
    assert (folded.counts.applied, folded.counts.merged) == (1, 9_999)
