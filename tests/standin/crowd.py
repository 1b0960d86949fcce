"""One process that plays the drivers of many generations, and the kubelet of their pods.

Used where the pods themselves must not run: the controller is told to give driver pods a scheduler that
does not
exist, so they stay unscheduled, and this process reports them as running and plays their part. The API
server, the
controller and everything they say to each other are real.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from .api import GENERATIONS, Api
from .play import report, scenes

RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Crowd:
    """`caught_up` maps (namespace, generation) to the moment its report was sent, by this process's clock."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        hold: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._hold = hold
        self._generations: dict[str, dict[str, Any]] = {}
        self._pods: dict[str, str] = {}
        self._playing: dict[str, asyncio.Task[None]] = {}
        self._played: dict[str, tuple[str, object]] = {}
        self._limit = asyncio.Semaphore(16)
        self.caught_up: dict[str, float] = {}

    async def run(self) -> None:
        await asyncio.gather(self._watch_generations(), self._watch_pods())

    async def _watch_generations(self) -> None:
        path = f"{GENERATIONS}/namespaces/{self._namespace}/generations"
        async for event in self._api.watch(path):
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                self._generations.pop(name, None)
            else:
                self._generations[name] = event["object"]
                self._act(name)

    async def _watch_pods(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        async for event in self._api.watch(path, labelSelector="topicbinding.dev/component=driver"):
            meta = event["object"]["metadata"]
            if event["type"] == "DELETED":
                self._pods.pop(meta["name"], None)
                continue
            self._pods[meta["name"]] = meta["uid"]
            self._act(meta["name"])

    def release(self, name: str) -> None:
        self._act(name)

    def _act(self, name: str) -> None:
        generation, uid = self._generations.get(name), self._pods.get(name)
        if generation is None or uid is None or self._hold(name):
            return
        source = generation["spec"].get("source")
        if self._played.get(name) == (uid, source):
            return
        self._played[name] = (uid, source)
        self._playing[name] = asyncio.create_task(self._play(name, uid, source))

    async def _play(self, name: str, uid: str, source: dict[str, Any] | None) -> None:
        pod = f"/api/v1/namespaces/{self._namespace}/pods/{name}/status"
        own = f"{GENERATIONS}/namespaces/{self._namespace}/generations/{name}/status"
        async with self._limit:
            await self._api.patch(pod, {"status": RUNNING})
        for scene in scenes(source):
            await asyncio.sleep(scene.after)
            async with self._limit:
                sent = time.monotonic()
                await self._api.patch(own, report(scene.status, uid))
            if scene.status.get("phase") == "CaughtUp":
                self.caught_up[name] = sent
            if scene.ends is not None:
                await self._api.patch(pod, {"status": _ended(scene.ends, scene.status)})


def _ended(code: int, status: dict[str, Any]) -> dict[str, Any]:
    words = f'{{"reason": "{status.get("reason")}", "message": "{status.get("message")}"}}' if status else ""
    state = {"terminated": {"exitCode": code, "message": words}}
    container = {
        "name": "driver",
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    return {"phase": "Failed", "conditions": [], "containerStatuses": [container]}
