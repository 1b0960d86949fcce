"""The `where` language: a filter in one line, parsed into frozen data. Pure: no Arrow, no evaluation.

    age >= 30 and (name ~ "an" or email is not null) and not accountType in ('gold', 'silver')

Operators: = != < <= > >=, ~ (contains, ignoring case), in (...), not in (...), is null, is not null, and, or,
not, parentheses. Words are case-insensitive. Strings stand in single or double quotes with \\ as escape;
column names that are not plain words stand in `backquotes`. Called by `query`; the page sends what it is
given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

MAX_LENGTH: Final = 4000
MAX_DEPTH: Final = 40
"""Deeper nesting is nobody's filter, and would let a request exhaust the interpreter's stack."""
MAX_LIST: Final = 1000

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
Value = str | int | float | bool


class WhereError(ValueError):
    """The filter cannot be understood. `position` is the character (from 0) at which that became clear."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1})")
        self.position = position


@dataclass(frozen=True, slots=True)
class Compare:
    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Contains:
    column: str
    text: str


@dataclass(frozen=True, slots=True)
class In:
    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Condition, ...]


Condition = Compare | Contains | In | IsNull | Not | And | Or

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![A-Za-z0-9_.]))
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<quoted>`[^`]+`)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<operator><=|>=|!=|<>|==|[=<>~(),])
    )""",
    re.VERBOSE | re.DOTALL,
)
_SYNONYMS: Final[dict[str, Operator]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_RESERVED: Final = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def word(self) -> str:
        """The token as a keyword: quoted column names and strings are never keywords."""
        return self.text.lower() if self.kind in ("word", "operator") else ""


def parse(text: str) -> Condition:
    """The condition that `text` states, or WhereError."""
    if len(text) > MAX_LENGTH:
        raise WhereError(
            f"the filter has {len(text)} characters, at most {MAX_LENGTH} are allowed", MAX_LENGTH
        )
    parser = _Parser(list(_tokens(text)))
    condition = parser.either(depth=0)
    parser.expect_end()
    return condition


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            if text[start] in "\"'`":
                raise WhereError("a quote is opened and never closed", start)
            raise WhereError(f"{text[start]!r} is not part of the filter language", start)
        yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
        position = match.end()
    yield _Token("end", "", end)


class _Parser:
    """Recursive descent: either > all_of > one > comparison."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def either(self, depth: int) -> Condition:
        parts = [self.all_of(depth)]
        while self._skip("or"):
            parts.append(self.all_of(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def all_of(self, depth: int) -> Condition:
        parts = [self.one(depth)]
        while self._skip("and"):
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def one(self, depth: int) -> Condition:
        token = self._peek()
        if depth >= MAX_DEPTH:
            raise WhereError(f"nested more than {MAX_DEPTH} deep", token.position)
        if self._skip("not"):
            return Not(self.one(depth + 1))
        if self._skip("("):
            inner = self.either(depth + 1)
            self._expect(")")
            return inner
        return self.comparison()

    def comparison(self) -> Condition:
        column = self._column()
        token = self._take()
        if token.word in _SYNONYMS:
            return self._compare(column, _SYNONYMS[token.word])
        match token.word:
            case "~":
                text = self._take()
                if text.kind != "string":
                    raise WhereError("after ~ a text in quotes is expected", text.position)
                return Contains(column, _unquote(text.text))
            case "in":
                return In(column, self._list())
            case "not":
                self._expect("in")
                return Not(In(column, self._list()))
            case "is":
                negated = self._skip("not")
                self._expect("null")
                return Not(IsNull(column)) if negated else IsNull(column)
        raise WhereError(
            f"after column {column} an operator is expected, not {_shown(token)}", token.position
        )

    def expect_end(self) -> None:
        token = self._peek()
        if token.kind != "end":
            raise WhereError(f"'and' or 'or' is expected before {_shown(token)}", token.position)

    def _compare(self, column: str, operator: Operator) -> Condition:
        token = self._peek()
        if token.word == "null":
            raise WhereError(
                f"nothing is ever {operator} null; write '{column} is null' or '{column} is not null'",
                token.position,
            )
        return Compare(column, operator, self._value())

    def _column(self) -> str:
        token = self._take()
        if token.kind == "quoted":
            return token.text[1:-1]
        if token.kind == "word" and token.word not in _RESERVED:
            return token.text
        raise WhereError(f"a column name is expected, not {_shown(token)}", token.position)

    def _list(self) -> tuple[Value, ...]:
        self._expect("(")
        values = [self._value()]
        while self._skip(","):
            values.append(self._value())
            if len(values) > MAX_LIST:
                raise WhereError(f"a list may hold at most {MAX_LIST} values", self._peek().position)
        self._expect(")")
        return tuple(values)

    def _value(self) -> Value:
        token = self._take()
        if token.kind == "string":
            return _unquote(token.text)
        if token.kind == "number":
            return _number(token)
        if token.word in ("true", "false"):
            return token.word == "true"
        if token.kind in ("word", "quoted") and token.word not in _RESERVED:
            raise WhereError(f"a value is expected; texts stand in quotes: '{token.text}'", token.position)
        raise WhereError(f"a value is expected, not {_shown(token)}", token.position)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        if token.kind != "end":
            self._next += 1
        return token

    def _skip(self, word: str) -> bool:
        if self._peek().word == word:
            self._next += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        token = self._take()
        if token.word != word:
            raise WhereError(f"'{word}' is expected, not {_shown(token)}", token.position)


def _number(token: _Token) -> int | float:
    if re.fullmatch(r"[-+]?\d+", token.text):
        return int(token.text)
    value = float(token.text)
    if value in (float("inf"), float("-inf")):
        raise WhereError(f"{token.text} is too large a number", token.position)
    return value


def _unquote(text: str) -> str:
    escapes = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda match: escapes.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)


def _shown(token: _Token) -> str:
    return "the end" if token.kind == "end" else repr(token.text)
