"""Every rule about one control message, one row each."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from topicbinding.api import JoinType
from topicbinding.control.message import MAX_BYTES, UNWRAPPED, Refusal, Wish, printable, shown, understand


def said(value: Any) -> bytes:
    return json.dumps(value).encode()


LEFT, INNER, NATURAL = JoinType.LEFT, JoinType.INNER, JoinType.NATURAL

TAKEN: list[tuple[str, bytes, Wish]] = [
    (
        "all three",
        said({"usersTopic": "u", "accountsTopic": "a", "joinType": "inner"}),
        Wish(users_topic="u", accounts_topic="a", join_type=INNER),
    ),
    ("one topic", said({"usersTopic": "users-v2"}), Wish(users_topic="users-v2")),
    ("only the join", said({"joinType": "left"}), Wish(join_type=LEFT)),
    ("nothing at all", b"{}", Wish()),
    ("null keeps", said({"usersTopic": None, "joinType": "inner"}), Wish(join_type=INNER)),
    ("empty keeps", said({"usersTopic": "", "accountsTopic": "a"}), Wish(accounts_topic="a")),
    ("blank keeps", said({"usersTopic": " \t\n ", "joinType": "  "}), Wish()),
    ("values are trimmed", said({"usersTopic": "  u1\n", "joinType": " inner "}), Wish("u1", None, INNER)),
    ("join in capitals", said({"joinType": "LEFT"}), Wish(join_type=LEFT)),
    ("left_outer", said({"joinType": "left_outer"}), Wish(join_type=LEFT)),
    ("left-outer", said({"joinType": "Left-Outer"}), Wish(join_type=LEFT)),
    ("leftouter", said({"joinType": "leftOuter"}), Wish(join_type=LEFT)),
    ("join", said({"joinType": "join"}), Wish(join_type=INNER)),
    ("natural_join", said({"joinType": "natural_join"}), Wish(join_type=NATURAL)),
    ("an id", said({"id": "req-7", "usersTopic": "u"}), Wish("u", id="req-7")),
    ("a number as id", said({"id": 42}), Wish(id="42")),
    ("rollback", said({"type": "rollback"}), Wish(rollback=True)),
    ("rollback, any case", said({"type": " RollBack ", "usersTopic": ""}), Wish(rollback=True)),
    ("blank type", said({"type": "", "usersTopic": "u"}), Wish("u")),
    ("JSON in a string", said(json.dumps({"usersTopic": "u"})), Wish("u", warnings=(UNWRAPPED,))),
    (
        "JSON in a string in a string",
        said(json.dumps(json.dumps({"joinType": "inner"}))),
        Wish(join_type=INNER, warnings=(UNWRAPPED,)),
    ),
    ("a byte order mark", b"\xef\xbb\xbf" + said({"usersTopic": "u"}), Wish("u")),
    ("spaces around", b"  \n" + said({"usersTopic": "u"}) + b"\n", Wish("u")),
    (
        "keys we do not know beside ones we do",
        said({"usersTopic": "u", "sentBy": "app", "ts": 1}),
        Wish("u", warnings=("ignored: 'sentBy', 'ts'",)),
    ),
    ("the longest topic name", said({"usersTopic": "x" * 249}), Wish("x" * 249)),
    ("every character a topic may have", said({"usersTopic": "aZ09._-"}), Wish("aZ09._-")),
]


@pytest.mark.parametrize(("_name", "value", "wish"), TAKEN, ids=[row[0] for row in TAKEN])
def test_taken(_name: str, value: bytes, wish: Wish) -> None:
    assert understand(value) == wish


DEEP = b'{"usersTopic":' * 4_000 + b"1" + b"}" * 4_000

REFUSED: list[tuple[str, bytes | None, str]] = [
    ("tombstone", None, "tombstone"),
    ("empty", b"", "empty"),
    ("blank", b" \n ", "empty"),
    ("not JSON", b"usersTopic=u", "not JSON"),
    ("half of it", b'{"usersTopic": "u"', "not JSON"),
    ("two objects", b'{"usersTopic":"u"}{"usersTopic":"v"}', "not JSON"),
    ("single quotes", b"{'usersTopic': 'u'}", "not JSON"),
    ("invalid UTF-8", b'{"usersTopic": "\xff\xfe"}', "not UTF-8"),
    ("UTF-16", '{"usersTopic": "u"}'.encode("utf-16"), "not UTF-8"),
    ("null", b"null", "is null"),
    ("array", said([{"usersTopic": "u"}]), "is an array"),
    ("number", b"7", "is a number"),
    ("boolean", b"true", "is a boolean"),
    ("plain string", said("users-v2"), "is a JSON string"),
    ("string of a string", said(json.dumps("users-v2")), "is a JSON string"),
    ("endlessly wrapped", said(json.dumps(json.dumps(json.dumps(json.dumps({}))))), "is a JSON string"),
    ("an array in a string", said("[1]"), "is a JSON string"),
    ("not-a-number", b'{"usersTopic": NaN}', "NaN is not JSON"),
    ("infinity", b'{"id": -Infinity}', "-Infinity is not JSON"),
    ("a number of 5,000 digits", b'{"id": ' + b"9" * 5_000 + b"}", "number that is too large"),
    ("a key twice", b'{"usersTopic": "a", "usersTopic": "b"}', "'usersTopic' is there twice"),
    ("deep objects", DEEP, "nested too deeply"),
    ("deep arrays", b"[" * 60_000, "nested too deeply"),
    ("huge", b'{"usersTopic": "' + b"x" * MAX_BYTES + b'"}', "at most 65536"),
    ("ten megabytes", b"x" * 10_000_000, "at most 65536"),
    ("many keys", said({f"k{i}": 1 for i in range(100)}), "has 100 keys"),
    ("topic is a number", said({"usersTopic": 5}), "'usersTopic' must be a string, not a number"),
    ("topic is a list", said({"accountsTopic": ["a"]}), "must be a string, not an array"),
    ("topic is an object", said({"accountsTopic": {}}), "must be a string, not an object"),
    ("topic is a boolean", said({"usersTopic": True}), "must be a string, not a boolean"),
    ("join is a number", said({"joinType": 1.5}), "'joinType' must be a string"),
    ("the word None", said({"usersTopic": "None"}), "the word 'None'"),
    ("the word null", said({"accountsTopic": " null "}), "the word 'null'"),
    ("a space inside", said({"usersTopic": "users v2"}), "is no topic name"),
    ("a slash", said({"usersTopic": "a/b"}), "is no topic name"),
    ("a control character", said({"usersTopic": "a\x00b"}), r"'a\\x00b' is no topic name"),
    ("a newline inside", said({"usersTopic": "a\nb"}), "is no topic name"),
    ("an umlaut", said({"usersTopic": "bücher"}), "is no topic name"),
    ("a lone surrogate", b'{"usersTopic": "\\ud800"}', "is no topic name"),
    ("a dot", said({"usersTopic": "."}), "cannot be named"),
    ("two dots", said({"accountsTopic": ".."}), "cannot be named"),
    ("250 characters", said({"usersTopic": "x" * 250}), "at most 249"),
    ("unknown join", said({"joinType": "outer"}), "is no join type"),
    ("join with a typo", said({"joinType": "iner"}), "did you mean 'inner'"),
    ("join is the word None", said({"joinType": "None"}), "is no join type"),
    ("userTopic", said({"userTopic": "u"}), "did you mean 'usersTopic'"),
    ("users_topic", said({"users_topic": "u"}), "did you mean 'usersTopic'"),
    ("USERSTOPIC", said({"USERSTOPIC": "u"}), "did you mean 'usersTopic'"),
    ("usersTopc", said({"usersTopc": "u"}), "did you mean 'usersTopic'"),
    ("accountTopic", said({"accountTopic": "u"}), "did you mean 'accountsTopic'"),
    ("acountsTopic", said({"acountsTopic": "u"}), "did you mean 'accountsTopic'"),
    ("join_type", said({"join_type": "left"}), "did you mean 'joinType'"),
    ("join", said({"join": "left"}), "did you mean 'joinType'"),
    (
        "a near miss beside a good key",
        said({"usersTopic": "u", "jointype": "inner"}),
        "did you mean 'joinType'",
    ),
    ("nothing we know", said({"hello": 1}), "none of usersTopic"),
    ("unknown type", said({"type": "delete"}), "unknown type 'delete'"),
    ("type with a typo", said({"type": "rolback"}), "did you mean 'rollback'"),
    ("rollback to somewhere", said({"type": "rollback", "usersTopic": "u"}), "leave out usersTopic"),
    ("type is a number", said({"type": 1}), "'type' must be a string"),
    ("id is an object", said({"id": {}, "usersTopic": "u"}), "'id' must be"),
    ("id is a boolean", said({"id": True}), "'id' must be"),
    ("id with a newline", said({"id": "a\nb"}), "'id' must be"),
    ("a long id", said({"id": "x" * 129}), "'id' must be"),
]


@pytest.mark.parametrize(("_name", "value", "why"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(_name: str, value: bytes | None, why: str) -> None:
    answer = understand(value)
    assert isinstance(answer, Refusal)
    assert re.search(why, answer.why), answer.why
    assert answer.why.isprintable()
    assert len(answer.why) < 400


def test_one_wrong_field_refuses_the_whole_message_and_keeps_its_id() -> None:
    answer = understand(said({"id": "r1", "usersTopic": "good", "joinType": "sideways"}))
    assert isinstance(answer, Refusal)
    assert answer.id == "r1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(no value)"),
        (b"", ""),
        (b'{"a":1}', '{"a":1}'),
        (b"a\x00\nb", "a\\x00\\x0ab"),
        (b"\xff", "\\xff"),
        ("bücher".encode(), "bücher"),
        (b"x" * 1_000, "x" * 255 + "…"),
    ],
)
def test_shown(value: bytes | None, text: str) -> None:
    assert shown(value) == text


def test_printable_never_passes_its_limit() -> None:
    for text in ("\x00" * 100, "a" * 50 + "\n" * 50, "\ud800" * 30):
        assert len(printable(text, 60)) <= 60
        assert printable(text, 60).isprintable()
