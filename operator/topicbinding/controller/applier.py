"""Carries out a plan's actions through the Kubernetes port, one by one, in order. Decides nothing.

Called by the reconciler. Every answer goes back into the cache, so the next plan sees what this one did.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from topicbinding.api import Choice, names
from topicbinding.controller import actions as act
from topicbinding.controller import manifests
from topicbinding.controller.cache import Cache, Key, Observation
from topicbinding.controller.children import BRIDGE_KINDS, children
from topicbinding.controller.observed import (
    ANNOTATION_FAILURES,
    ANNOTATION_PREVIOUS,
    ANNOTATION_WAS_ACTIVE,
    ANNOTATION_WISHED_AT,
    Failure,
    Manifest,
    SeenGeneration,
)
from topicbinding.controller.ports import (
    BINDING,
    CLAIM,
    GENERATION,
    POD,
    SERVICE,
    Kind,
    Kube,
    RefusedError,
    StaleError,
)
from topicbinding.controller.settings import Settings

# A refusal of these disturbs nothing that follows them in a plan; after any other the rest must not happen.
_INDEPENDENT = (
    act.EnsureChildren,
    act.CreateGeneration,
    act.CreateDriver,
    act.RemoveDriver,
    act.RecordFailure,
)


class Applier:
    def __init__(self, kube: Kube, cache: Cache, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._kube = kube
        self._cache = cache
        self._settings = settings
        self._clock = clock
        # What was applied, and when: children are not watched, so they are applied on change and now and
        # then.
        self._applied: dict[str, dict[tuple[str, str], tuple[str, datetime]]] = {}

    def apply(
        self, key: Key, seen: Observation, todo: tuple[act.Action, ...], done: list[act.Action]
    ) -> Failure | None:
        """Appends to `done` as it goes, so that a failure half-way loses no word of what was done."""
        trouble: Failure | None = None
        for action in todo:
            try:
                if self._do(key, seen, action):
                    done.append(action)
            except RefusedError as refused:
                trouble = trouble or Failure(refused.reason, str(refused))
                if not isinstance(action, _INDEPENDENT):
                    break
        return trouble

    def forget(self, uid: str) -> None:
        """The binding of this uid is gone."""
        self._applied.pop(uid, None)

    def _do(self, key: Key, seen: Observation, action: act.Action) -> bool:
        match action:
            case act.EnsureChildren():
                return self._ensure_children(seen, action)
            case act.CreateGeneration():
                made = self._kube.create(manifests.generation(seen.binding, action))
                self._cache.put(GENERATION, made)
            case act.GiveSource():
                self._mark(
                    seen,
                    action.number,
                    spec={"source": action.source.wire()},
                    labels={names.LABEL_CHOICE: action.choice_hash},
                    annotations={ANNOTATION_WISHED_AT: action.wished_at.isoformat()},
                )
            case act.CreateDriver():
                self._create_driver(seen, action.number)
            case act.RemoveDriver():
                self._remove_driver(seen, action)
            case act.RecordFailure():
                self._mark(
                    seen,
                    action.number,
                    annotations={ANNOTATION_FAILURES: action.failures.wire()},
                    exact=False,
                )
            case act.GiveUp():
                self._mark(
                    seen,
                    action.number,
                    spec={"retireAt": _wire(action.retire_at)},
                    annotations={names.ANNOTATION_GIVEN_UP: action.why},
                )
            case act.Reinstate():
                self._mark(
                    seen,
                    action.number,
                    spec={"retireAt": None},
                    annotations={names.ANNOTATION_GIVEN_UP: None},
                )
            case act.Retire():
                self._mark(
                    seen,
                    action.number,
                    spec={"retireAt": _wire(action.at)},
                    annotations={ANNOTATION_WAS_ACTIVE: "true"},
                )
            case act.Keep():
                self._mark(seen, action.number, spec={"retireAt": None})
            case act.Flip():
                self._flip(seen, action)
            case act.Remove():
                self._remove(key, seen, action.number)
            case act.Rollback():
                self._rollback(seen, action.choice)
        return True

    def _ensure_children(self, seen: Observation, action: act.EnsureChildren) -> bool:
        binding = seen.binding
        for manifest in children(binding, self._settings):
            self._ensure(binding.meta.uid, manifest)
        if binding.spec.control is not None:
            self._cache.note_bridge((binding.meta.namespace, binding.meta.name), there=True)
        elif seen.bridge:
            self._remove_bridge(seen)
        if not action.service_missing:
            return False
        # Created, never applied: its selector says what is active, and only a flip may move that. If one of
        # the
        # same name is there (of a binding deleted a moment ago) the name is taken, and this is tried again.
        made = self._kube.create(manifests.stable_service(binding, action.active))
        self._cache.put(SERVICE, made)
        return True

    def _ensure(self, uid: str, manifest: Manifest) -> None:
        what = (manifest["kind"], manifest["metadata"]["name"])
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        known = self._applied.setdefault(uid, {}).get(what)
        now = self._clock()
        fresh = timedelta(seconds=self._settings.drift_seconds)
        if known is not None and known[0] == digest and now - known[1] < fresh:
            return
        self._kube.apply(manifest)
        self._applied[uid][what] = (digest, now)

    def _remove_bridge(self, seen: Observation) -> None:
        meta = seen.binding.meta
        name = names.bridge_name(meta.name)
        for kind in BRIDGE_KINDS:
            self._kube.delete(kind, meta.namespace, name)
            self._applied.get(meta.uid, {}).pop((kind.kind, name), None)
        self._cache.note_bridge((meta.namespace, meta.name), there=False)

    def _generation(self, seen: Observation, number: int) -> SeenGeneration:
        """As the cache has it now: earlier actions of this very plan may have changed it."""
        fresh = self._cache.observe((seen.binding.meta.namespace, seen.binding.meta.name))
        for each in fresh.generations if fresh else ():
            if each.number == number and each.spec.binding_uid == seen.binding.meta.uid:
                return each
        raise StaleError(f"generation {number} is gone")

    def _mark(
        self,
        seen: Observation,
        number: int,
        *,
        spec: dict[str, Any] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str | None] | None = None,
        exact: bool = True,
    ) -> None:
        generation = self._generation(seen, number)
        metadata: dict[str, Any] = {"uid": generation.meta.uid}
        if exact:
            metadata["resourceVersion"] = generation.meta.resource_version
        if labels:
            metadata["labels"] = labels
        if annotations:
            metadata["annotations"] = annotations
        body = {"metadata": metadata} | ({"spec": spec} if spec else {})
        answer = self._kube.patch(GENERATION, generation.meta.namespace, generation.meta.name, body)
        self._cache.put(GENERATION, answer)

    def _create_driver(self, seen: Observation, number: int) -> None:
        generation = self._generation(seen, number)
        self._ensure(seen.binding.meta.uid, manifests.headless_service(generation))
        claim = manifests.checkpoint_claim(generation)
        if claim is not None:
            self._ensure(seen.binding.meta.uid, claim)
        pod = self._kube.create(manifests.driver_pod(generation, self._settings))
        self._cache.put(POD, pod)

    def _remove_driver(self, seen: Observation, action: act.RemoveDriver) -> None:
        meta = seen.binding.meta
        name = names.generation_name(meta.name, action.number)
        grace = 0 if action.at_once else None
        self._kube.delete(POD, meta.namespace, name, uid=action.uid, grace_seconds=grace)
        self._look(POD, (meta.namespace, meta.name), name)

    def _flip(self, seen: Observation, action: act.Flip) -> None:
        binding, service = seen.binding, seen.service
        if service is None or service.meta.owner != binding.meta.uid:
            raise StaleError("the stable Service is not there")
        selector = manifests.selector(binding.meta.name, action.to) | {f"{names.GROUP}/none": None}
        metadata: dict[str, Any] = {"resourceVersion": service.meta.resource_version}
        if action.previous is not None:
            metadata["annotations"] = {ANNOTATION_PREVIOUS: json.dumps(action.previous.wire())}
        body = {"metadata": metadata, "spec": {"selector": selector}}
        answer = self._kube.patch(SERVICE, service.meta.namespace, service.meta.name, body)
        self._cache.put(SERVICE, answer)

    def _remove(self, key: Key, seen: Observation, number: int) -> None:
        generation = self._generation(seen, number)
        self._kube.delete(
            GENERATION,
            generation.meta.namespace,
            generation.meta.name,
            uid=generation.meta.uid,
            resource_version=generation.meta.resource_version,
            foreground=True,
        )
        known = self._applied.get(seen.binding.meta.uid, {})
        known.pop((SERVICE.kind, generation.meta.name), None)
        known.pop((CLAIM.kind, names.checkpoint_claim(generation.meta.name)), None)
        self._look(GENERATION, key, generation.meta.name)

    def _rollback(self, seen: Observation, choice: Choice | None) -> None:
        meta = seen.binding.meta
        body: dict[str, Any] = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "annotations": {names.ANNOTATION_ROLLBACK: None},
            }
        }
        if choice is not None:
            body["spec"] = difference(seen.binding.spec.choice.wire(), choice.wire())
        self._cache.put(BINDING, self._kube.patch(BINDING, meta.namespace, meta.name, body))

    def _look(self, kind: Kind, key: Key, name: str) -> None:
        """See what became of what was deleted, so that the next plan does not decide on what was."""
        found = self._kube.get(kind, key[0], name)
        if found is None:
            self._cache.absent(kind, key, name)
        else:
            self._cache.put(kind, found)


def difference(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `then` out of `now`: what is no longer said must be taken away by name.

    >>> difference({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}})
    {'b': {'c': 4, 'd': None}}
    """
    patch: dict[str, Any] = {key: None for key in now if key not in then}
    for key, value in then.items():
        before = now.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            inner = difference(before, value)
            if inner:
                patch[key] = inner
        elif before != value:
            patch[key] = value
    return dict(sorted(patch.items()))


def _wire(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
