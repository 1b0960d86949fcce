"""The planner's promises one by one, on whole passes of the real reconciler over a simulated API server."""

from __future__ import annotations

import pytest

from tests.unit.controller.world import World
from topicbinding.api import names
from topicbinding.controller.ports import POD, SERVICE


@pytest.fixture
def world() -> World:
    return World()


def test_first_generation_is_built_and_served_when_caught_up(world: World) -> None:
    world.apply()
    world.settle()
    assert list(world.generations()) == [1]
    assert world.active is None
    assert world.condition("Ready")[:2] == ("False", "DriverStarting")
    assert world.condition("Progressing")[0] == "True"
    world.driver_catches_up(1)
    world.settle()
    assert world.active == 1
    assert world.condition("Ready")[:2] == ("True", "Serving")
    assert world.condition("Progressing")[:2] == ("False", "UpToDate")
    status = world.binding.status
    assert (status.users_topic, status.accounts_topic, status.join_type) == (
        "users-v1",
        "accounts-v1",
        "left",
    )
    assert (status.active_generation, status.latest_generation, status.observed_generation) == (1, 1, 1)


def test_a_relevant_change_builds_beside_and_flips_when_caught_up(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    world.apply(usersTopic="users-v2")
    world.settle()
    assert sorted(world.generations()) == [1, 2]
    assert world.active == 1
    assert world.condition("Ready")[0] == "True"
    world.driver_catches_up(2)
    world.settle()
    assert world.active == 2
    assert sorted(world.generations()) == [1, 2]
    world.wait(7.5)
    assert sorted(world.generations()) == [1, 2]
    world.wait(1.5)
    assert sorted(world.generations()) == [2]
    assert "retired generation 1: driver pod, executors, Service and checkpoint are gone" in world.events()


@pytest.mark.parametrize(
    "change",
    [
        {"linger": {"seconds": 30}},
        {"progressDeadlineSeconds": 20},
        {"failedRetentionSeconds": 20},
        {"control": {"topic": "control"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_in_place_changes_build_nothing(world: World, change: dict[str, object]) -> None:
    world.swap_to()
    world.apply(**change)
    world.settle()
    assert sorted(world.generations()) == [1]
    assert world.binding.status.observed_generation == 2


def test_the_newest_wish_wins_and_an_unstarted_candidate_is_dropped(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    for number in range(10):
        world.apply(usersTopic=f"users-{number}")
        world.settle()
        world.server.advance(0.01)
    world.wait(2)
    assert len(world.promises.built) <= 3  # the first generation, the first of the burst, the last
    assert [each.spec.source.users_topic for each in world.generations().values() if each.spec.source][
        -1
    ] == "users-9"
    alive = [each for each in world.generations().values() if not each.given_up]
    assert len(alive) == 2


def test_a_started_candidate_that_is_superseded_stops_and_can_be_looked_at(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    world.apply(usersTopic="users-2")
    world.settle()
    world.pod_runs(2)
    world.report(2, "Reading", startOffsets={"users": {"0": 1}})
    world.settle()
    world.server.advance(2)
    world.apply(usersTopic="users-3")
    world.settle()
    assert world.generations()[2].given_up == "Superseded"
    assert sorted(world.pods()) == [1, 3]
    world.driver_catches_up(3)
    world.settle()
    assert world.active == 3
    world.wait(61)
    assert sorted(world.generations()) == [3]


def test_the_cap_makes_a_flip_wait_and_nobody_leaves_early(world: World) -> None:
    world.apply(linger={"seconds": 20, "maxGenerations": 2})
    world.settle()
    world.driver_catches_up(1)
    world.settle()
    world.swap_to(usersTopic="users-2")
    world.swap_to(usersTopic="users-3")
    assert world.active == 3
    world.swap_to(usersTopic="users-4")
    assert world.active == 3, "two linger already"
    assert world.condition("Progressing")[:2] == ("True", "WaitingForLinger")
    world.wait(21)
    assert world.active == 4
    world.wait(25)
    assert sorted(world.generations()) == [4]


def test_linger_zero_means_at_once(world: World) -> None:
    world.apply(linger={"seconds": 0})
    world.settle()
    world.driver_catches_up(1)
    world.settle()
    world.swap_to(usersTopic="users-2")
    world.wait(0.5)
    assert sorted(world.generations()) == [2]
    assert world.binding.status.previous is not None
    assert world.binding.status.previous.choice.users_topic == "users-v1"


def test_going_back_to_a_lingering_generation_is_a_flip(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    world.swap_to(usersTopic="users-2")
    built = list(world.promises.built)
    pods = {number: pod.meta.uid for number, pod in world.pods().items()}
    world.apply(usersTopic="users-v1")
    world.settle()
    assert world.active == 1
    assert world.promises.built == built
    assert {number: pod.meta.uid for number, pod in world.pods().items()} == pods
    assert world.generations()[1].spec.retire_at is None
    assert world.generations()[2].spec.retire_at is not None
    world.wait(9)
    assert sorted(world.generations()) == [1]


def test_rollback_by_annotation_flips_back_and_restores_the_spec(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    world.swap_to(usersTopic="users-2", kafka={"bootstrapServers": "kafka:9092", "properties": {"a": "b"}})
    world.annotate(names.ANNOTATION_ROLLBACK, "please")
    world.settle()
    assert world.active == 1
    assert world.binding.spec.users_topic == "users-v1"
    assert world.binding.spec.kafka.properties == {}
    assert not world.binding.rollback_requested


def test_rollback_after_the_linger_builds_the_previous_choice(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    world.swap_to(usersTopic="users-2")
    world.wait(10)
    world.annotate(names.ANNOTATION_ROLLBACK, "please")
    world.settle()
    choice = world.generations()[3].choice
    assert choice is not None
    assert choice.users_topic == "users-v1"


def test_rollback_without_a_previous_generation_is_answered(world: World) -> None:
    world.swap_to()
    world.annotate(names.ANNOTATION_ROLLBACK, "please")
    world.settle()
    assert not world.binding.rollback_requested
    assert "there is no previous generation to go back to; the request was dropped" in world.events()


def test_the_deadline_gives_up_and_the_old_one_serves(world: World) -> None:
    world.apply(progressDeadlineSeconds=30, failedRetentionSeconds=100)
    world.settle()
    world.driver_catches_up(1)
    world.settle()
    world.server.advance(60)
    world.apply(usersTopic="users-2")
    world.settle()
    world.wait(31)
    assert world.active == 1
    assert world.condition("Ready")[0] == "True"
    status, reason, message = world.condition("Stalled")
    assert (status, reason) == ("True", "ProgressDeadlineExceeded")
    assert "generation 1 still serves" in message
    assert world.generations()[2].given_up == "ProgressDeadlineExceeded"
    world.wait(60)
    assert 2 in world.generations(), "kept for inspection"
    world.apply(usersTopic="users-3")
    world.settle()
    assert world.condition("Stalled")[0] == "False"
    world.driver_catches_up(3)
    world.settle()
    assert world.active == 3


def test_a_candidate_given_more_time_is_believed_in_again(world: World) -> None:
    world.apply(progressDeadlineSeconds=30)
    world.settle()
    world.wait(31)
    assert world.generations()[1].given_up
    world.apply(progressDeadlineSeconds=300)
    world.settle()
    assert not world.generations()[1].given_up
    world.driver_catches_up(1)
    world.settle()
    assert world.active == 1


def test_a_lost_driver_is_distrusted_then_made_again_for_the_same_generation(world: World) -> None:
    world.swap_to()
    uid = world.pods()[1].meta.uid
    world.pod_vanishes(1)
    world.settle()
    assert world.pods() == {}, "its absence is distrusted for a while"
    assert world.condition("Ready")[:2] == ("False", "DriverLost")
    world.wait(2.5)
    assert world.pods()[1].meta.uid != uid
    assert world.active == 1
    assert sorted(world.generations()) == [1]
    world.driver_catches_up(1)
    world.settle()
    assert world.condition("Ready")[0] == "True"


def test_a_pod_that_cannot_end_is_removed_by_force(world: World) -> None:
    world.swap_to()
    pod = world.server.objects["pods", "shop", "orders-g1"]
    world.promises.broken_pods.add(pod["metadata"]["uid"])
    kubelet, world.kubelet = world.kubelet, lambda: None  # type: ignore[method-assign]
    world.server.delete(POD, "shop", "orders-g1")
    world.settle()
    world.wait(59)
    assert world.pods()[1].meta.deleted_at is not None
    world.wait(2)
    world.kubelet = kubelet  # type: ignore[method-assign]
    world.wait(3)
    assert world.pods()[1].meta.deleted_at is None


def test_a_failing_driver_is_tried_again_with_growing_waits_and_then_given_up(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    world.apply(usersTopic="users-2")
    world.settle()
    waits = []
    for _ in range(4):
        uid = world.pods()[2].meta.uid
        world.driver_fails(2, '{"reason": "TopicNotFound", "message": "users-2 does not exist"}')
        failed = world.server.now
        world.settle()
        assert world.condition("Progressing")[:2] == ("True", "TopicNotFound")
        while 2 not in world.pods() or world.pods()[2].meta.uid == uid:
            world.wait(0.25)
        waits.append(round((world.server.now - failed).total_seconds()))
    assert waits == [1, 2, 4, 8]
    world.driver_fails(2, '{"reason": "TopicNotFound", "message": "users-2 does not exist"}')
    world.settle()
    status, reason, message = world.condition("Stalled")
    assert (status, reason) == ("True", "TopicNotFound")
    assert "users-2 does not exist" in message
    assert world.active == 1


def test_a_failing_active_driver_is_never_given_up(world: World) -> None:
    world.swap_to()
    for _ in range(8):
        if 1 in world.pods() and not world.pods()[1].finished:
            world.driver_fails(1)
        world.wait(65)
    assert world.active == 1
    assert not world.generations()[1].given_up
    assert world.condition("Stalled")[:2] == ("True", "DriverFailed")


def test_suspend_stops_drivers_and_resume_goes_on_with_the_same_generation(world: World) -> None:
    world.swap_to()
    world.apply(state="Suspended")
    world.settle()
    assert world.pods() == {}
    assert world.condition("Ready")[:2] == ("False", "Suspended")
    world.apply(state="Running")
    world.wait(3)
    assert sorted(world.generations()) == [1]
    world.driver_catches_up(1)
    world.settle()
    assert world.condition("Ready")[0] == "True"


def test_paused_touches_nothing_but_says_so(world: World) -> None:
    world.swap_to()
    world.annotate(names.ANNOTATION_PAUSED, "true")
    world.apply(usersTopic="users-2")
    world.settle()
    assert sorted(world.generations()) == [1]
    assert world.condition("Progressing")[:2] == ("False", "Paused")
    world.annotate(names.ANNOTATION_PAUSED, None)
    world.settle()
    world.server.advance(1)
    world.settle()
    assert sorted(world.generations()) == [1, 2]


def test_deletion_leaves_nothing(world: World) -> None:
    world.swap_to()
    world.swap_to(usersTopic="users-2", spark={"checkpoint": {"type": "pvc"}})
    world.delete_binding()
    world.settle()
    assert world.leftovers() == []


def test_a_binding_of_the_same_name_does_not_inherit(world: World) -> None:
    world.swap_to()
    world.delete_binding()
    world.apply(usersTopic="other")
    world.controller.hear()
    world.promises.by_controller = True
    world.controller.run()  # the old one's children are still there
    world.promises.by_controller = False
    world.kubelet()
    world.server.advance(2)
    world.settle()
    assert world.active is None
    world.driver_catches_up(1)
    world.settle()
    assert world.active == 1
    assert world.binding.status.users_topic == "other"


def test_a_standby_takes_the_source_and_a_new_one_warms_up_after_the_flip(world: World) -> None:
    world.apply(standby=1)
    world.settle()
    world.driver_catches_up(1)
    world.settle()
    assert world.generations()[2].spec.source is None
    world.pod_runs(2)
    world.report(2, "Standby")
    uid = world.pods()[2].meta.uid
    world.server.advance(600)
    world.apply(usersTopic="users-2")
    world.settle()
    assert world.generations()[2].spec.source is not None
    assert world.pods()[2].meta.uid == uid, "no pod is started"
    assert sorted(world.generations()) == [1, 2], "no standby warms up while a generation is built"
    assert world.condition("Stalled")[0] == "False", "its deadline counts from the wish"
    world.driver_catches_up(2)
    world.settle()
    assert world.active == 2
    assert world.generations()[3].spec.source is None


def test_a_standby_of_another_size_is_replaced(world: World) -> None:
    world.apply(standby=1)
    world.settle()
    world.driver_catches_up(1)
    world.settle()
    world.server.advance(60)
    world.apply(spark={"memory": "2Gi"})
    world.settle()
    world.driver_catches_up(3)
    world.settle()
    assert world.active == 3
    assert 2 not in world.generations()
    assert world.generations()[4].spec.spark.memory == "2Gi"


def test_standby_set_to_zero_removes_them(world: World) -> None:
    world.apply(standby=2)
    world.settle()
    world.driver_catches_up(1)
    world.settle()
    assert sorted(world.generations()) == [1, 2, 3]
    world.apply(standby=0)
    world.settle()
    assert sorted(world.generations()) == [1]


def test_executors_without_shared_checkpoint_are_refused_and_the_old_one_serves(world: World) -> None:
    world.swap_to()
    world.apply(spark={"executors": {"instances": 2}})
    world.settle()
    status, reason, message = world.condition("Stalled")
    assert (status, reason) == ("True", "CheckpointNotShared")
    assert "spec.spark.checkpoint.type" in message
    assert world.condition("Ready")[0] == "True"
    assert sorted(world.generations()) == [1]


def test_a_deleted_stable_service_comes_back_with_what_was_active(world: World) -> None:
    world.swap_to()
    world.swap_to(usersTopic="users-2")
    world.server.erase(SERVICE, "shop", "tb-orders")
    world.settle()
    assert world.active == 2


def test_the_same_topic_on_both_sides_is_built_and_warned_about(world: World) -> None:
    world.apply(accountsTopic="users-v1")
    world.settle()
    assert any("both sides read the same topic" in each for each in world.events())
    world.driver_catches_up(1)
    world.settle()
    assert world.active == 1


def test_rollback_of_a_wish_that_is_not_served_goes_back_to_what_is_served(world: World) -> None:
    world.swap_to()
    world.server.advance(60)
    world.swap_to(usersTopic="users-2")
    world.server.advance(60)
    world.apply(usersTopic="bad")
    world.settle()
    world.annotate(names.ANNOTATION_ROLLBACK, "please")
    world.settle()
    assert world.binding.spec.users_topic == "users-2"
    assert world.active == 2
    world.wait(5)
    previous = world.binding.status.previous
    assert previous is not None
    assert (previous.generation, previous.choice.users_topic) == (1, "users-v1")


def test_a_binding_of_another_class_is_left_alone(world: World) -> None:
    world.apply()
    world.annotate("topicbinding.dev/controller", "another")
    world.settle()
    assert world.generations() == {}
    assert world.binding.status.conditions == ()
    world.annotate("topicbinding.dev/controller", None)
    world.settle()
    assert sorted(world.generations()) == [1]


def test_a_driver_that_reports_its_failure_and_stays_is_replaced_without_calling_it_lost(
    world: World,
) -> None:
    world.apply()
    world.settle()
    world.pod_runs(1)
    uid = world.pods()[1].meta.uid
    world.report(1, "Failed", reason="KafkaUnreachable", message="no broker answers")
    world.settle()
    assert world.condition("Ready")[:2] == ("False", "KafkaUnreachable")
    world.wait(1.5)
    assert world.pods()[1].meta.uid != uid
    assert not any("is gone" in each for each in world.events())
