"""The promises of the architecture page as checks on every write of the simulated API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.unit.controller.apiserver import ApiServer
from topicbinding.api import names
from topicbinding.controller.observed import Manifest, read_binding, read_generation, read_pod, read_service
from topicbinding.controller.ports import BINDING, GENERATION, POD, SERVICE, Kind


class PromiseBrokenError(AssertionError):
    pass


@dataclass
class Promises:
    """Watches the truth. Knows what no controller may forget: who served, and until when they may linger."""

    server: ApiServer
    served: set[str] = field(default_factory=set)  # uids of generations that were active once
    promised: dict[str, datetime] = field(default_factory=dict)  # uid -> end of its linger
    broken_pods: set[str] = field(default_factory=set)  # uids of pods that ended or were killed by the world
    flips: list[tuple[int | None, int]] = field(default_factory=list)
    built: list[int] = field(default_factory=list)
    highest: dict[str, int] = field(default_factory=dict)
    by_controller: bool = False  # is the present write a controller's?

    def __post_init__(self) -> None:
        self.server.watchers.append(self.check)

    def check(self, what: str, kind: Kind, before: Manifest | None, after: Manifest | None) -> None:
        if kind is SERVICE and after is not None:
            self._service(before, after)
        if kind is GENERATION and after is not None and before is None:
            self._born(after)
        if kind is GENERATION and after is not None and before is not None:
            left = bool(after["metadata"].get("deletionTimestamp"))
            if left and not before["metadata"].get("deletionTimestamp"):
                self._leaves(before)
        if kind is GENERATION and what == "drop" and before is not None:
            self._gone(before)
        if kind is POD and self.by_controller:
            self._pod(before, after)

    def _binding(self, namespace: str, name: str) -> Manifest | None:
        return self.server.objects.get((BINDING.plural, namespace, name))

    def _active(self, namespace: str, binding: str) -> int | None:
        service = self.server.objects.get((SERVICE.plural, namespace, names.stable_service(binding)))
        return read_service(service).active if service else None

    def _service(self, before: Manifest | None, after: Manifest) -> None:
        binding = after["metadata"]["labels"].get(names.LABEL_BINDING, "")
        if after["metadata"]["name"] != names.stable_service(binding):
            return
        was, now = read_service(before).active if before else None, read_service(after).active
        if now is None or now == was:
            return
        namespace = after["metadata"]["namespace"]
        name = names.generation_name(binding, now)
        target = self.server.objects.get((GENERATION.plural, namespace, name))
        pod = self.server.objects.get((POD.plural, namespace, name))
        if target is None:
            raise PromiseBrokenError(f"1: the Service points at generation {now}, which does not exist")
        seen = read_generation(target)
        if seen.meta.deleted_at:
            raise PromiseBrokenError(f"1: the Service points at generation {now}, which is leaving")
        restored = before is None and seen.meta.uid in self.served
        if not restored and seen.status.phase != "CaughtUp":
            raise PromiseBrokenError(f"1: flip to generation {now}, which is {seen.status.phase}")
        if not restored and (pod is None or seen.status.pod_uid != read_pod(pod).meta.uid):
            raise PromiseBrokenError(f"1: flip to generation {now} on the word of a pod that is gone")
        self._left_behind(namespace, binding, was)
        self.served.add(seen.meta.uid)
        self.promised.pop(seen.meta.uid, None)
        if not restored:
            self.flips.append((was, now))

    def _left_behind(self, namespace: str, binding: str, was: int | None) -> None:
        owner = self._binding(namespace, binding)
        old = self.server.objects.get(
            (GENERATION.plural, namespace, names.generation_name(binding, was or 0))
        )
        if owner is None or old is None or was is None:
            return
        spec = read_binding(owner).spec
        seconds = spec.linger.seconds if spec.linger.max_generations else 0
        seen = read_generation(old)
        until = self.server.now + timedelta(seconds=seconds)
        if seen.meta.deleted_at:
            return  # removed by a person: there is nobody left to linger
        if seen.spec.retire_at is None or (seconds and seen.spec.retire_at < until):
            raise PromiseBrokenError(f"3: generation {was} is left without its linger")
        self.promised[seen.meta.uid] = until
        lingering = [
            each
            for each in map(read_generation, self.server.all(GENERATION))
            if each.meta.uid in self.promised and not each.meta.deleted_at and each.spec.binding == binding
        ]
        target = self._active(namespace, binding)
        lingering = [each for each in lingering if each.number != target]
        if seconds and len(lingering) > spec.linger.max_generations:
            raise PromiseBrokenError(f"3: {len(lingering)} generations linger")

    def _born(self, manifest: Manifest) -> None:
        seen = read_generation(manifest)
        known = self.highest.get(seen.spec.binding_uid, 0)
        if seen.number <= known and seen.spec.source is not None:
            raise PromiseBrokenError(f"4: number {seen.number} was given before")
        if seen.spec.source is None:
            return
        self.highest[seen.spec.binding_uid] = seen.number
        self.built.append(seen.number)
        active = self._active(seen.meta.namespace, seen.spec.binding)
        for other in map(read_generation, self.server.all(GENERATION)):
            if other.spec.binding_uid != seen.spec.binding_uid or other.number in (seen.number, active):
                continue
            if other.meta.deleted_at or other.spec.source is None:
                continue
            if other.meta.uid not in self.served and not other.given_up:
                raise PromiseBrokenError(f"6: {other.number} is still being built beside {seen.number}")
            pod = self.server.objects.get((POD.plural, other.meta.namespace, other.meta.name))
            here = read_pod(pod) if pod is not None else None
            word = (
                here is not None
                and here.alive
                and other.status.phase == "CaughtUp"
                and other.status.pod_uid == here.meta.uid
            )
            if word and other.meta.uid in self.promised and other.choice_hash == seen.choice_hash:
                raise PromiseBrokenError(f"9: {seen.number} is built although {other.number} lingers")

    def _leaves(self, manifest: Manifest) -> None:
        """Somebody asked for its deletion."""
        seen = read_generation(manifest)
        if not self.by_controller:
            owner = self._binding(seen.meta.namespace, seen.spec.binding)
            recorded = read_binding(owner).status.latest_generation if owner else None
            # What a person removes in the instant before its number is on record is the one exception.
            self.highest[seen.spec.binding_uid] = recorded or 0
            return
        if self._active(seen.meta.namespace, seen.spec.binding) == seen.number:
            raise PromiseBrokenError(f"2: the active generation {seen.number} is removed")
        until = self.promised.get(seen.meta.uid)
        if until is not None and self.server.now < until:
            raise PromiseBrokenError(f"3: generation {seen.number} is removed inside its linger")

    def _gone(self, manifest: Manifest) -> None:
        seen = read_generation(manifest)
        mine = {names.LABEL_BINDING: seen.spec.binding, names.LABEL_GENERATION: str(seen.number)}
        left = [
            where
            for where, each in self.server.objects.items()
            if mine.items() <= each["metadata"].get("labels", {}).items()
            and {"uid": seen.meta.uid}.items() <= (each["metadata"].get("ownerReferences") or [{}])[0].items()
        ]
        owner = self._binding(seen.meta.namespace, seen.spec.binding)
        # With the whole binding gone, or deleted by hand in the background, the collector is on its way.
        if left and owner and owner["metadata"]["uid"] == seen.spec.binding_uid:
            raise PromiseBrokenError(f"7: generation {seen.number} is gone, but not {left}")

    def _pod(self, before: Manifest | None, after: Manifest | None) -> None:
        """A controller ends a pod."""
        ended = before is not None and (after is None or bool(after["metadata"].get("deletionTimestamp")))
        if not ended or before is None or before["metadata"].get("deletionTimestamp"):
            return
        pod = read_pod(before)
        name = before["metadata"]["name"]
        found = self.server.objects.get((GENERATION.plural, pod.meta.namespace, name))
        if found is None or pod.finished or pod.meta.uid in self.broken_pods:
            return
        seen = read_generation(found)
        owner = self._binding(pod.meta.namespace, seen.spec.binding)
        if owner is None or seen.meta.uid != pod.meta.owner or seen.meta.deleted_at:
            return
        suspended = read_binding(owner).spec.state == "Suspended"
        active = self._active(pod.meta.namespace, seen.spec.binding) == seen.number
        if active and not suspended and seen.status.phase != "Failed":
            raise PromiseBrokenError(f"2: the driver of the active generation {seen.number} is stopped")
        until = self.promised.get(seen.meta.uid)
        if not active and until is not None and self.server.now < until and seen.status.phase != "Failed":
            raise PromiseBrokenError(f"3: the driver of {seen.number} is stopped inside its linger")
