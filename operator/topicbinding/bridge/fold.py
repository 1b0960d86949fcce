"""Folds control messages onto a binding's choice and gives each its verdict. Pure: no client, no clock.

Called by the service with what one poll brought. Folding is onto what the binding says now, never onto
defaults: a field set by hand stays unless a message names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from topicbinding.api import Choice, JoinType, VerdictCounts, choice_hash
from topicbinding.control.message import Refusal, Wish

NOTHING_BEFORE: Final = "there is nothing to go back to: no generation served before this one"


class Verdict(StrEnum):
    """What became of one control message."""

    APPLIED = "applied"
    MERGED = "merged"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Heard:
    """One message, understood."""

    partition: int
    offset: int
    timestamp_ms: int
    said: Wish | Refusal
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """One message and its one verdict."""

    heard: Heard
    verdict: Verdict
    reason: str = ""
    into: Heard | None = None
    """The message of the same poll that a merged one was folded into."""


@dataclass(frozen=True)
class Base:
    """What is folded onto: what the binding says, and what a rollback would go back to."""

    choice: Choice
    previous: Choice | None = None


@dataclass(frozen=True)
class Carried:
    """The effect of messages that are no longer held one by one (a backlog too long to keep in memory)."""

    base: Base
    tally: Mapping[Verdict, int]
    last_change: Judged | None


@dataclass(frozen=True)
class Folded:
    """The choice to write, and a verdict for every message in the order they were given."""

    choice: Choice
    changed: bool
    judged: tuple[Judged, ...]
    counts: VerdictCounts
    carried: Carried

    @property
    def applied(self) -> Judged | None:
        return next((each for each in reversed(self.judged) if each.verdict is Verdict.APPLIED), None)


@dataclass(frozen=True, slots=True)
class _State:
    """A choice, cheap to compare: the three fields that messages name, and whose the other fields are."""

    users_topic: str
    accounts_topic: str
    join_type: JoinType
    rest: Choice

    @classmethod
    def of(cls, choice: Choice, rest: Choice | None = None) -> _State:
        return cls(choice.users_topic, choice.accounts_topic, choice.join_type, rest or choice)

    def same(self, other: _State) -> bool:
        return (
            self.users_topic == other.users_topic
            and self.accounts_topic == other.accounts_topic
            and self.join_type == other.join_type
            and self.rest is other.rest
        )

    def choice(self) -> Choice:
        update = {
            "users_topic": self.users_topic,
            "accounts_topic": self.accounts_topic,
            "join_type": self.join_type,
        }
        # Validated again on the way out: nothing that the resource would refuse may leave this module.
        return Choice.model_validate(self.rest.model_dump() | update)


def fold(base: Base, messages: Iterable[Heard], carried: Carried | None = None) -> Folded:
    """Each message onto what the ones before it made.

    The last one that changed something is `applied`, earlier ones are `merged`. If all of them together
    change nothing, nothing is applied. `carried` is the effect of messages already let go.
    """
    start = _State.of(base.choice)
    state, previous = _begin(base, carried)
    judged: list[Judged] = []
    last_change = carried.last_change if carried else None
    last_index: int | None = None
    for heard in messages:
        said = heard.said
        if isinstance(said, Refusal):
            judged.append(Judged(heard, Verdict.REJECTED, said.why))
            continue
        if said.rollback:
            if previous is None:
                judged.append(Judged(heard, Verdict.REJECTED, NOTHING_BEFORE))
                continue
            wished = previous
        else:
            wished = replace(
                state,
                users_topic=said.users_topic or state.users_topic,
                accounts_topic=said.accounts_topic or state.accounts_topic,
                join_type=said.join_type or state.join_type,
            )
        if wished.same(state):
            judged.append(Judged(heard, Verdict.UNCHANGED, _warned("no change", said)))
            continue
        last_change = Judged(heard, Verdict.MERGED, _warned(_difference(state, wished), said))
        last_index = len(judged)
        judged.append(last_change)
        # What was wished a moment ago is what an undo in the same poll means.
        state, previous = wished, state
    changed = not state.same(start)
    tally = Counter(each.verdict for each in judged)
    if carried is not None:
        tally.update(carried.tally)
    choice = state.choice() if changed else base.choice
    return Folded(
        choice=choice,
        changed=changed,
        judged=_final(judged, carried.last_change if carried else None, last_change, last_index, changed),
        counts=_counts(tally, last_change, changed),
        carried=Carried(Base(choice, previous.choice() if previous else None), tally, last_change),
    )


def _begin(base: Base, carried: Carried | None) -> tuple[_State, _State | None]:
    """Where folding starts. One object stands for the other fields wherever they are equal."""
    rest = base.choice
    here = carried.base.choice if carried else base.choice
    state = _State.of(here, rest if _same_rest(here, rest) else here)
    before = carried.base.previous if carried else base.previous
    if before is None:
        return state, None
    if _same_rest(before, rest):
        return state, _State.of(before, rest)
    return state, _State.of(before, state.rest if _same_rest(before, state.rest) else before)


def _same_rest(one: Choice, other: Choice) -> bool:
    if one is other:
        return True
    named = {
        "users_topic": other.users_topic,
        "accounts_topic": other.accounts_topic,
        "join_type": other.join_type,
    }
    return choice_hash(one.model_copy(update=named)) == choice_hash(other)


def _final(
    judged: list[Judged],
    carried_change: Judged | None,
    last_change: Judged | None,
    last_index: int | None,
    changed: bool,
) -> tuple[Judged, ...]:
    """Turns the last change into the one that is applied or, with no effect left, unchanged."""
    if last_change is None:
        return tuple(judged)
    if changed:
        final = replace(last_change, verdict=Verdict.APPLIED)
    else:
        reason = "undoes earlier messages of the same poll: no change"
        final = replace(last_change, verdict=Verdict.UNCHANGED, reason=reason)
    if last_index is None:  # it was let go with the messages before these
        return (final, *judged)
    earlier = judged[:last_index]
    if carried_change is not None:  # so was this one, and a later message has overtaken it
        earlier.insert(0, carried_change)
    return (*(_folded_into(final, each) for each in earlier), final, *judged[last_index + 1 :])


def _folded_into(final: Judged, each: Judged) -> Judged:
    if each.verdict is not Verdict.MERGED:
        return each
    said = f"{each.reason}; folded into offset {final.heard.offset} of the same poll"
    return replace(each, reason=said, into=final.heard if final.verdict is Verdict.APPLIED else None)


def _counts(tally: Mapping[Verdict, int], last_change: Judged | None, changed: bool) -> VerdictCounts:
    """In a tally every change counts as merged; the last one is in truth applied, or without effect."""
    counts = {verdict.value: tally.get(verdict, 0) for verdict in Verdict}
    if last_change is not None:
        counts[Verdict.MERGED] -= 1
        counts[Verdict.APPLIED if changed else Verdict.UNCHANGED] += 1
    return VerdictCounts(**counts)


def _warned(reason: str, said: Wish) -> str:
    return "; ".join((reason, *said.warnings))


def _difference(old: _State, new: _State) -> str:
    pairs = (
        ("usersTopic", old.users_topic, new.users_topic),
        ("accountsTopic", old.accounts_topic, new.accounts_topic),
        ("joinType", old.join_type.value, new.join_type.value),
    )
    said = [f"{name} {before} -> {after}" for name, before, after in pairs if before != after]
    if old.rest is not new.rest:
        said.append("settings of the previous generation")
    return ", ".join(said)
