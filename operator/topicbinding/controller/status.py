"""What people are told: the binding's status as a pure function of what is observed after a pass.

Called by the reconciler, last. It repairs whatever an earlier crash left unsaid: which generation is active
is read from the stable Service, the previous one from the difference to what was reported before.
"""

from __future__ import annotations

from datetime import datetime

from topicbinding.api import Condition, Phase, Previous, State, TopicBindingStatus
from topicbinding.controller.observed import Failure, SeenGeneration
from topicbinding.controller.policy import Policy
from topicbinding.controller.situation import Role, Situation, Why, unservable, wish_failed

OURS = ("Ready", "Progressing", "Stalled")


def describe(
    situation: Situation,
    now: datetime,
    policy: Policy,
    waiting: Failure | None = None,
    trouble: Failure | None = None,
) -> TopicBindingStatus:
    """The status to be. `waiting` is what the plan waits for, `trouble` what the API server refused."""
    binding = situation.binding
    before, active = binding.status, situation.active
    source = active.spec.source if active else None
    numbers = [each.number for each in situation.generations.values() if each.spec.source is not None]
    ready = _ready(situation, policy)
    stalled = trouble or _stalled(situation, policy)
    progressing = _progressing(situation, policy, waiting)
    conditions = [
        _condition(situation, now, "Ready", ready[0], ready[1]),
        _condition(situation, now, "Progressing", progressing[0], progressing[1]),
        _condition(
            situation,
            now,
            "Stalled",
            stalled is not None,
            stalled or Failure("NotStalled", "nothing is in the way"),
        ),
    ]
    return TopicBindingStatus(
        users_topic=source.users_topic if source else None,
        accounts_topic=source.accounts_topic if source else None,
        join_type=source.join_type if source else None,
        last_applied=_last_applied(situation, now),
        active_generation=active.number if active else None,
        latest_generation=max([*numbers, before.latest_generation or 0]) or None,
        observed_generation=binding.meta.generation,
        previous=_previous(situation),
        control=before.control,
        conditions=(*conditions, *(each for each in before.conditions if each.type not in OURS)),
    )


def _ready(situation: Situation, policy: Policy) -> tuple[bool, Failure]:
    active = situation.active
    if active is None:
        failed = _failed_wish(situation)
        if failed is not None:
            return False, _verdict(situation, failed, policy)
        candidate = next(iter(situation.wished(Role.CANDIDATE)), None)
        if candidate is not None:
            return False, _unwell(situation, candidate, policy)
        problem = unservable(situation.binding)
        return False, problem or Failure("NoGeneration", "no generation has been built yet")
    if situation.binding.spec.state is State.SUSPENDED:
        return False, Failure("Suspended", "every driver is stopped; set spec.state to Running to go on")
    if situation.servable(active):
        return True, Failure("Serving", f"generation {active.number} is caught up and serves")
    return False, _unwell(situation, active, policy)


def _progressing(situation: Situation, policy: Policy, waiting: Failure | None) -> tuple[bool, Failure]:
    binding, active = situation.binding, situation.active
    if binding.paused:
        return False, Failure("Paused", "reconciliation is paused by annotation; remove it to go on")
    if binding.spec.state is State.SUSPENDED:
        return False, Failure("Suspended", "nothing is built while suspended")
    if waiting is not None and waiting.reason == "WaitingForLinger":
        return True, waiting
    candidate = next(iter(situation.wished(Role.CANDIDATE)), None)
    if candidate is not None:
        return True, _unwell(situation, candidate, policy)
    if active is not None and active.choice_hash == situation.wanted:
        if situation.servable(active):
            return False, Failure("UpToDate", f"generation {active.number} is what is wished for")
        return True, _unwell(situation, active, policy)
    if _failed_wish(situation) or unservable(binding):
        return False, Failure("Failed", "the newest wish cannot be served; see Stalled")
    return True, Failure("Building", "a generation is about to be built")


def _stalled(situation: Situation, policy: Policy) -> Failure | None:
    active = situation.active
    satisfied = active is not None and active.choice_hash == situation.wanted
    if active is not None and satisfied:
        failures = situation.failures(active, policy)
        if failures is None or failures.count < policy.failures_limit or situation.servable(active):
            return None
        again = f"the driver of generation {active.number} keeps failing: {failures.message}"
        return Failure(failures.reason, again)
    failed = _failed_wish(situation)
    if failed is not None:
        return _verdict(situation, failed, policy)
    return unservable(situation.binding)


