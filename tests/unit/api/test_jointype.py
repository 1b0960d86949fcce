"""Spellings of the join type that people really use."""

from __future__ import annotations

import pytest

from topicbinding.api import JoinType, UnknownJoinType, canonical


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("left", JoinType.LEFT),
        ("LEFT", JoinType.LEFT),
        (" Left_Outer ", JoinType.LEFT),
        ("left-outer", JoinType.LEFT),
        ("leftouter", JoinType.LEFT),
        ("inner", JoinType.INNER),
        (" inner\n", JoinType.INNER),
        ("join", JoinType.INNER),
        ("natural", JoinType.NATURAL),
        ("natural_join", JoinType.NATURAL),
    ],
)
def test_known_spellings(word: str, meant: JoinType) -> None:
    assert canonical(word) is meant


@pytest.mark.parametrize(
    ("word", "hint"), [("iner", "'inner'"), ("lfet", "'left'"), ("natrual", "'natural'")]
)
def test_a_near_miss_is_told_what_was_meant(word: str, hint: str) -> None:
    with pytest.raises(UnknownJoinType, match=f"did you mean {hint}"):
        canonical(word)


@pytest.mark.parametrize("word", ["", "outer-space", "None", "x" * 10_000, "right"])
def test_other_words_are_refused_in_a_short_sentence(word: str) -> None:
    with pytest.raises(UnknownJoinType) as caught:
        canonical(word)
    assert len(str(caught.value)) < 160
