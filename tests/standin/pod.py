"""A stand-in driver in a pod of its own: the program of the stand-in image."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from .api import GENERATIONS, Api
from .play import Scene, report, scenes


async def main() -> int:
    namespace, name = os.environ["TB_NAMESPACE"], os.environ["TB_GENERATION"]
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    stop = asyncio.create_task(told.wait())
    application = web.Application()
    for path in ("/healthz", "/readyz"):
        application.router.add_get(path, _ok)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=8600).start()
    async with Api.in_pod() as api:
        playing = asyncio.create_task(_play(api, namespace, name))
        await asyncio.wait({playing, stop}, return_when=asyncio.FIRST_COMPLETED)
        code = playing.result() if playing.done() else 0
        playing.cancel()
    await runner.cleanup()
    return code


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _play(api: Api, namespace: str, name: str) -> int:
    """Until the last scene says to end; a standby waits for its source."""
    path = f"{GENERATIONS}/namespaces/{namespace}/generations"
    played: object = "nothing yet"
    async for event in api.watch(path, fieldSelector=f"metadata.name={name}"):
        source = event["object"]["spec"].get("source")
        if source == played or event["type"] == "DELETED":
            continue
        played = source
        for scene in scenes(source):
            await asyncio.sleep(scene.after)
            if scene.status:
                await api.patch(f"{path}/{name}/status", report(scene.status, os.environ["POD_UID"]))
            if scene.ends is not None:
                _last_words(scene)
                return scene.ends
    return 0


def _last_words(scene: Scene) -> None:
    if scene.status:
        words = {key: scene.status[key] for key in ("reason", "message")}
        Path("/dev/termination-log").write_text(json.dumps(words))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
