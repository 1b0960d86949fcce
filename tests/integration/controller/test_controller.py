"""The controller as a process against the real API server, with the chart's permissions and stand-in
drivers."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.controller.process import controller, make_namespace, remove_namespace
from tests.integration.controller.stage import Stage, binding, stage, until
from tests.support.cluster import Cluster

NAMESPACE = "tbc-integration"


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    cluster.apply_crds()
    make_namespace(cluster, NAMESPACE)
    yield NAMESPACE
    remove_namespace(cluster, NAMESPACE)


@pytest.fixture
async def on(cluster: Cluster, namespace: str) -> AsyncIterator[Stage]:
    async with stage(cluster, namespace) as made:
        yield made


async def test_generations_roll_linger_and_are_proved_gone(cluster: Cluster, on: Stage) -> None:
    with controller(cluster, NAMESPACE):
        await on.create("rolls")
        await on.serves("rolls", 1)
        await on.change("rolls", usersTopic="users-2")
        await on.serves("rolls", 2)
        flipped = time.monotonic()
        assert await on.numbers("rolls") == [1, 2]

        async def alone() -> bool:
            return await on.numbers("rolls") == [2]

        await until(alone, 20, "generation 1 to leave")
        assert time.monotonic() - flipped >= 1.9, "its linger is 2 s"

        async def told() -> bool:
            return any(each.startswith("retired generation 1") for each in await on.events("rolls"))

        await until(told, 10, "the proof that generation 1 is gone")
        assert (await on.condition("rolls", "Ready"))["status"] == "True"
        await on.change("rolls", usersTopic="users-3", joinType="inner")
        await on.serves("rolls", 3)
        status = await on.status("rolls")
        assert (status["usersTopic"], status["joinType"]) == ("users-3", "inner")
        assert status["previous"]["choice"]["usersTopic"] == "users-2"


async def test_going_back_and_rolling_back_start_no_pod(cluster: Cluster, on: Stage) -> None:
    with controller(cluster, NAMESPACE):
        await on.create("back", linger={"seconds": 60})
        await on.serves("back", 1)
        await on.change("back", usersTopic="users-2")
        await on.serves("back", 2)
        await on.change("back", usersTopic="users-1")
        await on.serves("back", 1)
        await on.annotate("back", rollback="now")
        await on.serves("back", 2)
        assert await on.numbers("back") == [1, 2]
        found = await on.api.get(on.path("topicbindings", "back"))
        assert found is not None
        assert found["spec"]["usersTopic"] == "users-2"
        assert "topicbinding.dev/rollback" not in found["metadata"].get("annotations", {})


async def test_a_broken_generation_leaves_the_old_one_serving(cluster: Cluster, on: Stage) -> None:
    with controller(cluster, NAMESPACE, failures_limit="2", retry_base_seconds="0.2"):
        await on.create("careful")
        await on.serves("careful", 1)
        await on.change("careful", usersTopic="broken-topic")

        async def stalled() -> bool:
            return (await on.condition("careful", "Stalled")).get("reason") == "TopicNotFound"

        await until(stalled, 20, "Stalled with the driver's own reason")
        message = (await on.condition("careful", "Stalled"))["message"]
        assert "topic broken-topic does not exist" in message
        assert "generation 1 still serves" in message
        assert await on.active("careful") == 1
        await on.change("careful", usersTopic="users-9")
        await on.serves("careful", 3)


async def test_what_the_api_server_refuses_becomes_a_condition(cluster: Cluster, on: Stage) -> None:
    cluster.kubectl("-n", NAMESPACE, "create", "quota", "tight", "--hard=pods=0")
    try:
        with controller(cluster, NAMESPACE, error_cap_seconds="1"):
            await on.create("poor")

            async def refused() -> bool:
                return (await on.condition("poor", "Stalled")).get("reason") == "QuotaExceeded"

            await until(refused, 20, "Stalled with QuotaExceeded")
            cluster.kubectl("-n", NAMESPACE, "delete", "quota", "tight")
            await on.serves("poor", 1, seconds=30)
            assert (await on.condition("poor", "Stalled"))["status"] == "False"
    finally:
        cluster.kubectl("-n", NAMESPACE, "delete", "quota", "tight", "--ignore-not-found")


async def test_a_name_that_no_service_can_have_is_said_and_disturbs_nobody(
    cluster: Cluster, on: Stage
) -> None:
    # The server itself refuses what its rules can tell; a digit in front is for the controller to say.
    for refused in ("with.dots", "n" * 60):
        assert await on.api.post(on.path("topicbindings"), binding(refused)) == 422
    name = "9-lives"
    with controller(cluster, NAMESPACE):
        await on.create(name)
        await on.create("neighbour")

        async def said() -> bool:
            return (await on.condition(name, "Stalled")).get("reason") == "InvalidName"

        await until(said, 20, "Stalled with InvalidName")
        assert "under another name" in (await on.condition(name, "Stalled"))["message"]
        assert (await on.condition(name, "Ready"))["status"] == "False"
        await on.serves("neighbour", 1)
        assert await on.numbers(name) == []


async def test_two_controllers_build_one_generation_for_each_change(cluster: Cluster, on: Stage) -> None:
    with controller(cluster, NAMESPACE), controller(cluster, NAMESPACE):
        await on.create("shared", linger={"seconds": 0})
        await on.serves("shared", 1)
        for number in range(2, 8):
            await on.change("shared", usersTopic=f"users-{number}")
            await on.serves("shared", number)
        building = [each for each in await on.events("shared") if each.startswith("building generation")]
        assert len(building) == 7


async def test_killed_at_any_moment_it_goes_on(cluster: Cluster, on: Stage) -> None:
    chance = random.Random(7)
    await on.create("killed", linger={"seconds": 1})
    for number in range(2, 8):
        with controller(cluster, NAMESPACE) as running:
            await on.change("killed", usersTopic=f"users-{number}")
            wait = chance.uniform(0.0, 0.6)
            begun = time.monotonic()

            async def due(begun: float = begun, wait: float = wait) -> bool:
                return time.monotonic() - begun >= wait

            await until(due, 5, "the moment to kill")
            running.kill()
    with controller(cluster, NAMESPACE):

        async def settled() -> bool:
            status = await on.status("killed")
            numbers = await on.numbers("killed")
            return status.get("usersTopic") == "users-7" and numbers == [status.get("activeGeneration")]

        await until(settled, 30, "the newest wish to serve alone")


async def test_the_service_account_reads_no_secret(cluster: Cluster, namespace: str) -> None:
    account = f"system:serviceaccount:{namespace}:topicbinding-controller"
    for verb in ("get", "list", "watch"):
        answer = cluster.kubectl(
            "auth", "can-i", verb, "secrets", "-n", namespace, f"--as={account}", check=False
        )
        assert answer.stdout.strip() == "no"


async def test_deleting_a_binding_leaves_nothing(cluster: Cluster, on: Stage) -> None:
    with controller(cluster, NAMESPACE):
        await on.create("leaves", control={"topic": "control"}, linger={"seconds": 60})
        await on.serves("leaves", 1)
        await on.change("leaves", usersTopic="users-2")
        await on.serves("leaves", 2)
        await on.delete("leaves")
        kinds = "generations,pods,services,pvc,serviceaccounts,roles,rolebindings,networkpolicies,deployments"

        async def nothing() -> bool:
            found = cluster.kubectl(
                "-n", NAMESPACE, "get", kinds, "-l", "topicbinding.dev/binding=leaves", "-o", "name"
            )
            return not found.stdout.strip()

        await until(nothing, 60, "everything of the binding to be gone")


async def test_a_control_topic_brings_a_bridge_and_its_absence_takes_it_away(
    cluster: Cluster, on: Stage
) -> None:
    with controller(cluster, NAMESPACE):
        await on.create("bridged", control={"topic": "control"})
        await on.serves("bridged", 1)

        async def there() -> bool:
            found = cluster.kubectl("-n", NAMESPACE, "get", "deploy", "tb-bridged-bridge", check=False)
            return found.returncode == 0

        await until(there, 10, "the bridge")
        await on.change("bridged", control=None)

        async def gone() -> bool:
            kinds = "deploy,svc,sa,role,rolebinding"
            label = "topicbinding.dev/binding=bridged,topicbinding.dev/component=bridge"
            found = cluster.kubectl("-n", NAMESPACE, "get", kinds, "-l", label, "-o", "name")
            return not found.stdout.strip()

        await until(gone, 20, "the bridge to be gone")
        assert await on.numbers("bridged") == [1]
