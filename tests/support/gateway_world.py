"""A gateway on loopback with stand-in drivers and a directory that a test writes: everything but Kubernetes
and Spark.

Also a program, for working on the page: `python -m tests.support.gateway_world` shows two bindings with
moving rows and swaps them now and then.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from tests.support.driver_server import TOKEN, Driver, DriverServer
from topicbinding.api import names
from topicbinding.gateway.access import Access, OpenAccess
from topicbinding.gateway.app import make_app
from topicbinding.gateway.directory import Directory, Kind
from topicbinding.gateway.settings import Settings

NAMESPACE = "shop"
BINDING = "orders"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Binding:
    """The bodies of one TopicBinding and its Generations, as the API server would show them."""

    def __init__(self, world: World, namespace: str, name: str) -> None:
        self.world = world
        self.namespace = namespace
        self.name = name
        self.uid = str(uuid.uuid4())
        self.generations: dict[int, dict[str, Any]] = {}
        self.body: dict[str, Any] = {
            "apiVersion": names.API_VERSION,
            "kind": names.BINDING_KIND,
            "metadata": {"namespace": namespace, "name": name, "uid": self.uid, "creationTimestamp": now()},
            "spec": {
                "usersTopic": "users-v1",
                "accountsTopic": "accounts-v1",
                "joinType": "left",
                "kafka": {"bootstrapServers": "kafka.kafka.svc:9092"},
                "control": {"topic": "bindings-control"},
            },
            "status": {"conditions": []},
        }
        self.publish()

    def publish(self) -> None:
        self.world.directory.put(Kind.BINDING, self.body)

    def generation(self, number: int, users: str = "", accounts: str = "", join: str = "left") -> Driver:
        """A new generation with its driver, not served yet."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.GENERATION_KIND,
            "metadata": {
                "namespace": self.namespace,
                "name": names.generation_name(self.name, number),
                "uid": str(uuid.uuid4()),
                "creationTimestamp": now(),
            },
            "spec": {
                "binding": self.name,
                "bindingUid": self.uid,
                "number": number,
                "source": {
                    "usersTopic": users or f"users-v{number}",
                    "accountsTopic": accounts or f"accounts-v{number}",
                    "joinType": join,
                    "kafka": {"bootstrapServers": "kafka.kafka.svc:9092"},
                },
                "spark": {},
            },
            "status": {"phase": "CaughtUp", "lag": 0, "mode": "realtime", "driverVersion": "0.1.0"},
        }
        self.generations[number] = body
        self.body["status"]["latestGeneration"] = number
        self.world.directory.put(Kind.GENERATION, body)
        return self.world.drivers.add(self.namespace, self.name, number)

    def report(self, number: int, **status: Any) -> None:
        """What the driver would write on its Generation."""
        self.generations[number]["status"].update(status, updatedAt=now())
        self.world.directory.put(Kind.GENERATION, self.generations[number])

    def flip(self, number: int) -> None:
        """What the controller would do: the active generation moves."""
        source = self.generations[number]["spec"]["source"]
        self.body["status"].update(
            activeGeneration=number,
            usersTopic=source["usersTopic"],
            accountsTopic=source["accountsTopic"],
            joinType=source["joinType"],
            lastApplied=now(),
            conditions=[self.condition("Ready", "True", "Serving", f"generation {number} is served")],
        )
        self.body["spec"].update(
            usersTopic=source["usersTopic"],
            accountsTopic=source["accountsTopic"],
            joinType=source["joinType"],
        )
        self.publish()

    def stall(self, reason: str, message: str) -> None:
        kept = [each for each in self.body["status"]["conditions"] if each["type"] != "Stalled"]
        self.body["status"]["conditions"] = [*kept, self.condition("Stalled", "True", reason, message)]
        self.publish()

    @staticmethod
    def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": now(),
        }

    def retire_at(self, number: int, when: datetime) -> None:
        self.generations[number]["spec"]["retireAt"] = when.isoformat().replace("+00:00", "Z")
        self.world.directory.put(Kind.GENERATION, self.generations[number])

    async def retire(self, number: int) -> None:
        """The generation and its driver are gone."""
        self.world.directory.remove(Kind.GENERATION, self.generations.pop(number))
        await self.world.drivers.remove(self.namespace, self.name, number)

    def delete(self) -> None:
        self.world.directory.remove(Kind.BINDING, self.body)

    def event(self, reason: str, message: str, *, kind: str = "Normal", **more: Any) -> None:
        self.world.directory.put(
            Kind.EVENT,
            {
                "metadata": {
                    "namespace": self.namespace,
                    "name": f"{self.name}.{uuid.uuid4().hex[:8]}",
                    "uid": str(uuid.uuid4()),
                    "creationTimestamp": now(),
                },
                "involvedObject": {"kind": names.BINDING_KIND, "name": self.name},
                "reason": reason,
                "message": message,
                "type": kind,
                "lastTimestamp": now(),
                **more,
            },
        )

    def message(self, value: str, verdict: str, reason: str = "", generation: int | None = None) -> None:
        """A control message, as the bridge would show it."""
        kept = self.world.drivers.control.setdefault((self.namespace, names.bridge_name(self.name)), [])
        kept.append(
            {
                "partition": 0,
                "offset": len(kept),
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "value": value,
                "verdict": verdict,
                "reason": reason,
                "generation": generation,
                "outcome": "serving" if generation is not None else None,
            }
        )
        self.publish()


class World:
    """`async with World() as world`: drivers and a gateway are up at `world.url`."""

    def __init__(self, *, access: Access | None = None, port: int = 0, **settings: Any) -> None:
        self.directory = Directory()
        self.drivers = DriverServer()
        self.down = 0.0
        self._access = access or OpenAccess()
        self._port = port
        self._settings = {"access": self._access.mode, **settings}
        self._runner: web.AppRunner | None = None
        self._folder = TemporaryDirectory()
        self.url = ""

    async def __aenter__(self) -> World:
        await self.drivers.start()
        token = Path(self._folder.name) / "token"
        token.write_text(TOKEN)
        self.settings = Settings.model_validate(
            {
                "host": "127.0.0.1",
                "driver_url": self.drivers.url + "/{namespace}/{generation}",
                "bridge_url": self.drivers.url + "/{namespace}/{bridge}",
                "token_file": token,
                "requests_per_second": 10_000,
                "request_burst": 10_000,
                **self._settings,
            }
        )
        await self.start_gateway()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_gateway()
        await self.drivers.stop()
        self._folder.cleanup()

    async def start_gateway(self) -> None:
        app = make_app(self.settings, self.directory, self._access, down_seconds=lambda: self.down)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop_gateway(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def binding(self, name: str = BINDING, namespace: str = NAMESPACE) -> Binding:
        return Binding(self, namespace, name)


def table_url(base: str, table: str, namespace: str = NAMESPACE, binding: str = BINDING) -> str:
    return f"{base}/v1/bindings/{namespace}/{binding}/tables/{table}"


async def soon(condition: Callable[[], object], what: str, seconds: float = 10.0) -> None:
    """Wait until something is true; a failure says what was waited for."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}")
        await asyncio.sleep(0.02)
