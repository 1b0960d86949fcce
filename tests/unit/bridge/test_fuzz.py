"""Hypothesis against the rules: quick here; the million-message run is in the integration layer."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.control_fuzz import BEFORE, HERE, check_fold, check_message, heard
from topicbinding.bridge.fold import Base, Verdict, fold
from topicbinding.control.message import Refusal

TEXT = st.text(max_size=300)
KEYS = st.sampled_from(["usersTopic", "accountsTopic", "joinType", "type", "id", "userTopic"]) | TEXT
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
TOPICS = st.from_regex(r"\A[a-zA-Z0-9._-]{1,20}\Z")
GOOD: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "usersTopic": TOPICS,
        "accountsTopic": TOPICS,
        "joinType": st.sampled_from(["LEFT", " inner ", "natural", "", None]),
    },
)
MESSAGES = (
    st.binary(max_size=200)
    | st.none()
    | st.dictionaries(KEYS, VALUES, max_size=5).map(lambda data: json.dumps(data).encode())
    | GOOD.map(lambda data: json.dumps(data).encode())
)


@settings(max_examples=300, deadline=None)
@given(st.lists(MESSAGES, max_size=20))
def test_no_run_of_messages_breaks_a_promise(values: list[bytes | None]) -> None:
    for value in values:
        check_message(value)
    check_fold(fold(Base(HERE, BEFORE), heard(values)), len(values))


@settings(max_examples=200, deadline=None)
@given(st.lists(MESSAGES, max_size=15), st.integers(0, 15))
def test_folding_in_two_parts_ends_in_the_same_choice(values: list[bytes | None], cut: int) -> None:
    base, all_of_them = Base(HERE, BEFORE), heard(values)
    whole = fold(base, all_of_them)
    first = fold(base, all_of_them[:cut])
    assert fold(base, all_of_them[cut:], first.carried).choice == whole.choice
    assert fold(base, all_of_them[cut:], first.carried).counts == whole.counts


@settings(max_examples=200, deadline=None)
@given(GOOD, GOOD)
def test_a_message_changes_only_what_it_names_and_twice_is_once(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    said = heard([json.dumps(one).encode(), json.dumps(two).encode()])
    if any(isinstance(each.said, Refusal) for each in said):
        return  # '.', '..' or the word None
    folded = fold(Base(HERE), said)
    newest = {key: value for each in (one, two) for key, value in each.items() if value}
    assert folded.choice.users_topic == newest.get("usersTopic", HERE.users_topic)
    assert folded.choice.accounts_topic == newest.get("accountsTopic", HERE.accounts_topic)
    again = fold(Base(folded.choice), said[1:])
    assert [each.verdict for each in again.judged] == [Verdict.UNCHANGED]
