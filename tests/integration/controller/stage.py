"""A binding's life on the real API server, with helpers that wait on conditions. Used by these tests and
the bench."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.integration.controller.process import NOBODY
from tests.standin.api import GENERATIONS, Api
from tests.standin.crowd import Crowd
from tests.support.cluster import Cluster

T = TypeVar("T")
Manifest = dict[str, Any]


def binding(name: str, **spec: Any) -> Manifest:
    said = {
        "usersTopic": "users-1",
        "accountsTopic": "accounts-1",
        "kafka": {"bootstrapServers": "kafka.kafka.svc:9092"},
        "linger": {"seconds": 2, "maxGenerations": 2},
    }
    return {
        "apiVersion": "topicbinding.dev/v1alpha1",
        "kind": "TopicBinding",
        # Not for the installed controller, if there is one.
        "metadata": {"name": name, "annotations": {"topicbinding.dev/controller": NOBODY}},
        "spec": said | spec,
    }


async def until(probe: Callable[[], Awaitable[T | None]], seconds: float, what: str) -> T:
    """The first truthy answer; after `seconds` a failure that says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        seen = await probe()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}; last seen: {seen!r}"
        await asyncio.sleep(0.05)


@dataclass
class Stage:
    api: Api
    crowd: Crowd
    namespace: str

    def path(self, plural: str, name: str = "") -> str:
        ours = plural in ("topicbindings", "generations")
        root = GENERATIONS if ours else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    async def create(self, name: str, **spec: Any) -> None:
        status = await self.api.post(self.path("topicbindings"), binding(name, **spec))
        assert status == 201, status

    async def change(self, name: str, **spec: Any) -> None:
        status = await self.api.patch(self.path("topicbindings", name), {"spec": spec})
        assert status == 200, status

    async def annotate(self, name: str, **annotations: str | None) -> None:
        said = {f"topicbinding.dev/{key}": value for key, value in annotations.items()}
        await self.api.patch(self.path("topicbindings", name), {"metadata": {"annotations": said}})

    async def delete(self, name: str) -> None:
        await self.api.delete(self.path("topicbindings", name))

    async def status(self, name: str) -> Manifest:
        found = await self.api.get(self.path("topicbindings", name))
        assert found is not None
        status: Manifest = found.get("status", {})
        return status

    async def condition(self, name: str, kind: str) -> Manifest:
        said = (await self.status(name)).get("conditions", [])
        return next((each for each in said if each["type"] == kind), {})

    async def active(self, name: str) -> int | None:
        service = await self.api.get(self.path("services", f"tb-{name}"))
        number = service["spec"]["selector"].get("topicbinding.dev/generation") if service else None
        return int(number) if number else None

    async def numbers(self, name: str) -> list[int]:
        label = f"?labelSelector=topicbinding.dev%2Fbinding%3D{name}"
        found = await self.api.get(self.path("generations") + label)
        assert found is not None
        return sorted(each["spec"]["number"] for each in found["items"])

    async def events(self, name: str) -> list[str]:
        found = await self.api.get(self.path("events"))
        assert found is not None
        return [each["message"] for each in found["items"] if each["involvedObject"]["name"] == name]

    async def serves(self, name: str, number: int, seconds: float = 20) -> None:
        async def probe() -> bool:
            status = await self.status(name)
            return await self.active(name) == number and status.get("activeGeneration") == number

        await until(probe, seconds, f"{name} to serve generation {number}")


@asynccontextmanager
async def stage(cluster: Cluster, namespace: str) -> AsyncIterator[Stage]:
    async with Api.of_kubeconfig(cluster.kubeconfig) as api:
        crowd = Crowd(api, namespace)
        playing = asyncio.create_task(crowd.run())
        try:
            yield Stage(api, crowd, namespace)
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
