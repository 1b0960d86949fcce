"""What the planner may decide: frozen actions, each with the reason that becomes the Event and the log line.

Made by the planner, carried out by the applier in the order given. Any of them may be the last before a
crash, so the order within a plan is part of its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from topicbinding.api import Choice, Previous, Source, SparkSpec
from topicbinding.controller.observed import DriverFailures, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    reason: str
    note: str
    warning: bool = False

    @property
    def told(self) -> bool:
        """Is it worth an Event? Bookkeeping is not."""
        return bool(self.note)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureChildren(Action):
    """What a binding has whatever its generations do: accounts, network policy, bridge, stable Service."""

    active: int | None
    service_missing: bool  # then the Service is made, and selects `active`
    reason: str = "Children"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGeneration(Action):
    number: int
    source: Source | None
    spark: SparkSpec
    choice_hash: str | None
    secret: str | None
    wished_at: datetime
    rehearsal: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveSource(Action):
    """A standby becomes the candidate."""

    number: int
    source: Source
    choice_hash: str
    wished_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDriver(Action):
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDriver(Action):
    number: int
    uid: str
    at_once: bool  # no grace: it is over already, or its node no longer answers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure(Action):
    number: int
    failures: DriverFailures


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp(Action):
    number: int
    why: str
    retire_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinstate(Action):
    """A candidate given up for its deadline is believed in again."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire(Action):
    """From now on it lingers, until then. Written before the flip that makes it true."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(Action):
    """The active generation does not leave."""

    number: int
    reason: str = "Kept"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip(Action):
    to: int
    previous: Previous | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Action):
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Action):
    """Wish for the previous choice and forget the request, in one patch. None: nothing to go back to."""

    choice: Choice | None


@dataclass(frozen=True, slots=True)
class Plan:
    actions: tuple[Action, ...] = ()
    look_again_at: datetime | None = None
    waiting: Failure | None = None  # why the newest wish is not served yet, if something is in its way

    @property
    def touched(self) -> tuple[int, ...]:
        """Generations whose word this plan takes for it that they can serve: heard again before it is
        believed.
        What is written on a generation itself needs no second look, the server refuses it if it has
        changed."""
        numbers: set[int] = set()
        for action in self.actions:
            match action:
                case Flip(to=number) | EnsureChildren(active=int(number), service_missing=True):
                    numbers.add(number)
        return tuple(sorted(numbers))

    @property
    def leaps(self) -> bool:
        """Does it hold anything that a stale view could make wrong for good?"""
        leaping = (Flip, Remove, GiveUp, Retire, Keep, Reinstate, Rollback)
        return bool(self.builds or self.touched or any(isinstance(each, leaping) for each in self.actions))

    @property
    def builds(self) -> bool:
        return any(isinstance(action, CreateGeneration | GiveSource) for action in self.actions)
