"""Starts the bridge: `python -m topicbinding bridge`. Wires ports, loop and HTTP together."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import threading

from aiohttp import web

from topicbinding import __version__
from topicbinding.auth import TokenVerifier
from topicbinding.bridge.apiserver import ApiServer
from topicbinding.bridge.kube import Kube
from topicbinding.bridge.redaction import Redaction
from topicbinding.bridge.server import BridgeServer
from topicbinding.bridge.service import Service
from topicbinding.bridge.settings import BridgeSettings, from_environment

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="topicbinding bridge", description=__doc__)
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    options = parser.parse_args(arguments)
    redaction = Redaction()
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(redaction)
    logging.basicConfig(
        level=options.log_level,
        handlers=[handler],
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    try:
        settings = from_environment()
    except ValueError as error:
        print(f"topicbinding bridge: {error}", file=sys.stderr)
        return 2
    asyncio.run(_serve(settings, redaction))
    return 0


async def _serve(settings: BridgeSettings, redaction: Redaction) -> None:
    logger.info("bridge %s for %s/%s", __version__, settings.namespace, settings.binding)
    kube = Kube(ApiServer.from_surroundings(), settings.namespace, settings.binding)
    service = Service(kube, settings, redaction)
    verifier = (
        TokenVerifier(kube.signing_keys, settings.gateway_subject) if settings.gateway_subject else None
    )
    stopped = threading.Event()
    following = threading.Thread(target=kube.follow, args=(stopped,), name="follow", daemon=True)
    working = threading.Thread(target=service.run, name="work", daemon=True)

    runner = web.AppRunner(BridgeServer(service, verifier).application)
    await runner.setup()
    await web.TCPSite(runner, settings.listen_host, settings.listen_port).start()
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, asked_to_stop.set)
    following.start()
    working.start()
    await asked_to_stop.wait()
    service.stop()
    stopped.set()
    # The loop ends its session first; what it could not finish is finished by the next bridge.
    await asyncio.to_thread(working.join, 8.0)
    await runner.cleanup()
