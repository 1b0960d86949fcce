"""The join types people may ask for, and the spellings they really use.

`canonical` is called for control messages and by the command line; the resources hold canonical words only.
"""

from __future__ import annotations

import difflib
from enum import StrEnum


class JoinType(StrEnum):
    LEFT = "left"
    INNER = "inner"
    NATURAL = "natural"


class UnknownJoinType(ValueError):  # noqa: N818 - a verdict, not a fault
    """A word that is no join type; the message says which one was probably meant."""


_INNER = frozenset({"inner", "join"})
_KNOWN = ("left", "left_outer", "left-outer", "leftouter", "inner", "join", "natural")


def canonical(word: str) -> JoinType:
    """The join type a word stands for: trimmed, any case; `left*` and `natural*` are prefixes.

    >>> canonical(" LEFT_outer ")
    <JoinType.LEFT: 'left'>
    """
    plain = word.strip().lower()
    if plain.startswith("left"):
        return JoinType.LEFT
    if plain.startswith("natural"):
        return JoinType.NATURAL
    if plain in _INNER:
        return JoinType.INNER
    near = difflib.get_close_matches(plain, _KNOWN, n=1, cutoff=0.5)
    hint = f"; did you mean {canonical(near[0]).value!r}?" if near else ""
    shown = plain if len(plain) <= 40 else plain[:37] + "..."
    raise UnknownJoinType(f"{shown!r} is no join type (left, inner or natural){hint}")
