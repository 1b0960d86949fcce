"""`python -m topicbinding controller`: puts the parts together and runs until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from datetime import UTC, datetime

from pydantic import ValidationError

from topicbinding import __version__
from topicbinding.controller import handlers
from topicbinding.controller.cache import Cache
from topicbinding.controller.kube import ApiServer, configured
from topicbinding.controller.metrics import Metrics, serve
from topicbinding.controller.reconciler import Reconciler
from topicbinding.controller.reporter import Reporter
from topicbinding.controller.settings import Settings
from topicbinding.controller.wakequeue import WakeQueue

log = logging.getLogger("topicbinding.controller")
# The queue's loop goes round at least every 5 s; standing still for so long means that it is stuck.
_STUCK_SECONDS = 60


def main(arguments: list[str]) -> int:
    description = (
        "Turns TopicBindings into generations. Settings come from TB_ variables; see docs/controller.md."
    )
    argparse.ArgumentParser(prog="topicbinding controller", description=description).parse_args(arguments)
    try:
        settings = Settings.from_environment(os.environ)
    except ValidationError as error:
        for each in error.errors():
            name = "_".join(str(part) for part in each["loc"]).upper()
            print(f"TB_{name}: {each['msg']}", file=sys.stderr)
        return 2
    _set_up_logging(settings.log_level)
    try:
        asyncio.run(_run(settings))
    except asyncio.CancelledError:
        return 0
    return 0


async def _run(settings: Settings) -> None:
    metrics = Metrics()
    kube = ApiServer(
        configured(settings.workers + 2), settings.request_timeout_seconds, observer=metrics.asked
    )
    cache = Cache(_now)
    reconciler = Reconciler(kube, cache, settings, _now, Reporter(kube, metrics.acted))
    queue = WakeQueue(
        reconciler.pass_over,
        workers=settings.workers,
        error_base=settings.error_base_seconds,
        error_cap=settings.error_cap_seconds,
        done=metrics.passed,
    )
    metrics.bindings.set_function(lambda: len(cache.bindings()))
    metrics.waiting.set_function(lambda: len(queue))
    server = serve(metrics, settings.port, lambda: time.monotonic() - queue.beat < _STUCK_SECONDS)
    where = ", ".join(settings.watch_namespaces) or "all namespaces"
    log.info("controller %s serves %s; /metrics on port %d", __version__, where, server.server_port)
    task = asyncio.current_task()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, lambda: task.cancel() if task else None)
    await handlers.run(settings, cache, reconciler, queue)


def _now() -> datetime:
    return datetime.now(UTC)


def _set_up_logging(level: str) -> None:
    logging.Formatter.converter = time.gmtime
    form = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s"
    logging.basicConfig(level=logging.WARNING, format=form, datefmt="%Y-%m-%dT%H:%M:%S", stream=sys.stdout)
    logging.getLogger("topicbinding").setLevel(level)
