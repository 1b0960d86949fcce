"""The gateway program: `python -m topicbinding gateway`. Reads its settings, watches the cluster, serves."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from aiohttp import web

from topicbinding.gateway.access import Access, OpenAccess, TokenAccess
from topicbinding.gateway.app import make_app
from topicbinding.gateway.directory import Directory
from topicbinding.gateway.kube import Cluster, Watcher
from topicbinding.gateway.settings import Settings, SettingsError

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 3.0


async def serve(settings: Settings) -> None:
    cluster = Cluster()
    directory = Directory(settings.log_rows)
    watcher = Watcher(cluster, directory, settings.namespace)
    access: Access = (
        OpenAccess() if settings.access == "open" else TokenAccess(cluster, settings.review_seconds)
    )
    app = make_app(
        settings, directory, access, ready=lambda: watcher.ready, down_seconds=watcher.down_seconds
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    watcher.start()
    await web.TCPSite(runner, settings.host, settings.port).start()
    log.info("listening on %s, access: %s", runner.addresses, settings.access)
    if settings.access == "open":
        log.warning("anybody who reaches this address may read every table: publish it on loopback only")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    await watcher.stop()
    await runner.cleanup()
    await cluster.close()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="topicbinding gateway",
        description="Shows every binding to people and programs. Settings come from TB_GATEWAY_* variables.",
    )
    parser.add_argument("--log-level", default=os.environ.get("LOG_LEVEL", "INFO").upper())
    options = parser.parse_args(argv)
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # Tables are merged and turned into text in threads; the event loop must not wait 5 ms for each turn.
    sys.setswitchinterval(0.0005)
    try:
        settings = Settings.from_env(dict(os.environ))
    except SettingsError as error:
        print(f"topicbinding gateway: {error}", file=sys.stderr)
        return 2
    asyncio.run(serve(settings))
    return 0
