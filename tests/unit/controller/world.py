"""The world around a controller: people who edit, drivers that start, read, catch up, fail and vanish, time.

Used by the stories, the named bug tests and the random simulation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.unit.controller.apiserver import ApiServer, Client, CrashError
from tests.unit.controller.promises import Promises
from topicbinding.api import names
from topicbinding.controller.cache import Cache
from topicbinding.controller.observed import (
    Manifest,
    SeenBinding,
    SeenGeneration,
    SeenPod,
    read_binding,
    read_generation,
    read_pod,
    read_service,
)
from topicbinding.controller.ports import (
    BINDING,
    CLAIM,
    EVENT,
    GENERATION,
    POD,
    SERVICE,
    Kind,
    StaleError,
    UnavailableError,
)
from topicbinding.controller.reconciler import Reconciler
from topicbinding.controller.settings import Settings

NAMESPACE, NAME = "shop", "orders"
KEY = (NAMESPACE, NAME)
SPEC: dict[str, Any] = {
    "usersTopic": "users-v1",
    "accountsTopic": "accounts-v1",
    "kafka": {"bootstrapServers": "kafka:9092"},
}


@dataclass
class Controller:
    """One controller process: a cache, a place in the log of events, and when it wants to look again."""

    server: ApiServer
    settings: Settings
    client: Client = field(init=False)
    cursor: int = 0
    wake_at: float | None = None
    crashes: int = 0

    def __post_init__(self) -> None:
        self.client = Client(self.server)
        self.start(fresh=True)

    def start(self, *, fresh: bool) -> None:
        """A new process knows nothing. `fresh`: it lists first, as the real one does; else it only has
        events."""
        self.cache = Cache(self.server.clock)
        self.reconciler = Reconciler(self.client, self.cache, self.settings, self.server.clock)
        self.cursor = len(self.server.log)
        if fresh:
            before, self.client.before = self.client.before, lambda call: None
            self.reconciler.read_everything()
            self.client.before = before

    def hear(self, most: int | None = None) -> None:
        """Take in the next events of the watch, all or some: the view of the others stays old."""
        upto = len(self.server.log) if most is None else min(len(self.server.log), self.cursor + most)
        for what, kind, manifest in self.server.log[self.cursor : upto]:
            if kind.plural in {BINDING.plural, GENERATION.plural, POD.plural, SERVICE.plural}:
                (self.cache.put if what == "put" else self.cache.drop)(kind, copy.deepcopy(manifest))
        self.cursor = upto

    def run(self, key: tuple[str, str] = KEY) -> bool:
        """One pass. False: it crashed or found its view too old, and will look again."""
        try:
            wait = self.reconciler.pass_over(key)
        except CrashError:
            self.crashes += 1
            self.start(fresh=True)
            return False
        except (StaleError, UnavailableError):
            return False
        self.wake_at = None if wait is None else self.server.now.timestamp() + wait
        return True


@dataclass
class World:
    settings: Settings = field(default_factory=Settings)
    server: ApiServer = field(default_factory=ApiServer)

    def __post_init__(self) -> None:
        self.promises = Promises(self.server)
        self.controller = Controller(self.server, self.settings)

    # -- people

    def apply(self, **changes: Any) -> None:
        """kubectl apply: create the binding, or change its spec."""
        present = copy.deepcopy(self.server.objects.get((BINDING.plural, *KEY)))
        if present is None:
            present = {
                "apiVersion": names.API_VERSION,
                "kind": names.BINDING_KIND,
                "metadata": {"name": NAME, "namespace": NAMESPACE},
                "spec": copy.deepcopy(SPEC),
            }
        present["spec"] |= copy.deepcopy(changes)
        self.server.write(BINDING, present)

    def annotate(self, annotation: str, value: str | None) -> None:
        present = copy.deepcopy(self.server.objects[BINDING.plural, *KEY])
        annotations = present["metadata"].setdefault("annotations", {})
        if value is None:
            annotations.pop(annotation, None)
        else:
            annotations[annotation] = value
        self.server.write(BINDING, present)

    def delete_binding(self) -> None:
        self.server.erase(BINDING, *KEY)

    # -- what is there

    @property
    def binding(self) -> SeenBinding:
        return read_binding(self.server.objects[BINDING.plural, *KEY])

    @property
    def active(self) -> int | None:
        service = self.server.objects.get((SERVICE.plural, NAMESPACE, names.stable_service(NAME)))
        return read_service(service).active if service else None

    def generations(self) -> dict[int, SeenGeneration]:
        return {each.number: each for each in map(read_generation, self.server.all(GENERATION))}

    def pods(self) -> dict[int, SeenPod]:
        return {each.number: each for each in map(read_pod, self.server.all(POD))}

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = self.binding.status.condition(kind)
        assert found is not None, f"no condition {kind}"
        return found.status, found.reason, found.message

    def events(self) -> list[str]:
        return [each["message"] for each in self.server.all(EVENT)]

    # -- drivers

    def _change(self, kind: Kind, number: int, status: dict[str, Any]) -> None:
        present = copy.deepcopy(
            self.server.objects[kind.plural, NAMESPACE, names.generation_name(NAME, number)]
        )
        present["status"] = present.get("status", {}) | status
        self.server.write(kind, present)

    def pod_runs(self, number: int) -> None:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self._change(POD, number, {"phase": "Running"} | ready)

    def report(self, number: int, phase: str, **more: Any) -> None:
        uid = self.pods()[number].meta.uid
        said = {"phase": phase, "podUid": uid, "updatedAt": self.server.stamp()} | more
        self._change(GENERATION, number, said)

    def driver_catches_up(self, number: int) -> None:
        if self.pods()[number].phase != "Running":
            self.pod_runs(number)
        offsets = {"users": {"0": 1}, "accounts": {"0": 1}}
        rows = {"users": 10, "accounts": 5, "final": 10}
        self.report(number, "CaughtUp", startOffsets=offsets, rows=rows)

    def driver_fails(self, number: int, message: str = "boom") -> None:
        ended = {"exitCode": 1, "finishedAt": self.server.stamp(), "message": message}
        containers = [{"name": "driver", "state": {"terminated": ended}}]
        self.promises.broken_pods.add(self.pods()[number].meta.uid)
        self._change(POD, number, {"phase": "Failed", "containerStatuses": containers, "conditions": []})

    def pod_vanishes(self, number: int) -> None:
        self.promises.broken_pods.add(self.pods()[number].meta.uid)
        self.server.erase(POD, NAMESPACE, names.generation_name(NAME, number))

    def kubelet(self) -> None:
        """Pods that were told to end do so; garbage is collected."""
        for each in self.server.all(POD):
            if each["metadata"].get("deletionTimestamp"):
                self.server.erase(POD, NAMESPACE, each["metadata"]["name"])
        while self.server.collect_garbage():
            pass

    # -- time

    def settle(self, passes: int = 40) -> None:
        """Let the controller hear and act until it has nothing more to do now."""
        for _ in range(passes):
            self.controller.hear()
            self.promises.by_controller = True
            calm = self.controller.run()
            self.promises.by_controller = False
            self.kubelet()
            due = self.controller.wake_at
            heard = self.controller.cursor == len(self.server.log)
            if calm and heard and (due is None or due > self.server.now.timestamp() + 0.2):
                return
            self.server.advance(0.02)
        raise AssertionError("the controller does not come to rest")

    def wait(self, seconds: float) -> None:
        """Time goes by; the controller wakes when it asked to be woken."""
        end = self.server.now + timedelta(seconds=seconds)
        while self.server.now < end:
            due = self.controller.wake_at
            left = (end - self.server.now).total_seconds()
            step = left if due is None else min(left, max(0.02, due - self.server.now.timestamp()))
            self.server.advance(step)
            self.settle()

    def swap_to(self, **changes: Any) -> int:
        """A wish, its generation built and caught up; the number that serves then."""
        self.apply(**changes)
        self.settle()
        self.server.advance(self.settings.settle_seconds)
        self.settle()
        newest = max(self.generations())
        self.driver_catches_up(newest)
        self.settle()
        return newest

    def leftovers(self) -> list[str]:
        kinds = (GENERATION, POD, SERVICE, CLAIM)
        return [each["metadata"]["name"] for kind in kinds for each in self.server.all(kind)]


def manifest_of(world: World, kind: Kind, name: str) -> Manifest:
    return world.server.objects[kind.plural, NAMESPACE, name]
