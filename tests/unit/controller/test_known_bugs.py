"""Bugs that controllers like this one have had in public, each with a test that fails if we have it too."""

from __future__ import annotations

import pytest

from tests.unit.controller.apiserver import CrashError
from tests.unit.controller.world import World
from topicbinding.api import names


@pytest.fixture
def world() -> World:
    world = World()
    world.apply()
    world.settle()
    world.driver_catches_up(1)
    world.settle()
    world.server.advance(60)
    return world


def crash_after(world: World, call: str) -> None:
    """The controller dies right after this call was carried out, before it could say or do anything else."""

    def die(done: str) -> None:
        if done == call:
            raise CrashError

    client = world.controller.client
    client.after = die
    world.controller.hear()
    world.promises.by_controller = True
    world.controller.run()
    world.promises.by_controller = False
    client.after = lambda done: None
    assert world.controller.crashes == 1, f"no {call} was made"


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_revision_limit_is_not_off_by_one(world: World, limit: int) -> None:
    world.apply(linger={"seconds": 100, "maxGenerations": limit})
    for number in range(limit):
        world.swap_to(usersTopic=f"users-{number}")
    assert len(world.generations()) == limit + 1, "exactly the limit lingers beside the active one"
    serving = world.active
    world.swap_to(usersTopic="one-too-many")
    assert world.active == serving
    world.wait(100)
    assert world.active == max(world.generations())


@pytest.mark.parametrize("linger", [{"seconds": 0}, {"seconds": 100, "maxGenerations": 0}], ids=str)
def test_zero_does_not_mean_for_ever(world: World, linger: dict[str, int]) -> None:
    world.apply(linger=linger)
    world.swap_to(usersTopic="users-2")
    world.wait(0.5)
    assert sorted(world.generations()) == [2]


def test_zero_retention_of_failed_ones_does_not_mean_for_ever(world: World) -> None:
    world.apply(failedRetentionSeconds=0, progressDeadlineSeconds=10, usersTopic="users-2")
    world.settle()
    world.wait(11)
    assert 2 not in world.generations()


def test_a_deadline_does_not_mark_a_healthy_binding_failed_later(world: World) -> None:
    world.apply(progressDeadlineSeconds=10)
    world.wait(3600)
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("Ready")[0] == "True"
    world.pod_vanishes(1)
    world.wait(60)
    assert not world.generations()[1].given_up, "its deadline was for catching up the first time"
    assert world.condition("Stalled")[0] == "False"


def test_a_second_broken_generation_times_out_too(world: World) -> None:
    world.apply(progressDeadlineSeconds=10, failedRetentionSeconds=1000)
    for number, topic in ((2, "users-2"), (3, "users-3")):
        world.apply(usersTopic=topic)
        world.settle()
        world.server.advance(1)
        world.settle()
        world.wait(11)
        assert world.generations()[number].given_up == "ProgressDeadlineExceeded"
        assert f"generation {number} was given up" in world.condition("Stalled")[2]


def test_abort_then_redeploy_keeps_the_linger(world: World) -> None:
    world.apply(linger={"seconds": 30})
    world.swap_to(usersTopic="users-2")
    promised = world.generations()[1].spec.retire_at
    world.apply(usersTopic="users-3")
    world.settle()
    world.apply(usersTopic="users-2")
    world.settle()
    world.wait(2)
    world.apply(usersTopic="users-3")
    world.wait(2)
    assert world.generations()[1].spec.retire_at == promised
    world.driver_catches_up(max(world.generations()))
    world.settle()
    assert 1 in world.generations()
    world.wait(40)
    assert len(world.generations()) == 1


def test_crash_between_flip_and_status_write(world: World) -> None:
    world.apply(usersTopic="users-2")
    world.settle()
    world.driver_catches_up(2)
    crash_after(world, "flip")
    assert world.active == 2
    assert world.binding.status.active_generation == 1, "the crash came before the status"
    world.settle()
    assert world.binding.status.active_generation == 2
    assert world.binding.status.previous is not None
    assert world.binding.status.previous.generation == 1
    assert world.promises.flips == [(None, 1), (1, 2)], "it is not flipped twice"
    world.wait(9)
    assert sorted(world.generations()) == [2]


def test_crash_between_delete_and_status_write(world: World) -> None:
    world.swap_to(usersTopic="users-2")
    world.server.advance(9)
    crash_after(world, "delete Generation")
    world.settle()
    assert sorted(world.generations()) == [2]
    world.swap_to(usersTopic="users-3")
    assert world.active == 3, "no number is given twice"


def test_failed_generations_that_never_served_are_collected(world: World) -> None:
    world.apply(progressDeadlineSeconds=10, failedRetentionSeconds=20)
    for topic in ("users-2", "users-3", "users-4"):
        world.apply(usersTopic=topic)
        world.settle()
        world.wait(12)
    assert len([each for each in world.generations().values() if each.given_up]) >= 2
    world.apply(usersTopic="users-v1")
    world.settle()
    world.wait(40)
    assert sorted(world.generations()) == [1]
    assert sorted(world.pods()) == [1]


def test_after_a_rollback_the_old_active_leaves(world: World) -> None:
    world.swap_to(usersTopic="users-2")
    world.annotate(names.ANNOTATION_ROLLBACK, "now")
    world.settle()
    assert world.active == 1
    world.wait(7)
    assert 2 in world.generations(), "it has its linger"
    world.wait(2)
    assert sorted(world.generations()) == [1]
    assert sorted(world.pods()) == [1]
