"""Whole rollouts under random disorder: edits, failing and vanishing drivers, crashes between any two
calls, old
views, two controllers that run into each other. The promises are checked at every write (see
`promises.py`), and
when the disorder ends the system must come to the newest wish in bounded time with nothing left behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.controller.apiserver import CrashError
from tests.unit.controller.world import NAME, NAMESPACE, Controller, World
from topicbinding.api import Phase, choice_hash, names
from topicbinding.controller.ports import GENERATION, POD, SERVICE
from topicbinding.controller.settings import Settings

QUICK = Settings(superseded_retention_seconds=5, retry_cap_seconds=4, stuck_grace_seconds=10)
Step = tuple[str, int, int]
STEPS = {
    "edit": 6, "linger": 2, "standby": 1, "state": 1, "rollback": 1, "pause": 1, "deadline": 1,
    "driver": 14, "lose": 2, "hear": 8, "pass": 14, "crash": 5, "interleave": 5, "time": 8, "kubelet": 4,
    "restart": 1, "remove by hand": 1, "service by hand": 1,
}  # fmt: skip
KINDS_OF_STEP = [name for name, weight in STEPS.items() for _ in range(weight)]


class Simulation:
    """Two controllers in one world."""

    def __init__(self) -> None:
        self.world = World(settings=QUICK)
        self.pair = [self.world.controller, Controller(self.world.server, QUICK)]
        self.told: list[str] = []
        for controller in self.pair:
            self._guard(controller)

    def _guard(self, controller: Controller) -> None:
        """Writes of a controller are marked as such, so that a person's deletion breaks no promise of
        ours."""
        client = controller.client
        client.before = self._mark
        client.after = self._mark

    def _mark(self, call: str) -> None:
        self.world.promises.by_controller = True

    def step(self, what: str, one: int, two: int) -> None:
        world = self.world
        if what == "edit":
            world.apply(usersTopic=f"users-{one % 3}", joinType=("left", "inner")[two % 2])
        elif what == "linger":
            world.apply(linger={"seconds": (0, 1, 8, 20)[one % 4], "maxGenerations": two % 4})
        elif what == "standby":
            world.apply(standby=one % 3, spark={"memory": ("1536Mi", "2Gi")[two % 4 == 0]})
        elif what == "state":
            world.apply(state=("Running", "Running", "Suspended")[one % 3])
        elif what == "deadline":
            world.apply(progressDeadlineSeconds=(5, 30, 300)[one % 3])
        elif what == "rollback":
            world.annotate(names.ANNOTATION_ROLLBACK, "now")
        elif what == "pause":
            world.annotate(names.ANNOTATION_PAUSED, (None, None, "true")[one % 3])
        elif what in ("driver", "lose"):
            self._driver(what, one, two)
        elif what == "hear":
            self.pair[one % 2].hear(two % 6)
        elif what == "pass":
            self.pass_of(one % 2)
        elif what == "crash":
            self._crash(one, two)
        elif what == "interleave":
            self._interleave(one, two)
        elif what == "time":
            world.server.advance((0.05, 0.5, 2, 7, 25)[one % 5])
        elif what == "kubelet":
            world.kubelet()
        elif what == "restart":
            self.pair[one % 2].start(fresh=two % 2 == 0)
        elif what == "remove by hand":
            self._remove_by_hand(one)
        elif what == "service by hand":
            where = (SERVICE.plural, NAMESPACE, names.stable_service(NAME))
            if where in world.server.objects:
                world.server.erase(SERVICE, NAMESPACE, names.stable_service(NAME))

    def _remove_by_hand(self, one: int) -> None:
        numbers = sorted(
            number for number, each in self.world.generations().items() if not each.meta.deleted_at
        )
        if numbers:
            name = names.generation_name(NAME, numbers[one % len(numbers)])
            self.world.server.delete(GENERATION, NAMESPACE, name, foreground=True)

    def pass_of(self, which: int) -> None:
        controller = self.pair[which]
        controller.run()
        self.world.promises.by_controller = False

    def _armed(self, which: int, at: int, late: bool, then: Callable[[], None]) -> None:
        """Have something happen before or after the n-th call of a controller's next pass."""
        client = self.pair[which].client
        left = [at]

        def hook(call: str) -> None:
            self._mark(call)
            left[0] -= 1
            if left[0] == 0:
                # The instant between the last look and the flip cannot be closed from outside; see `_driver`.
                then()
            self._mark(call)

        if late:
            client.after = hook
        else:
            client.before = hook
        try:
            self.pass_of(which)
        finally:
            self._guard(self.pair[which])

    def _crash(self, one: int, two: int) -> None:
        def die() -> None:
            raise CrashError

        self._armed(one % 2, two % 25 + 1, one % 4 >= 2, die)

    def _interleave(self, one: int, two: int) -> None:
        """In the middle of one controller's pass the other makes a whole one, or a person changes the
        wish."""

        def meanwhile() -> None:
            self.world.promises.by_controller = False
            other = 1 - one % 2
            if two % 3 == 0:
                self.world.apply(usersTopic=f"users-{two % 2}")
            self.pair[other].hear(two % 7)
            self.pass_of(other)

        self._armed(one % 2, two % 20 + 1, False, meanwhile)

    def _driver(self, what: str, one: int, two: int) -> None:
        """Some pod moves on, or ends badly."""
        world = self.world
        pods = [pod for pod in world.pods().values() if not pod.meta.deleted_at and not pod.finished]
        pods = [pod for pod in pods if self._owned(pod.number)]
        if not pods:
            return
        pod = pods[one % len(pods)]
        generation = world.generations()[pod.number]
        if what == "lose":
            if two % 3 == 0:
                world.pod_vanishes(pod.number)
            elif two % 3 == 1:
                world.driver_fails(pod.number, '{"reason": "Broken", "message": "it broke"}')
            elif pod.phase == "Running":
                world.report(pod.number, "Failed", reason="Broken", message="it broke")
        elif pod.phase == "Pending":
            world.pod_runs(pod.number)
        elif generation.spec.source is None:
            world.report(pod.number, "Standby")
        elif generation.status.pod_uid != pod.meta.uid:
            world.report(pod.number, "Starting")
        elif generation.status.phase in (Phase.STARTING, Phase.STANDBY):
            world.report(pod.number, "Reading", startOffsets={"users": {"0": 1}})
        elif generation.status.phase is Phase.READING:
            world.driver_catches_up(pod.number)

    def _owned(self, number: int) -> bool:
        generation = self.world.generations().get(number)
        pod = self.world.pods()[number]
        return generation is not None and pod.meta.owner == generation.meta.uid

    def converge(self) -> None:
        """The disorder ends: drivers do well, both controllers see everything. Everything must come right."""
        world = self.world
        world.annotate(names.ANNOTATION_PAUSED, None)
        world.apply(state="Running", failedRetentionSeconds=20, progressDeadlineSeconds=300)
        for controller in self.pair:
            controller.reconciler.read_everything()  # as every controller does now and then
        for _ in range(80):
            world.kubelet()
            for number, pod in world.pods().items():
                if not self._owned(number) or pod.finished or pod.meta.deleted_at:
                    continue
                if world.generations()[number].spec.source is None:
                    if pod.phase == "Pending":
                        world.pod_runs(number)
                    world.report(number, "Standby")
                elif world.generations()[number].status.phase != "Failed" or not self._reported(number):
                    world.driver_catches_up(number)
            for which in (0, 1):
                self.pair[which].hear()
                self.pass_of(which)
            if self._at_rest():
                return
            world.server.advance(2)
        raise AssertionError(f"no convergence: {self._picture()}")

    def _reported(self, number: int) -> bool:
        return self.world.generations()[number].status.pod_uid == self.world.pods()[number].meta.uid

    def _at_rest(self) -> bool:
        world = self.world
        binding, generations = world.binding, world.generations()
        active = generations.get(world.active or 0)
        standbys = {number for number, each in generations.items() if each.spec.source is None}
        ready = binding.status.condition("Ready")
        return (
            active is not None
            and active.choice_hash == choice_hash(binding.spec.choice)
            and set(generations) == {active.number} | standbys
            and len(standbys) == binding.spec.standby
            and set(world.pods()) == set(generations)
            and ready is not None
            and ready.status == "True"
            and binding.status.active_generation == active.number
            and not binding.rollback_requested
            and {each["metadata"]["name"] for each in world.server.all(SERVICE)}
            == {names.stable_service(NAME)} | {each.meta.name for each in generations.values()}
            and len(world.server.all(POD)) == len(generations)
        )

    def _picture(self) -> str:
        world = self.world
        generations = [
            f"{number}: {each.status.phase} retire {each.spec.retire_at} given up {each.given_up}"
            for number, each in world.generations().items()
        ]
        return f"active {world.active}, wish {world.binding.spec.users_topic}, {generations}, {world.pods()}"


