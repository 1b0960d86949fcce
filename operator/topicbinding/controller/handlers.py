"""kopf's part: it watches bindings, generations, driver pods and stable Services, and wakes the binding
concerned.

The only importer of kopf. Handlers never ask what an event means: they put it into the cache and wake.
Nothing is
written on the objects by kopf: no finalizer, no annotation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import kopf

from topicbinding.api import names
from topicbinding.controller.cache import Cache
from topicbinding.controller.ports import BINDING, GENERATION, POD, SERVICE, Kind, KubeError
from topicbinding.controller.reconciler import Reconciler
from topicbinding.controller.settings import Settings
from topicbinding.controller.wakequeue import WakeQueue

log = logging.getLogger("topicbinding.controller")


class _NoMemory(kopf.DiffBaseStorage):
    """kopf would keep and compare a copy of every object; level-triggered handlers have no use for it."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> Any:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        return None


async def run(settings: Settings, cache: Cache, reconciler: Reconciler, queue: WakeQueue) -> None:
    """Until the process is told to stop."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(_login)
    for kind in (BINDING, GENERATION, POD, SERVICE):
        group = kind.api_version.rpartition("/")[0]
        version = kind.api_version.rpartition("/")[2]
        watch = kopf.on.event(group, version, kind.plural, registry=registry)
        watch(_handler(kind, cache, queue))
    await _first_look(reconciler)
    for key in cache.bindings():
        queue.wake(key)
    tasks = [
        asyncio.create_task(queue.run(), name="queue"),
        asyncio.create_task(_resync(settings, cache, reconciler, queue), name="resync"),
        asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=_kopf_settings(),
                standalone=True,
                clusterwide=not settings.watch_namespaces,
                namespaces=settings.watch_namespaces,
            ),
            name="kopf",
        ),
    ]
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            raise task.exception() or RuntimeError


Handler = Callable[..., Coroutine[Any, Any, None]]


def _handler(kind: Kind, cache: Cache, queue: WakeQueue) -> Handler:
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        manifest: Any = event["object"]
        take = cache.drop if event["type"] == "DELETED" else cache.put
        key = take(kind, manifest)
        if key is not None:
            queue.wake(key)

    seen.__name__ = f"{kind.kind.lower()}_seen"
    return seen


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # our Events are our own
    settings.scanning.disabled = (
        True  # our kinds are known; no permission to watch CRDs and namespaces is needed
    )
    settings.persistence.diffbase_storage = _NoMemory()
    # The server filters: other people's pods and Services never reach this process.
    ours = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
    settings.watching.label_selectors["", "pods"] = f"{ours},{names.LABEL_COMPONENT}=driver"
    settings.watching.label_selectors["", "services"] = f"{ours},!{names.LABEL_GENERATION}"
    settings.watching.reconnect_backoff = 0.2
    # A watch that is silently dead is noticed after this long at the latest.
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.queueing.idle_timeout = (
        1  # seconds a per-object task lingers; a thousand objects, a thousand tasks
    )
    return settings


async def _first_look(reconciler: Reconciler) -> None:
    """Nothing is decided before everything was seen once."""
    while True:
        try:
            await asyncio.to_thread(reconciler.read_everything)
            return
        except KubeError as error:
            log.warning("the first look failed, again in 2 s: %s", error)
            await asyncio.sleep(2)


async def _resync(settings: Settings, cache: Cache, reconciler: Reconciler, queue: WakeQueue) -> None:
    while True:
        await asyncio.sleep(settings.resync_seconds)
        try:
            moved = await asyncio.to_thread(reconciler.read_everything)
        except KubeError as error:
            log.warning("everything could not be listed afresh: %s", error)
            continue
        if moved:
            log.debug("%d bindings had moved unseen", len(moved))
        for key in cache.bindings():
            queue.wake(key)
