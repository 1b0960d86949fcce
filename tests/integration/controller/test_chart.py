"""The chart: what it renders for both kinds of installation, and that it gives the controller nothing to
spare."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.integration.controller.process import (
    ControllerProcess,
    controller,
    make_namespace,
    remove_namespace,
)
from tests.integration.controller.stage import stage, until
from tests.support.cluster import ROOT, Cluster

NAMESPACE = "tbc-chart"
CHART = ROOT / "deploy" / "helm" / "topicbinding"
# The watches are kopf's, and two rights are for the API server's own checks: not counted by our requests.
UNCOUNTED = {"watch", "bind", "update"}
VERBS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    cluster.apply_crds()
    make_namespace(cluster, NAMESPACE)
    yield NAMESPACE
    remove_namespace(cluster, NAMESPACE)


def render(cluster: Cluster, *values: str) -> subprocess.CompletedProcess[str]:
    sets = [part for value in values for part in ("--set", value)]
    return subprocess.run(
        ["helm", "template", "topicbinding", str(CHART), "--namespace", "topicbinding-system", *sets],
        capture_output=True,
        text=True,
        check=False,
        env=cluster.environment,
    )


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def test_a_namespaced_install_gives_nothing_cluster_wide_but_the_asking_who_viewers_are(
    cluster: Cluster,
) -> None:
    made = objects(render(cluster, "watchNamespaces={shop}").stdout)
    wide = [each["metadata"]["name"] for each in made if each["kind"] == "ClusterRoleBinding"]
    assert wide == ["topicbinding-gateway-auth"]
    bound = [each["metadata"]["namespace"] for each in made if each["kind"] == "RoleBinding"]
    assert set(bound) == {"shop"}


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("gateway.acess=open", "acess"),
        ("gateway.access=public", "access"),
        ("watchNamespaces={a\\,b}", "watches one namespace or all"),
        ("controller.workers=0", "workers"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(cluster: Cluster, value: str, complaint: str) -> None:
    answer = render(cluster, value.replace("\\,", ","))
    assert answer.returncode != 0
    assert complaint in answer.stderr


def test_install_yaml_is_taken_by_the_real_server(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "topicbinding-system", check=False)
    cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f",
        str(ROOT / "deploy" / "install.yaml"),
    )  # fmt: skip


def used(running: ControllerProcess) -> set[tuple[str, str]]:
    """(resource, HTTP verb) of every request that was answered well."""
    pattern = re.compile(
        r'topicbinding_api_request_seconds_count\{code="2..",resource="(\w+)",verb="(\w+)"\}'
    )
    found = (pattern.match(name) for name in running.metrics)
    return {(each.group(1), each.group(2)) for each in found if each}


async def test_every_permission_is_used(cluster: Cluster, namespace: str) -> None:
    pvc = {"checkpoint": {"type": "pvc", "size": "8Mi"}}
    async with stage(cluster, namespace) as on:
        with controller(cluster, namespace, retry_base_seconds="0.2") as running:
            await on.create("all", control={"topic": "control"}, spark=pvc, linger={"seconds": 1})
            await on.serves("all", 1)
            await on.change("all", usersTopic="broken-1")

            async def failing() -> bool:
                return (await on.condition("all", "Progressing")).get("reason") == "TopicNotFound"

            await until(failing, 30, "the driver to fail")
            await on.annotate("all", rollback="now")

            async def rolled_back() -> bool:
                found = await on.api.get(on.path("topicbindings", "all"))
                return found is not None and found["spec"]["usersTopic"] == "users-1"

            await until(rolled_back, 20, "the rollback")
            await on.change("all", usersTopic="users-2", control=None)
            await on.serves("all", 3, seconds=40)

            async def alone() -> bool:
                return await on.numbers("all") == [3]

            await until(alone, 90, "the others to leave")
            asked = used(running)
    roles = [each for each in objects(render(cluster).stdout) if each["kind"] == "ClusterRole"]
    rules = next(each["rules"] for each in roles if each["metadata"]["name"] == "topicbinding-controller")
    granted = {
        (resource.partition("/")[0], verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in UNCOUNTED
    }
    spare = {
        (resource, verb)
        for resource, verb in granted
        # Server-side apply is a PATCH that needs the right to create as well.
        if (resource, VERBS[verb]) not in asked and not (verb == "create" and (resource, "PATCH") in asked)
    }
    # Events are listed only for a pod that waits without a reason; the e2e tests have one.
    assert spare - {("events", "list")} == set()