def simulate(steps: list[Step]) -> Simulation:
    simulation = Simulation()
    simulation.world.apply(failedRetentionSeconds=20)
    for what, one, two in steps:
        simulation.step(what, one, two)
    simulation.converge()
    return simulation


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS_OF_STEP), st.integers(0, 63), st.integers(0, 63)),
        min_size=5,
        max_size=60,
    )
)
def test_promises_hold_under_any_disorder(steps: list[Step]) -> None:
    simulate(steps)


@pytest.mark.parametrize("seed", range(20))
def test_promises_hold_in_seeded_long_runs(seed: int) -> None:
    chance = random.Random(seed)
    steps = [(chance.choice(KINDS_OF_STEP), chance.randrange(64), chance.randrange(64)) for _ in range(200)]
    simulation = simulate(steps)
    assert simulation.world.promises.flips, "a long run in which nothing was ever served proves nothing"


@pytest.mark.parametrize("late", [False, True], ids=["before the call", "after it was done"])
@pytest.mark.parametrize("at", range(1, 16))
def test_a_crash_at_any_call_of_a_swap_is_harmless(at: int, late: bool) -> None:
    world = World()
    world.swap_to()
    world.server.advance(60)
    world.apply(usersTopic="users-2")
    world.settle()
    world.driver_catches_up(2)
    world.controller.hear()
    left = [at]

    def die(call: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise CrashError

    client = world.controller.client
    if late:
        client.after = die
    else:
        client.before = die
    world.promises.by_controller = True
    world.controller.run()
    world.promises.by_controller = False
    client.before = client.after = lambda call: None
    world.settle()
    assert world.active == 2
    assert world.binding.status.active_generation == 2
    assert world.binding.status.previous is not None
    assert world.binding.status.previous.generation == 1
    world.wait(10)
    assert sorted(world.generations()) == [2]


@pytest.mark.parametrize("at", range(1, 13))
def test_two_controllers_build_one_generation_for_one_change(at: int) -> None:
    world = World()
    world.swap_to()
    world.server.advance(60)
    second = Controller(world.server, world.settings)
    world.apply(usersTopic="users-2")
    world.controller.hear()
    second.hear()
    left = [at]

    def meanwhile(call: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            second.run()

    world.controller.client.before = meanwhile
    world.promises.by_controller = True
    world.controller.run()
    world.promises.by_controller = False
    world.controller.client.before = lambda call: None
    second.run()
    assert world.promises.built == [1, 2]
    assert sorted(world.generations()) == [1, 2]
