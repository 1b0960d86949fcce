"""The filter language: what it means, and that every mistake is named with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicbinding.tables.where import (
    MAX_DEPTH,
    And,
    Compare,
    Condition,
    Contains,
    In,
    IsNull,
    Not,
    Or,
    WhereError,
    parse,
)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("age >= 30", Compare("age", ">=", 30)),
        ("age>=-3.5", Compare("age", ">=", -3.5)),
        ("age == 3e2", Compare("age", "=", 300.0)),
        ("name <> 'x'", Compare("name", "!=", "x")),
        ("ok = TRUE", Compare("ok", "=", True)),
        ('name ~ "an"', Contains("name", "an")),
        (r'name = "say \"hi\""', Compare("name", "=", 'say "hi"')),
        (r"name = 'O\'Brien'", Compare("name", "=", "O'Brien")),
        (r"name = 'a\\b'", Compare("name", "=", "a\\b")),
        ("name = '<script>alert(1)</script>'", Compare("name", "=", "<script>alert(1)</script>")),
        ("`odd name` is null", IsNull("odd name")),
        ("`and` = 1", Compare("and", "=", 1)),
        ("email IS NOT NULL", Not(IsNull("email"))),
        ("a in (1, 2)", In("a", (1, 2))),
        ("a not in ('x')", Not(In("a", ("x",)))),
        ("not a = 1 and b = 2", And((Not(Compare("a", "=", 1)), Compare("b", "=", 2)))),
        ("a=1 or b=2 and c=3", Or((Compare("a", "=", 1), And((Compare("b", "=", 2), Compare("c", "=", 3)))))),
        (
            "(a=1 or b=2) and c=3",
            And((Or((Compare("a", "=", 1), Compare("b", "=", 2))), Compare("c", "=", 3))),
        ),
        ("  a = 1  ", Compare("a", "=", 1)),
    ],
)
def test_meaning(text: str, meaning: Condition) -> None:
    assert parse(text) == meaning


@pytest.mark.parametrize(
    ("text", "complaint", "position"),
    [
        ("", "a column name is expected, not the end", 0),
        ("age", "an operator is expected, not the end", 3),
        ("age >", "a value is expected, not the end", 5),
        ("age > old", "texts stand in quotes", 6),
        ("age = null", "is null", 6),
        ("age != NULL", "age is not null", 7),
        ("name ~ 3", "text in quotes", 7),
        ("name = 'abc", "never closed", 7),
        ("a = 1 b = 2", "'and' or 'or' is expected", 6),
        ("(a = 1", "'\\)' is expected", 6),
        ("a in ()", "a value is expected", 6),
        ("a in (1", "'\\)' is expected", 7),
        ("a; drop table", "not part of the filter language", 1),
        ("a = 1e999", "too large", 4),
        ("a = 12abc", "not part of", 4),
        ("and = 1", "a column name is expected", 0),
        ("a is 3", "'null' is expected", 5),
        ("__import__('os')", "an operator is expected", 10),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, complaint: str, position: int) -> None:
    with pytest.raises(WhereError, match=complaint) as caught:
        parse(text)
    assert caught.value.position == position


def test_nesting_is_bounded() -> None:
    assert parse("(" * (MAX_DEPTH - 1) + "a=1" + ")" * (MAX_DEPTH - 1)) == Compare("a", "=", 1)
    with pytest.raises(WhereError, match="nested"):
        parse("(" * 2000 + "a=1")
    with pytest.raises(WhereError, match="nested"):
        parse("not " * 900 + "a=1")


def test_length_and_lists_are_bounded() -> None:
    with pytest.raises(WhereError, match="at most 4000"):
        parse("a = '" + "x" * 5000 + "'")
    with pytest.raises(WhereError, match="at most 1000"):
        parse("a in (" + ",".join("1" * 1 for _ in range(1500)) + ")")


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    position = 0
    try:
        parse(text)
    except WhereError as error:
        position = error.position
    assert 0 <= position <= len(text)


@given(
    st.lists(
        st.sampled_from(
            ["a", "(", ")", "and", "or", "not", "=", "<", "1", "'x'", "in", ",", "is", "null", "~", "`b`"]
        )
    )
)
def test_any_row_of_words_is_parsed_or_refused(words: list[str]) -> None:
    try:
        parse(" ".join(words))
    except WhereError:
        return
