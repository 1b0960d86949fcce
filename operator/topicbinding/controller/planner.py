"""The planner: from what is wished and what is seen to what to do next. Pure: no client, no clock, no logger.

Called by the reconciler, for every pass and whatever woke it. It never asks what happened before: everything
it needs to know is on the objects. Promises kept here are numbered as in docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from topicbinding.api import Previous, Source, State, TopicBindingSpec
from topicbinding.controller.actions import (
    Action,
    CreateGeneration,
    EnsureChildren,
    Flip,
    GiveSource,
    GiveUp,
    Keep,
    Plan,
    Reinstate,
    Remove,
    Retire,
    Rollback,
)
from topicbinding.controller.drivers import Tending, stop, tend
from topicbinding.controller.observed import Failure, SeenBinding, SeenGeneration, SeenPod, SeenService
from topicbinding.controller.policy import Policy
from topicbinding.controller.situation import (
    Role,
    Situation,
    Why,
    kafka_secret,
    resolved,
    understand,
    unservable,
    wish_failed,
)

# A generation that is about to become active again must not be removed meanwhile by whoever still sees it
# lingering; a linger of 0 would give no time at all.
_SAFE_EXTENSION = timedelta(seconds=30)


def plan(
    binding: SeenBinding,
    generations: Iterable[SeenGeneration],
    pods: Iterable[SeenPod],
    service: SeenService | None,
    now: datetime,
    policy: Policy = Policy(),  # noqa: B008 - frozen
) -> Plan:
    """What to do now, in order, and when to look again."""
    if binding.meta.deleted_at or binding.paused:
        return Plan()  # deleting: owner references do the rest; paused: a person asked for hands off
    situation = understand(binding, generations, pods, service)
    if binding.rollback_requested:
        return Plan(actions=(_rollback(situation),), look_again_at=now)
    return _Planning(situation, now, policy).plan()


def _rollback(situation: Situation) -> Rollback:
    previous = situation.binding.status.previous
    if previous is None:
        note = "there is no previous generation to go back to; the request was dropped"
        return Rollback(choice=None, reason="RollbackImpossible", note=note, warning=True)
    topics = f"users {previous.choice.users_topic}, accounts {previous.choice.accounts_topic}"
    note = f"going back to the choice of generation {previous.generation} ({topics})"
    return Rollback(choice=previous.choice, reason="RolledBack", note=note)


def _words(source: Source | None) -> str:
    if source is None:
        return "standby"
    both = "; both sides read the same topic" if source.users_topic == source.accounts_topic else ""
    return f"users {source.users_topic}, accounts {source.accounts_topic}, join {source.join_type}{both}"


@dataclass
class _Planning:
    """One pass's work: collects actions in order, and the moments at which time alone changes something."""

    situation: Situation
    now: datetime
    policy: Policy
    actions: list[Action] = field(default_factory=list)
    moments: list[datetime] = field(default_factory=list)
    waiting: Failure | None = None

    def plan(self) -> Plan:
        self._children()
        if self._spec.state is State.SUSPENDED:
            self._suspend()
        else:
            self._serve_the_wish()
        self._mark_lingering()
        self._drivers()
        self._remove_what_is_due()
        later = [moment for moment in self.moments if moment > self.now]
        return Plan(tuple(self.actions), min(later, default=None), self.waiting)

    # -- the binding itself

    @property
    def _spec(self) -> TopicBindingSpec:
        return self.situation.binding.spec

    def _children(self) -> None:
        active = self.situation.active
        missing = self.situation.service is None
        self.actions.append(EnsureChildren(active=active.number if active else None, service_missing=missing))

    def _suspend(self) -> None:
        """No driver runs, except one that lingers: its time was promised. The active generation is kept."""
        for candidate in self.situation.having(Role.CANDIDATE):
            self._give_up(candidate, Why.SUSPENDED, self.now, f"generation {candidate.number}: suspended")
        for standby in self.situation.having(Role.STANDBY):
            self._remove(standby, "StandbyRemoved", "")

    # -- towards the newest wish

    def _serve_the_wish(self) -> None:
        situation = self.situation
        active = situation.active
        if active is not None and active.choice_hash == situation.wanted:
            self._supersede(keep=None)
            self._standbys()
            return
        # Promise 9: what was built from this choice and still lingers is flipped back to, nothing is built.
        for lingering in situation.wished(Role.LINGERING):
            if situation.servable(lingering):
                if self._flip(lingering):
                    self._supersede(keep=None)
                return
        candidate = next(iter(situation.wished(Role.CANDIDATE)), None)
        self._supersede(keep=candidate)
        if candidate is not None:
            self._bring_up(candidate)
        else:
            self._build()

    def _supersede(self, keep: SeenGeneration | None) -> None:
        """Promise 6: at most one candidate is built, for the newest wish."""
        for candidate in self.situation.having(Role.CANDIDATE):
            if candidate is keep:
                continue
            # What has not begun to read shows nothing to anybody who would inspect it: it goes at once, but
            # not before a burst of wishes has settled, which is measured from its wish.
            settled = max(self.now, candidate.wished_at + self.policy.settle)
            until = self._after(self.policy.superseded_retention) if candidate.started else settled
            note = f"generation {candidate.number} is superseded by a newer wish"
            self._give_up(candidate, Why.SUPERSEDED, until, note)

    def _bring_up(self, candidate: SeenGeneration) -> None:
        # Caught up is asked before the deadline: late is better than never.
        if self.situation.servable(candidate):
            self._flip(candidate)
            return
        failures = self.situation.failures(candidate, self.policy)
        keep_until = self._after(timedelta(seconds=self._spec.failed_retention_seconds))
        if failures is not None and failures.count >= self.policy.failures_limit:
            note = (
                f"generation {candidate.number} is given up: its driver failed {failures.count} times, "
                f"{failures.reason}: {failures.message}"
            )
            self._give_up(candidate, Why.DRIVER, keep_until, note)
            return
        deadline = candidate.wished_at + timedelta(seconds=self._spec.progress_deadline_seconds)
        if self.now >= deadline:
            note = (
                f"generation {candidate.number} is given up: not caught up within "
                f"{self._spec.progress_deadline_seconds} s (spec.progressDeadlineSeconds)"
            )
            self._give_up(candidate, Why.DEADLINE, keep_until, note)
            return
        self.moments.append(deadline)

    def _build(self) -> None:
        problem = unservable(self.situation.binding)
        if problem is not None:
            self.waiting = problem
            return
        failed = [each for each in self.situation.wished(Role.GIVEN_UP) if wish_failed(each)]
        if failed:
            self._reconsider(failed[0])
            return
        ours = [each for each in self.situation.generations.values() if each.spec.source is not None]
        newest = max((each.wished_at for each in ours), default=None)
        if newest is not None and self.now < newest + self.policy.settle:
            # The first of a burst of wishes is built at once; the others wait for the burst to end.
            self.moments.append(newest + self.policy.settle)
            return
        standby = next(iter(self._fitting_standbys()), None)
        choice = self._spec.choice
        words = _words(Source.of(choice))
        same = choice.users_topic == choice.accounts_topic
        if standby is not None:
            self.actions.append(
                GiveSource(
                    number=standby.number,
                    source=Source.of(choice),
                    choice_hash=self.situation.wanted,
                    wished_at=self.now,
                    reason="Building",
                    note=f"building generation {standby.number} on a warm standby ({words})",
                    warning=same,
                )
            )
            return
        number = self._next_number()
        self.actions.append(
            CreateGeneration(
                number=number,
                source=Source.of(choice),
                spark=resolved(choice.spark, self.policy),
                choice_hash=self.situation.wanted,
                secret=kafka_secret(self.situation.binding),
                wished_at=self.now,
                reason="Building",
                note=f"building generation {number} ({words})",
                warning=same,
            )
        )

    def _reconsider(self, failed: SeenGeneration) -> None:
        """The wish has failed. It is not tried again while the failed one is kept for inspection, unless that
        one turns out well after all: it caught up late, or it has been given more time."""
        if failed.given_up != Why.DEADLINE:
            return
        deadline = failed.wished_at + timedelta(seconds=self._spec.progress_deadline_seconds)
        if self.situation.servable(failed) or self.now < deadline:
            note = f"generation {failed.number} is believed in again"
            self.actions.append(Reinstate(number=failed.number, reason="Reinstated", note=note))

    def _next_number(self) -> int:
        known = [*self.situation.generations, self.situation.binding.status.latest_generation or 0]
        planned = [each.number for each in self.actions if isinstance(each, CreateGeneration)]
        return max([*known, *planned]) + 1

    # -- flips

    def _flip(self, to: SeenGeneration) -> bool:
        """Point the stable Service at a generation that is servable. False: not now."""
        active = self.situation.active
        linger = self._linger()
        lingering = [each for each in self.situation.having(Role.LINGERING) if each is not to]
        room = self._spec.linger.max_generations - (1 if active is not None and linger else 0)
        # With a linger of 0 whoever is still here leaves by itself and takes nobody's place.
        if linger and len(lingering) > room:
            # Promise 3: nobody's linger is cut short to make room; the flip waits for the oldest to leave.
            until = min((each.spec.retire_at or self.now) for each in lingering)
            self.moments.append(until if until > self.now else self.now + timedelta(milliseconds=200))
            cap = self._spec.linger.max_generations
            self.waiting = Failure(
                "WaitingForLinger",
                f"generation {to.number} has caught up; {cap} linger, and the flip waits for one to leave",
            )
            return False
        # The order is what makes a crash harmless after any step (promise 4): first nobody may remove the
        # target, then the one that leaves has its linger, then the flip.
        if to.spec.retire_at is not None:
            safe = self._after(max(linger, _SAFE_EXTENSION))
            self.actions.append(Retire(number=to.number, at=safe, reason="FlippingBack", note=""))
        if active is not None:
            at = self._after(linger)
            note = f"generation {active.number} lingers until {at:%H:%M:%S} UTC" if linger else ""
            self.actions.append(Retire(number=active.number, at=at, reason="Lingering", note=note))
        words = _words(to.spec.source)
        rows = f", {to.status.rows.final} rows" if to.status.rows else ""
        what = f"swapped {active.number} -> {to.number}" if active else f"serving {to.number}"
        note = f"generation {to.number} caught up{rows}; {what} ({words})"
        left = active.choice if active else None
        previous = Previous(generation=active.number, choice=left) if active and left else None
        self.actions.append(Flip(to=to.number, previous=previous, reason="Swapped", note=note))
        if to.spec.retire_at is not None:
            self.actions.append(Keep(number=to.number))
        return True

    def _linger(self) -> timedelta:
        """0 means at once, and so does a cap of 0: neither means for ever."""
        linger = self._spec.linger
        return timedelta(seconds=linger.seconds if linger.max_generations else 0)

    def _after(self, wait: timedelta) -> datetime:
        """A moment people read, in whole seconds: never earlier than promised, and at once means at once."""
        whole = (self.now + wait).replace(microsecond=0)
        return whole + timedelta(seconds=1) if wait and whole < self.now + wait else whole

    def _mark_lingering(self) -> None:
        """Repair what a crash or a second controller may have left between two steps of a flip."""
        flipping = {each.number for each in self.actions if isinstance(each, Retire)}
        active = self.situation.active
        if active is not None and active.spec.retire_at is not None and active.number not in flipping:
            self.actions.append(Keep(number=active.number))
        for each in self.situation.having(Role.LINGERING):
            if each.spec.retire_at is None and each.number not in flipping:
                at = self._after(self._linger())
                note = f"generation {each.number} lingers until {at:%H:%M:%S} UTC"
                self.actions.append(Retire(number=each.number, at=at, reason="Lingering", note=note))

    # -- drivers

    def _drivers(self) -> None:
        suspended = self._spec.state is State.SUSPENDED
        doomed = {each.number for each in self.actions if isinstance(each, GiveUp | Remove)}
        for number, generation in sorted(self.situation.generations.items()):
            role = self.situation.roles[number]
            if role is Role.LEAVING or number in doomed:
                continue
            if role is Role.GIVEN_UP:
                # A failed one keeps whatever pod it has, for inspection; a superseded one only its record.
                if not wish_failed(generation):
                    self._tend(stop(self.situation, generation, "DriverStopped"))
            elif suspended and role is not Role.LINGERING:
                self._tend(stop(self.situation, generation, "Suspended"))
            else:
                self._tend(tend(self.situation, generation, self.now, self.policy))

    def _tend(self, tending: Tending) -> None:
        self.actions.extend(tending.actions)
        if tending.look_again_at is not None:
            self.moments.append(tending.look_again_at)

    # -- standbys

    def _fitting_standbys(self) -> list[SeenGeneration]:
        """Standbys that a new generation could take over as they are: same image, same sizes, same Secret."""
        spark, secret = resolved(self._spec.spark, self.policy), kafka_secret(self.situation.binding)
        standbys = self.situation.having(Role.STANDBY)
        return [each for each in standbys if each.spec.spark == spark and each.secret == secret]

    def _standbys(self) -> None:
        """Only when nothing is being built: warming up would take the cores the new generation needs."""
        if unservable(self.situation.binding) is not None:
            return
        fitting = self._fitting_standbys()
        for standby in self.situation.having(Role.STANDBY):
            if standby not in fitting:
                note = f"standby {standby.number} has another image or size; it is replaced"
                self._remove(standby, "StandbyReplaced", note)
        for standby in fitting[self._spec.standby :]:
            self._remove(standby, "StandbyRemoved", "")
        for _ in range(self._spec.standby - len(fitting)):
            number = self._next_number()
            self.actions.append(
                CreateGeneration(
                    number=number,
                    source=None,
                    rehearsal=Source.of(self._spec.choice),
                    spark=resolved(self._spec.spark, self.policy),
                    choice_hash=None,
                    secret=kafka_secret(self.situation.binding),
                    wished_at=self.now,
                    reason="StandbyCreated",
                    note=f"standby {number} is warming up",
                )
            )

    # -- leaving

    def _give_up(self, generation: SeenGeneration, why: Why, retire_at: datetime, note: str) -> None:
        self.actions.append(
            GiveUp(
                number=generation.number,
                why=why,
                retire_at=retire_at,
                reason=why.value,
                note=note,
                warning=why in (Why.DEADLINE, Why.DRIVER),
            )
        )

    def _remove(self, generation: SeenGeneration, reason: str, note: str) -> None:
        self.actions.append(Remove(number=generation.number, reason=reason, note=note))

    def _remove_what_is_due(self) -> None:
        status = self.situation.binding.status
        reinstated = {each.number for each in self.actions if isinstance(each, Reinstate | Retire)}
        leaving = [*self.situation.having(Role.LINGERING), *self.situation.having(Role.GIVEN_UP)]
        for generation in leaving:
            at = generation.spec.retire_at
            if generation.number in reinstated:
                continue
            if at is None:  # given up by an unfinished write; it leaves like any other
                at = self.now
            if self.now < at:
                self.moments.append(at)
                continue
            # Its number must be on record first, or it would be given again.
            if (status.latest_generation or 0) < generation.number:
                self.moments.append(self.now + timedelta(milliseconds=50))
                continue
            why = generation.given_up or "its linger is over"
            self._remove(generation, "Retiring", f"generation {generation.number} leaves: {why}")
        if self.situation.having(Role.LEAVING):
            self.moments.append(self.now + timedelta(seconds=5))
