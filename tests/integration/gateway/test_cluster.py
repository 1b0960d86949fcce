"""The gateway against a real API server: the watch, its loss and return, tokens and rights.

The bindings name another controller, so the installed one leaves them alone: the test moves them.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support import cluster as support
from tests.support.driver_server import TOKEN, DriverServer
from tests.support.gateway_world import soon, table_url
from tests.support.tcp_proxy import TcpProxy
from topicbinding.api import names
from topicbinding.client import Gateway
from topicbinding.gateway.access import Access, OpenAccess, TokenAccess
from topicbinding.gateway.app import make_app
from topicbinding.gateway.directory import Directory, Key
from topicbinding.gateway.kube import Cluster, Watcher
from topicbinding.gateway.settings import Settings

KUBE = support.Cluster()


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"tbc-gateway-{uuid.uuid4().hex[:8]}"
    make_namespace(name)
    yield name
    KUBE.kubectl("delete", "namespace", name, "--wait=false")


def make_namespace(name: str) -> None:
    KUBE.kubectl("create", "namespace", name)
    KUBE.kubectl("label", "namespace", name, "topicbinding.dev/test=true")


def apply(*bodies: dict[str, Any]) -> None:
    KUBE.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
    )


def status(kind: str, namespace: str, name: str, **values: Any) -> None:
    body = json.dumps({"status": values})
    KUBE.kubectl("patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge", "-p", body)


def binding(namespace: str, name: str = "orders") -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.BINDING_KIND,
        "metadata": {
            "namespace": namespace,
            "name": name,
            "annotations": {"topicbinding.dev/controller": "this-test"},
        },
        "spec": {
            "usersTopic": "users-v1",
            "accountsTopic": "accounts-v1",
            "kafka": {"bootstrapServers": "kafka.kafka.svc:9092"},
        },
    }


def generation(namespace: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.GENERATION_KIND,
        "metadata": {"namespace": namespace, "name": f"orders-g{number}"},
        "spec": {
            "binding": "orders",
            "bindingUid": "x",
            "number": number,
            "spark": {},
            "source": {
                "usersTopic": f"users-v{number}",
                "accountsTopic": "accounts-v1",
                "joinType": "left",
                "kafka": {"bootstrapServers": "kafka.kafka.svc:9092"},
            },
        },
    }


class Running:
    """A gateway that watches the real cluster, with stand-in drivers."""

    def __init__(self, url: str, drivers: DriverServer, directory: Directory, watcher: Watcher) -> None:
        self.url = url
        self.drivers = drivers
        self.directory = directory
        self.watcher = watcher


@asynccontextmanager
async def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tokens: bool = False, host: str = ""
) -> AsyncIterator[Running]:
    monkeypatch.setenv("KUBECONFIG", KUBE.environment["KUBECONFIG"])
    # The kubernetes package has read the variable already, when it was imported.
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", os.environ["KUBECONFIG"]
    )
    drivers = DriverServer()
    await drivers.start()
    token = tmp_path / "token"
    token.write_text(TOKEN)
    settings = Settings.model_validate(
        {
            "access": "token" if tokens else "open",
            "driver_url": drivers.url + "/{namespace}/{generation}",
            "bridge_url": drivers.url + "/{namespace}/{bridge}",
            "token_file": token,
            "review_seconds": 1,
        }
    )
    cluster, directory = Cluster(), Directory()
    if host:
        cluster._host = host
    watcher = Watcher(cluster, directory)
    access: Access = TokenAccess(cluster, settings.review_seconds) if tokens else OpenAccess()
    app = make_app(
        settings, directory, access, ready=lambda: watcher.ready, down_seconds=watcher.down_seconds
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    watcher.start()
    try:
        await soon(lambda: watcher.ready, "the first lists", 30)
        yield Running(f"http://127.0.0.1:{runner.addresses[0][1]}", drivers, directory, watcher)
    finally:
        await watcher.stop()
        await runner.cleanup()
        await cluster.close()
        await drivers.stop()


async def test_bindings_generations_and_events_are_followed(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(binding(namespace))
    async with running(tmp_path, monkeypatch) as gateway, Gateway(gateway.url) as client:
        key = Key(namespace, "orders")
        assert gateway.directory.get(key) is not None, "what was there is listed"
        apply(generation(namespace, 1), generation(namespace, 2))
        for number in (1, 2):
            driver = gateway.drivers.add(namespace, "orders", number)
            driver.tables["users_ui"].put([{"userId": f"of generation {number}"}])
        status("generation", namespace, "orders-g1", phase="CaughtUp")
        status("topicbinding", namespace, "orders", activeGeneration=1, usersTopic="users-v1")
        live = await client.get_table(namespace, "orders", "users_ui")
        assert live.rows["userId"].to_pylist() == ["of generation 1"]
        status("topicbinding", namespace, "orders", activeGeneration=2, usersTopic="users-v2")
        await live.until(lambda each: each.generation == 2)
        assert live.rows["userId"].to_pylist() == ["of generation 2"]
        assert live.connections == 1
        about = KUBE.kubectl_json("get", "topicbinding", "orders", "-n", namespace, "-o", "json")
        apply(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "orders.1", "namespace": namespace},
                "involvedObject": {
                    "kind": "TopicBinding",
                    "name": "orders",
                    "namespace": namespace,
                    "apiVersion": names.API_VERSION,
                    "uid": about["metadata"]["uid"],
                },
                "reason": "Swapped",
                "message": "swapped 1 -> 2",
                "type": "Normal",
                "lastTimestamp": "2026-01-01T00:00:00Z",
            }
        )
        await soon(lambda: gateway.directory.lines(key), "the event")
        logs = (await client.query(namespace, "orders", "orchestrator_logs")).to_pylist()
        assert [(row["level"], row["msg"]) for row in logs] == [("INFO", "Swapped: swapped 1 -> 2")]
        state = (await client.query(namespace, "orders", "orchestrator_status")).to_pylist()
        assert [row["usersTopic"] for row in state] == ["users-v2"]
        KUBE.kubectl("delete", "topicbinding", "orders", "-n", namespace, "--wait=false")
        await live.until(lambda each: each.state.state == "failed")
        assert "no binding" in live.state.reason


async def test_an_api_server_that_goes_away_and_comes_back(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(binding(namespace), generation(namespace, 1), generation(namespace, 2))
    status("topicbinding", namespace, "orders", activeGeneration=1)
    server = KUBE.kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}").stdout
    address, port = server.removeprefix("https://").rsplit(":", 1)
    proxy = TcpProxy(address, int(port))
    host = f"https://127.0.0.1:{proxy.port}"
    async with running(tmp_path, monkeypatch, host=host) as gateway, Gateway(gateway.url) as client:
        for number in (1, 2):
            driver = gateway.drivers.add(namespace, "orders", number)
            driver.tables["users_ui"].put([{"userId": f"of generation {number}"}])
        live = await client.get_table(namespace, "orders", "users_ui")
        proxy.cut()
        await soon(lambda: gateway.watcher.down_seconds() > 0, "the loss of the watch", 20)
        status("topicbinding", namespace, "orders", activeGeneration=2)
        assert live.state.state == "live", "rows come from the driver, not from the API server"
        assert live.generation == 1
        proxy.mend()
        await live.until(lambda each: each.generation == 2)
        await soon(lambda: gateway.watcher.down_seconds() == 0, "the watch to be back", 20)
        assert live.connections == 1
    proxy.cut()


async def test_tokens_and_rights_decide_who_sees_what(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"{namespace}-b"
    make_namespace(secret)
    rbac = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "viewer", "namespace": namespace},
    }
    try:
        apply(
            binding(namespace),
            binding(secret),
            generation(namespace, 1),
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "viewer", "namespace": namespace},
            },
            {
                **rbac,
                "kind": "Role",
                "rules": [{"apiGroups": [names.GROUP], "resources": [names.BINDINGS], "verbs": ["get"]}],
            },
            {
                **rbac,
                "kind": "RoleBinding",
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
                "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}],
            },
        )
        status("topicbinding", namespace, "orders", activeGeneration=1)
        token = KUBE.kubectl("create", "token", "viewer", "-n", namespace).stdout.strip()
        async with running(tmp_path, monkeypatch, tokens=True) as gateway, aiohttp.ClientSession() as http:
            driver = gateway.drivers.add(namespace, "orders", 1)
            driver.tables["users_ui"].put([{"userId": "u1"}])
            url = table_url(gateway.url, "users_ui", namespace)

            async def ask(url: str, token: str | None) -> int:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with http.get(url, headers=headers) as answer:
                    body = await answer.text()
                    assert not token or token not in body
                    return answer.status

            assert await ask(url, None) == 401
            assert await ask(url, "not.a.token") == 401
            assert await ask(url, token) == 200
            assert await ask(table_url(gateway.url, "users_ui", secret), token) == 404
            async with Gateway(gateway.url, token) as client:
                assert [each["namespace"] for each in await client.bindings()] == [namespace]
                live = await client.get_table(namespace, "orders", "users_ui")
                KUBE.kubectl("delete", "rolebinding", "viewer", "-n", namespace)
                # The stream ends, and opening it again is refused.
                await live.until(lambda each: "404" in each.state.reason, 20)
                assert await ask(url, token) == 404
    finally:
        KUBE.kubectl("delete", "namespace", secret, "--wait=false")
