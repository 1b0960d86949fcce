"""Random and mutated control messages, and the promises that must hold for every one of them.

Used by the unit tests (a few, by hypothesis), by the million-message run, and by `control_atheris`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from topicbinding.api import Choice
from topicbinding.bridge.fold import Base, Folded, Heard, Verdict, fold
from topicbinding.control.message import Refusal, Wish, shown, understand

KAFKA = {"bootstrapServers": "kafka:9092"}
HERE = Choice.read({"usersTopic": "u1", "accountsTopic": "a1", "kafka": KAFKA})
BEFORE = Choice.read(
    {"usersTopic": "u0", "accountsTopic": "a0", "joinType": "inner", "kafka": KAFKA, "spark": {"cores": 4}}
)

_KEYS = [
    "usersTopic", "accountsTopic", "joinType", "type", "id", "userTopic", "users_topic", "JOINTYPE", "x", "",
    "usersTopic\x00", "ключ", "a" * 50,
]  # fmt: skip
_VALUES: list[Any] = [
    "u1", "users-v2", " spaced ", "", " ", None, True, 1, -1, 1.5, 10**40, "None", "null", "LEFT", "inner",
    "natural_join", "outer", "rollback", "a\x00b", "a\nb", "\ud800", "😀", ".", "..", "x" * 249, "x" * 250,
    [], {}, [[]], {"a": {"b": 1}}, "a/b", "ü", "{}", '{"usersTopic":"w"}', "\u202eevil", "\\", '"',
    "a.b_c-D9",
]  # fmt: skip
_WHOLE: list[bytes | None] = [
    None, b"", b"null", b"[]", b"{}", b"\xff\xfe\x00", b"NaN", b'{"id":' + b"9" * 4400 + b"}", b"[" * 3000,
    b'{"a":' * 900 + b"1" + b"}" * 900, b'{"usersTopic":"a","usersTopic":"b"}', b'{"usersTopic":1e999}',
    b'{"usersTopic":-Infinity}', b'"' + b"\\\\" * 200 + b'"', b"\xef\xbb\xbf{}", b"\x00" * 64,
]  # fmt: skip
_SPLICES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\\u0000",
    b"1e9",
]


def messages(seed: int) -> Iterator[bytes | None]:
    """Endless, and the same for the same seed."""
    chance = random.Random(seed)
    seen: list[bytes] = [b'{"usersTopic":"u2","accountsTopic":"a2","joinType":"left"}']
    while True:
        kind = chance.random()
        if kind < 0.45:
            made = _object(chance)
            if len(seen) < 200:
                seen.append(made)
            else:
                seen[chance.randrange(200)] = made
            yield made
        elif kind < 0.90:
            yield _mutated(chance, chance.choice(seen))
        elif kind < 0.97:
            yield chance.randbytes(chance.randrange(0, 64))
        else:
            yield chance.choice(_WHOLE)


def _object(chance: random.Random) -> bytes:
    data: Any = {chance.choice(_KEYS): chance.choice(_VALUES) for _ in range(chance.randrange(0, 4))}
    text = json.dumps(data)
    if chance.random() < 0.05:
        text = json.dumps(text)
    return text.encode()


def _mutated(chance: random.Random, value: bytes) -> bytes:
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(value) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            value = value[:at] + chance.choice(_SPLICES) + value[at:]
        elif kind == 1:
            value = value[:at] + value[at + chance.randrange(1, 5) :]
        elif kind == 2 and value:
            at = min(at, len(value) - 1)
            value = value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
        else:
            value = value[at:] + value[:at]
    return value


def heard(values: list[bytes | None]) -> list[Heard]:
    return [Heard(0, number, number, understand(value)) for number, value in enumerate(values)]


def check_message(value: bytes | None) -> Wish | Refusal:
    """What must hold for one message."""
    said = understand(value)
    if isinstance(said, Refusal):
        assert said.why
        assert said.why.isprintable()
        assert len(said.why) < 500
    assert shown(value).isprintable()
    return said


def check_fold(folded: Folded, count: int) -> None:
    """What must hold for any run of messages: one verdict each, and a spec the resource accepts."""
    assert len(folded.judged) == count
    applied = sum(each.verdict is Verdict.APPLIED for each in folded.judged)
    assert applied == (1 if folded.changed else 0)
    assert sum(folded.counts.model_dump().values()) == count
    Choice.model_validate(folded.choice.model_dump())
    for topic in (folded.choice.users_topic, folded.choice.accounts_topic):
        assert topic.isascii()
        assert 0 < len(topic) <= 249
        assert all(each.isalnum() or each in "._-" for each in topic)
    json.dumps(folded.choice.wire()).encode()  # what could not be sent could not be patched


def one_input(data: bytes) -> None:
    """For atheris: newline-separated messages, so that it may find runs as well as single ones."""
    values: list[bytes | None] = list(data.split(b"\n"))
    for value in values:
        check_message(value)
    check_fold(fold(Base(HERE, BEFORE), heard(values)), len(values))