def _failed_wish(situation: Situation) -> SeenGeneration | None:
    given_up = situation.wished(Role.GIVEN_UP)
    return next((each for each in given_up if wish_failed(each)), None)


def _verdict(situation: Situation, failed: SeenGeneration, policy: Policy) -> Failure:
    """Why the newest wish failed, what serves meanwhile, and what to do."""
    cause = _cause(situation, failed, policy)
    active = situation.active
    meanwhile = f"generation {active.number} still serves" if active else "nothing is served yet"
    reason = cause.reason if failed.given_up == Why.DRIVER and cause else failed.given_up or "Failed"
    because = f": {cause.message}" if cause else ""
    message = (
        f"generation {failed.number} was given up ({failed.given_up}){because}; {meanwhile}. Change the "
        f"binding, or delete generation {failed.meta.name} to try again at once"
    )
    return Failure(reason, message)


def _cause(situation: Situation, generation: SeenGeneration, policy: Policy) -> Failure | None:
    """What is known of a driver's trouble: its failures, or what keeps its pod from starting."""
    failures = situation.failures(generation, policy)
    if failures is not None:
        return Failure(failures.reason, failures.message)
    pod = situation.pods.get(generation.number)
    return pod.trouble if pod is not None and not pod.gone_at else None


def _unwell(situation: Situation, generation: SeenGeneration, policy: Policy) -> Failure:
    """Why a generation that should serve, or come to serve, does not yet."""
    number, pod = generation.number, situation.pods.get(generation.number)
    cause = _cause(situation, generation, policy)
    failed = situation.failed_driver(generation)
    if failed is not None:
        return Failure(failed[0].reason, f"the driver of generation {number} failed: {failed[0].message}")
    if pod is None or pod.gone_at or pod.meta.deleted_at:
        if generation.status.pod_uid is None and cause is None:
            return Failure("DriverStarting", f"the driver of generation {number} is about to start")
        known = f"; last failure: {cause.message}" if cause else ""
        return Failure(
            "DriverLost", f"generation {number} has no driver at the moment; it is made again{known}"
        )
    if pod.trouble is not None:
        return Failure(pod.trouble.reason, f"the driver of generation {number}: {pod.trouble.message}")
    said = generation.status
    if said.pod_uid == pod.meta.uid and said.phase is Phase.CAUGHT_UP:
        return Failure("DriverNotReady", f"generation {number} has caught up, but its pod is not ready")
    if said.pod_uid == pod.meta.uid and said.phase not in (None, Phase.STARTING, Phase.STANDBY):
        return Failure("CatchingUp", f"generation {number} is catching up")
    return Failure("DriverStarting", f"the driver of generation {number} is starting")


def _last_applied(situation: Situation, now: datetime) -> datetime | None:
    before, active = situation.binding.status, situation.active
    flipped = active is not None and before.active_generation != active.number
    moments = [
        before.last_applied,
        before.control.last_heartbeat if before.control and active else None,
        now.replace(microsecond=0) if flipped else None,
    ]
    return max((each for each in moments if each is not None), default=None)


def _previous(situation: Situation) -> Previous | None:
    """What a rollback goes back to: what is served, while something else is wished for; else what was served
    before it."""
    active, service = situation.active, situation.service
    if active is not None and active.choice_hash != situation.wanted:
        choice = active.choice
        if choice is not None:
            return Previous(generation=active.number, choice=choice)
    if service is not None and service.previous is not None:
        return service.previous
    before = situation.binding.status.previous
    return before if before is None or active is None or before.generation != active.number else None


def _condition(situation: Situation, now: datetime, kind: str, status: bool, why: Failure) -> Condition:
    word = "True" if status else "False"
    before = situation.binding.status.condition(kind)
    moved = before is None or before.status != word
    return Condition(
        type=kind,
        status="True" if status else "False",
        reason=why.reason,
        message=why.message[:2048],
        last_transition_time=now.replace(microsecond=0)
        if moved or before is None
        else before.last_transition_time,
        observed_generation=situation.binding.meta.generation,
    )
