"""Understands one control message: bytes in, a wish or a refusal out. Pure; never raises, whatever arrives.

Called by the service for every record read, and by the command line before it sends one.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from topicbinding.api import JoinType, UnknownJoinType, canonical
from topicbinding.api.binding import TOPIC_MAX_LENGTH, TOPIC_PATTERN

# A control message is three short strings. What is far larger was meant for another topic, and parsing it
# would only cost memory.
MAX_BYTES: Final = 64 * 1024
MAX_KEYS: Final = 64
MAX_ID_LENGTH: Final = 128
# A program that wraps its JSON wraps it once or twice; more is a mistake or a joke.
MAX_WRAPPINGS: Final = 3
SHOWN_LENGTH: Final = 256

_TOPIC: Final = re.compile(TOPIC_PATTERN.removeprefix("^").removesuffix("$"))
# Texts that a null becomes on its way through other programs. Nobody names a topic so on purpose.
_NULL_WORDS: Final = frozenset({"none", "null", "nil", "undefined"})
_TOPIC_KEYS: Final = ("usersTopic", "accountsTopic")
_KEYS: Final = (*_TOPIC_KEYS, "joinType", "type", "id")
_KIND_NAMES: Final = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
}
# What people wrote when they meant a key; letters only, lower case.
_MEANT: Final = {
    "userstopic": "usersTopic",
    "usertopic": "usersTopic",
    "users": "usersTopic",
    "user": "usersTopic",
    "topicusers": "usersTopic",
    "accountstopic": "accountsTopic",
    "accounttopic": "accountsTopic",
    "accounts": "accountsTopic",
    "account": "accountsTopic",
    "topicaccounts": "accountsTopic",
    "jointype": "joinType",
    "join": "joinType",
}
UNWRAPPED: Final = "the JSON object came inside a JSON string and was unwrapped: send the object itself"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a message asks for; None means keep."""

    users_topic: str | None = None
    accounts_topic: str | None = None
    join_type: JoinType | None = None
    rollback: bool = False
    id: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message cannot be taken."""

    why: str
    id: str | None = None


class _NotTaken(Exception):  # noqa: N818 - internal turn, always caught below
    pass


def understand(value: bytes | None) -> Wish | Refusal:
    """The wish in a message, or why there is none. A message is taken whole or not at all."""
    identity: str | None = None
    try:
        data, wrapped = _object(value)
        identity = _id(data)
        warnings = (UNWRAPPED,) if wrapped else ()
        ignored = _check_keys(data)
        if ignored:
            warnings = (*warnings, f"ignored: {ignored}")
        if _is_rollback(data):
            return Wish(rollback=True, id=identity, warnings=warnings)
        return Wish(
            users_topic=_topic(data, "usersTopic"),
            accounts_topic=_topic(data, "accountsTopic"),
            join_type=_join(data),
            id=identity,
            warnings=warnings,
        )
    except _NotTaken as refused:
        return Refusal(str(refused), identity)


def printable(text: str, limit: int = SHOWN_LENGTH) -> str:
    """Safe to show anywhere: no control characters, no lone surrogates, never longer than the limit."""
    clipped = text[: limit + 1]
    shown = "".join(each if each.isprintable() else _escaped(each) for each in clipped)
    return shown if len(text) <= limit and len(shown) <= limit else shown[: limit - 1] + "…"


def shown(value: bytes | None, limit: int = SHOWN_LENGTH) -> str:
    """The beginning of a message, for people."""
    if value is None:
        return "(no value)"
    # A character has at most four bytes: what lies beyond could not be shown anyway.
    return printable(value[: 4 * limit + 4].decode(errors="backslashreplace"), limit)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _object(value: bytes | None) -> tuple[dict[str, Any], bool]:
    if value is None:
        raise _NotTaken("the message has no value (a tombstone)")
    if len(value) > MAX_BYTES:
        raise _NotTaken(f"the message has {len(value)} bytes; a control message has at most {MAX_BYTES}")
    if not value.strip():
        raise _NotTaken("the message is empty")
    try:
        text = value.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _NotTaken("the message is not UTF-8 text") from None
    data = _json(text)
    wrappings = 0
    while isinstance(data, str):
        wrappings += 1
        if wrappings > MAX_WRAPPINGS or not data.lstrip().startswith(("{", '"')):
            raise _NotTaken("the message is a JSON string; a JSON object is needed")
        data = _json(data)
    if data is None:
        raise _NotTaken("the message is null; a JSON object is needed")
    if not isinstance(data, dict):
        raise _NotTaken(f"the message is {_KIND_NAMES[type(data)]}; a JSON object is needed")
    return data, wrappings > 0


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except _NotTaken:
        raise
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _NotTaken(f"the message is not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise _NotTaken("the message is nested too deeply") from None
    except ValueError:  # an integer with more digits than Python is willing to read
        raise _NotTaken("the message has a number that is too large") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _NotTaken(f"the key {_quoted(name)} is there twice")
            seen.add(name)
    return found


def _no_constant(word: str) -> Any:
    raise _NotTaken(f"{word} is not JSON")


def _quoted(text: str) -> str:
    return f"'{printable(text, 60)}'"


def _id(data: dict[str, Any]) -> str | None:
    value = data.get("id")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _NotTaken(f"'id' must be a string or a whole number, not {_KIND_NAMES[type(value)]}")
    text = str(value).strip()
    if len(text) > MAX_ID_LENGTH or not text.isprintable():
        raise _NotTaken(f"'id' must be at most {MAX_ID_LENGTH} printable characters")
    return text or None


def _check_keys(data: dict[str, Any]) -> str:
    """Refuses near misses: ignoring them would be the silence people suffered from. Others are only named."""
    if len(data) > MAX_KEYS:
        raise _NotTaken(f"the message has {len(data)} keys; a control message has at most {MAX_KEYS}")
    unknown = [name for name in data if name not in _KEYS]
    for name in unknown:
        meant = _meant(name)
        if meant is not None:
            raise _NotTaken(f"unknown key {_quoted(name)}; did you mean '{meant}'?")
    if unknown and len(unknown) == len(data):
        names = ", ".join(_quoted(name) for name in unknown[:5])
        raise _NotTaken(f"none of usersTopic, accountsTopic, joinType and type is there, only {names}")
    return ", ".join(_quoted(name) for name in unknown[:5])


def _meant(name: str) -> str | None:
    if len(name) > 40:
        return None
    letters = "".join(each for each in name.lower() if "a" <= each <= "z")
    if letters in _MEANT:
        return _MEANT[letters]
    near = difflib.get_close_matches(letters, _MEANT, n=1, cutoff=0.8) if len(letters) > 5 else []
    return _MEANT[near[0]] if near else None


def _text(data: dict[str, Any], name: str) -> str | None:
    """The trimmed text; absent, null, empty and blank all mean keep."""
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _NotTaken(f"'{name}' must be a string, not {_KIND_NAMES[type(value)]}")
    return value.strip() or None


def _is_rollback(data: dict[str, Any]) -> bool:
    kind = _text(data, "type")
    if kind is None:
        return False
    if kind.lower() != "rollback":
        near = difflib.get_close_matches(kind.lower()[:40], ("rollback",), n=1, cutoff=0.6)
        hint = "; did you mean 'rollback'?" if near else " (only 'rollback', or leave it out)"
        raise _NotTaken(f"unknown type {_quoted(kind)}{hint}")
    named = [name for name in (*_TOPIC_KEYS, "joinType") if _text(data, name) is not None]
    if named:
        raise _NotTaken(f"a rollback goes back to what was served before; leave out {', '.join(named)}")
    return True


def _topic(data: dict[str, Any], name: str) -> str | None:
    topic = _text(data, name)
    if topic is None:
        return None
    if topic.lower() in _NULL_WORDS:
        raise _NotTaken(
            f"'{name}' is the word {_quoted(topic)}, not a topic: leave it out or send null to keep it"
        )
    if topic in (".", ".."):
        raise _NotTaken(f"'{name}': a topic cannot be named '.' or '..'")
    if len(topic) > TOPIC_MAX_LENGTH:
        raise _NotTaken(f"'{name}' has {len(topic)} characters; a topic name has at most {TOPIC_MAX_LENGTH}")
    if not _TOPIC.fullmatch(topic):
        raise _NotTaken(f"'{name}': {_quoted(topic)} is no topic name (letters, digits, '.', '_' and '-')")
    return topic


def _join(data: dict[str, Any]) -> JoinType | None:
    word = _text(data, "joinType")
    if word is None:
        return None
    try:
        return canonical(word)
    except UnknownJoinType as error:
        raise _NotTaken(f"'joinType': {printable(str(error), 160)}") from None
