"""Tells people what was done and what could not be: a log line and a Kubernetes Event on the binding, so that
whatever the log says of a binding is seen beside it.

Called by the reconciler after the status was written. A failing Event breaks nothing.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from topicbinding.api import names
from topicbinding.controller.actions import Action
from topicbinding.controller.observed import SeenBinding
from topicbinding.controller.ports import Kube, KubeError

log = logging.getLogger("topicbinding.controller")


# The same trouble, met at every attempt, is told as often as this.
TELL_AGAIN_SECONDS: Final = 300.0


class Reporter:
    def __init__(
        self,
        kube: Kube,
        count: Callable[[Action], None] = lambda action: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._count = count
        self._clock = clock
        self._serial = itertools.count()
        self._run = f"{os.getpid():x}{int(time.time() * 1000):x}"
        self._troubles: dict[str, tuple[str, float]] = {}

    def tell(self, binding: SeenBinding, action: Action) -> None:
        self._count(action)
        if not action.told:
            return
        meta = binding.meta
        level = logging.WARNING if action.warning else logging.INFO
        log.log(level, "%s/%s: %s", meta.namespace, meta.name, action.note, extra={"reason": action.reason})
        self._post(meta.namespace, meta.name, meta.uid, action.reason, action.note, warning=action.warning)

    def trouble(self, namespace: str, name: str, uid: str, reason: str, note: str) -> None:
        """What kept us from the work itself. The log has every time; people are told once in a while."""
        log.warning("%s/%s: %s: %s", namespace, name, reason, note)
        now = self._clock()
        before = self._troubles.get(uid)
        if before is not None and before[0] == reason and now - before[1] < TELL_AGAIN_SECONDS:
            return
        self._troubles[uid] = (reason, now)
        self._post(namespace, name, uid, reason, note, warning=True)

    def over(self, uid: str) -> None:
        """The work went well: the same trouble would be news again."""
        self._troubles.pop(uid, None)

    def _post(self, namespace: str, name: str, uid: str, reason: str, note: str, *, warning: bool) -> None:
        now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{name}.{self._run}{next(self._serial):x}",
                "namespace": namespace,
                "labels": {names.LABEL_BINDING: name, names.LABEL_MANAGED_BY: names.MANAGED_BY},
            },
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.BINDING_KIND,
                "name": name,
                "namespace": namespace,
                "uid": uid,
            },
            "reason": reason,
            "message": note[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": names.CONTROLLER_MANAGER},
            "reportingComponent": names.CONTROLLER_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._kube.create(event)
        except KubeError as error:
            log.debug("%s/%s: an Event was not taken: %s", namespace, name, error)
