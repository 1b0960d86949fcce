"""One pass over one binding: observe, plan, apply, report. Called by the queue, whatever woke it.

Holds no truth: killed at any line, the next pass of any controller goes on from what the objects say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from topicbinding.api import TopicBindingStatus, names
from topicbinding.controller.actions import Action, Plan, Retire
from topicbinding.controller.applier import Applier
from topicbinding.controller.cache import Cache, Key, Observation
from topicbinding.controller.observed import Failure, SeenBinding, SeenPod
from topicbinding.controller.planner import plan
from topicbinding.controller.ports import (
    BINDING,
    CLAIM,
    DEPLOYMENT,
    GENERATION,
    POD,
    SERVICE,
    Kube,
    KubeError,
    StaleError,
)
from topicbinding.controller.reporter import Reporter
from topicbinding.controller.settings import Settings
from topicbinding.controller.situation import Role, understand
from topicbinding.controller.status import OURS, describe

log = logging.getLogger("topicbinding.controller")

# A plan that has something done is followed by the next at once; far more rounds than any change needs.
_ROUNDS = 8
_STALE_TRIES = 3


@dataclass(slots=True)
class _Retiring:
    """Generations that were seen leaving, until they are proved gone. Lost in a crash: nothing but a log
    line."""

    numbers: set[int] = field(default_factory=set)


class Reconciler:
    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        settings: Settings,
        clock: Callable[[], datetime],
        reporter: Reporter | None = None,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._settings = settings
        self._policy = settings.policy
        self._clock = clock
        self._applier = Applier(kube, cache, settings, clock)
        self._reporter = reporter or Reporter(kube)
        self._retiring: dict[Key, _Retiring] = {}
        self._uids: dict[Key, str] = {}

    def pass_over(self, key: Key) -> float | None:
        """Seconds until time alone may change something; None: only news will."""
        seen = self._cache.observe(key)
        if seen is None:
            self._forget(key)
            self._report_unreadable(key)
            return None
        if seen.binding.controller_class != self._settings.controller_class:
            return None  # somebody else's
        meta = seen.binding.meta
        try:
            wait = self._work_on(key)
        except StaleError:
            raise
        except Exception as error:
            reason = error.reason if isinstance(error, KubeError) else "ControllerError"
            self._reporter.trouble(meta.namespace, meta.name, meta.uid, reason, str(error) or repr(error))
            raise
        self._reporter.over(meta.uid)
        return wait

    def _work_on(self, key: Key) -> float | None:
        done: list[Action] = []
        trouble: Failure | None = None
        planned = Plan()
        tries = 0
        for _ in range(_ROUNDS):
            before = len(done)
            try:
                seen, planned = self._decide(key)
                if seen is None:
                    break
                trouble = self._applier.apply(key, seen, planned.actions, done)
            except StaleError as stale:
                tries += 1
                log.debug("%s/%s: looking again: %s", *key, stale)
                if tries > _STALE_TRIES:
                    raise
                self._read_all(key)
                continue
            if trouble is not None or len(done) == before:
                break
        self._report(key, planned, trouble, done)
        self._prove_gone(key)
        return self._next_look(key, planned, trouble)

    # -- observe and plan

    def _decide(self, key: Key) -> tuple[Observation | None, Plan]:
        """What to do. Whatever a stale view could make wrong for good is decided on a fresh one; what the
        fresh
        view changes may need a look at more."""
        seen, planned = self._plan(key)
        looked: set[int] = set()
        while seen is not None and planned.leaps:
            if planned.builds:
                # Nothing but a look at all of them tells that nobody else has built it already.
                return self._plan(key, self._read_all(key))
            unread = set(planned.touched) - looked
            if looked and not unread:
                break
            self._read_again(key, tuple(unread))
            looked |= unread | {0}
            seen, planned = self._plan(key)
        return seen, planned

    def _plan(self, key: Key, binding: SeenBinding | None = None) -> tuple[Observation | None, Plan]:
        seen = self._cache.observe(key)
        if seen is None:
            return None, Plan()
        if binding is not None:
            seen = replace(seen, binding=binding)
        self._look_into_trouble(key, seen)
        now = self._clock()
        return seen, plan(seen.binding, seen.generations, seen.pods, seen.service, now, self._policy)

    def _read_again(self, key: Key, numbers: tuple[int, ...]) -> None:
        namespace, name = key
        wanted = [(BINDING, name), (SERVICE, names.stable_service(name))]
        for number in numbers:
            child = names.generation_name(name, number)
            wanted += [(GENERATION, child), (POD, child)]
        for kind, each in wanted:
            found = self._kube.get(kind, namespace, each)
            if found is None:
                self._cache.absent(kind, key, each)
            else:
                self._cache.put(kind, found)

    def _read_all(self, key: Key) -> SeenBinding | None:
        """Everything about one binding, afresh. The binding as it was *before* its generations were listed:
        its
        status may speak of a generation that another controller has made since, and a number derived from a
        newer
        status and an older list would be given to a second generation for the same wish."""
        self._read_again(key, ())
        seen = self._cache.observe(key)
        for kind in (GENERATION, POD, SERVICE):
            found, version = self._kube.find(kind, key[0], {names.LABEL_BINDING: key[1]})
            self._cache.replace_binding(kind, key, found, version)
        return seen.binding if seen is not None else None

    def _look_into_trouble(self, key: Key, seen: Observation) -> None:
        """A pod that waits for a volume says so in its Events only: a Secret that is not there, for
        example."""
        now = self._clock()
        for pod in seen.pods:
            waiting = pod.phase == "Pending" and pod.trouble is None and not pod.gone_at
            if not waiting or now - pod.meta.created < timedelta(seconds=5):
                continue
            events = self._kube.events_about(key[0], pod.meta.uid)
            warnings = [each for each in events if each.get("type") == "Warning"]
            if warnings:
                last = max(warnings, key=lambda each: str(each.get("lastTimestamp") or ""))
                told = Failure(str(last.get("reason") or "DriverWaiting"), str(last.get("message") or ""))
                self._cache.explain(key, replace(pod, trouble=told))

    # -- report

    def _report(self, key: Key, planned: Plan, trouble: Failure | None, done: list[Action]) -> None:
        """One status write, last and only if something differs; Events when it has succeeded."""
        try:
            seen = self._write_status(key, planned, trouble)
        except StaleError:
            # The bridge or a person was faster. An old view must not overwrite what it has not seen: above
            # all
            # the greatest number ever given only grows.
            self._read_again(key, ())
            seen = self._write_status(key, planned, trouble)
        if seen is None:
            return
        # People read of the flip first, and then of who lingers because of it.
        for action in sorted(done, key=lambda each: isinstance(each, Retire)):
            self._reporter.tell(seen.binding, action)
        situation = understand(seen.binding, seen.generations, seen.pods, seen.service)
        leaving = {each.number for each in situation.having(Role.LEAVING)}
        if leaving:
            self._retiring.setdefault(key, _Retiring()).numbers |= leaving

    def _write_status(self, key: Key, planned: Plan, trouble: Failure | None) -> Observation | None:
        seen = self._cache.observe(key)
        if seen is None or seen.binding.meta.deleted_at:
            return None
        self._uids[key] = seen.binding.meta.uid
        situation = understand(seen.binding, seen.generations, seen.pods, seen.service)
        status = describe(situation, self._clock(), self._policy, planned.waiting, trouble)
        if status != seen.binding.status:
            self._put_status(seen, status)
        return seen

    def _put_status(self, seen: Observation, status: TopicBindingStatus) -> None:
        meta = seen.binding.meta
        body = status.wire()
        body.pop("control", None)  # the bridge's own
        body["conditions"] = [each for each in body["conditions"] if each["type"] in OURS]
        manifest = {
            "apiVersion": names.API_VERSION,
            "kind": names.BINDING_KIND,
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
            "status": body,
        }
        self._cache.put(BINDING, self._kube.apply_status(manifest))

    def _report_unreadable(self, key: Key) -> None:
        """The server let through what the models refuse: say so, touch nothing else."""
        found = self._cache.unreadable(key)
        if found is None:
            return
        manifest, words = found
        now = self._clock().replace(microsecond=0).isoformat().replace("+00:00", "Z")
        said = (manifest.get("status") or {}).get("conditions") or []
        message = f"this spec cannot be understood: {words}"
        if any(each["type"] == "Stalled" and each["message"] == message for each in said):
            return
        meta = manifest["metadata"]
        self._reporter.trouble(*key, meta["uid"], "InvalidSpec", message)
        condition = {"type": "Stalled", "status": "True", "reason": "InvalidSpec", "message": message}
        condition |= {"lastTransitionTime": now}
        self._kube.apply_status(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.BINDING_KIND,
                "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
                "status": {"conditions": [condition]},
            }
        )

    # -- proof

    def _prove_gone(self, key: Key) -> None:
        """Promise 7: a generation is called retired when nothing of it can be found any more."""
        memory, seen = self._retiring.get(key), self._cache.observe(key)
        if memory is None or seen is None:
            return
        here = {each.number for each in seen.generations}
        for number in sorted(memory.numbers - here):
            mine = {names.LABEL_BINDING: key[1], names.LABEL_GENERATION: str(number)}
            left = [
                f"{kind.kind} {each['metadata']['name']}"
                for kind in (POD, SERVICE, CLAIM)
                for each in self._kube.find(kind, key[0], mine)[0]
            ]
            if left:
                log.debug("%s/%s: generation %d leaves, still there: %s", *key, number, ", ".join(left))
                continue
            memory.numbers.discard(number)
            note = f"retired generation {number}: driver pod, executors, Service and checkpoint are gone"
            self._reporter.tell(seen.binding, Action(reason="Retired", note=note))
        if not memory.numbers:
            self._retiring.pop(key, None)

    def _forget(self, key: Key) -> None:
        self._retiring.pop(key, None)
        uid = self._uids.pop(key, None)
        if uid is not None:
            self._applier.forget(uid)

    def _next_look(self, key: Key, planned: Plan, trouble: Failure | None) -> float | None:
        waits: list[float] = []
        if planned.look_again_at is not None:
            waits.append(max(0.0, (planned.look_again_at - self._clock()).total_seconds()))
        if trouble is not None:
            waits.append(self._settings.error_cap_seconds)
        if key in self._retiring:
            waits.append(1.0)
        seen = self._cache.observe(key)
        if seen is not None and any(_silent(pod) for pod in seen.pods):
            waits.append(5.0)
        return min(waits, default=None)

    # -- everything

    def read_everything(self) -> set[Key]:
        """List all kinds afresh: at the start, and now and then, because a watch can miss a deletion."""
        ours = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
        moved: set[Key] = set()
        for namespace in self._settings.watch_namespaces or (None,):
            for kind, labels in ((GENERATION, ours), (POD, ours), (SERVICE, ours), (BINDING, {})):
                found, version = self._kube.find(kind, namespace, labels)
                moved |= self._cache.replace_all(kind, found, version, namespace)
            bridges, _ = self._kube.find(DEPLOYMENT, namespace, ours | {names.LABEL_COMPONENT: "bridge"})
            for each in bridges:
                meta: dict[str, Any] = each["metadata"]
                self._cache.note_bridge((meta["namespace"], meta["labels"][names.LABEL_BINDING]), there=True)
        return moved


def _silent(pod: SeenPod) -> bool:
    return pod.phase == "Pending" and pod.trouble is None and not pod.gone_at
