"""Tells people what was done: a log line and a Kubernetes Event on the binding.

Called by the reconciler after the status was written. A failing Event breaks nothing.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

from topicbinding.api import names
from topicbinding.controller.actions import Action
from topicbinding.controller.observed import SeenBinding
from topicbinding.controller.ports import Kube, KubeError

log = logging.getLogger("topicbinding.controller")


class Reporter:
    def __init__(self, kube: Kube, count: Callable[[Action], None] = lambda action: None) -> None:
        self._kube = kube
        self._count = count
        self._serial = itertools.count()
        self._run = f"{os.getpid():x}{int(time.time() * 1000):x}"

    def tell(self, binding: SeenBinding, action: Action) -> None:
        self._count(action)
        if not action.told:
            return
        meta = binding.meta
        level = logging.WARNING if action.warning else logging.INFO
        log.log(level, "%s/%s: %s", meta.namespace, meta.name, action.note, extra={"reason": action.reason})
        now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta.name}.{self._run}{next(self._serial):x}",
                "namespace": meta.namespace,
                "labels": {names.LABEL_BINDING: meta.name, names.LABEL_MANAGED_BY: names.MANAGED_BY},
            },
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.BINDING_KIND,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "reason": action.reason,
            "message": action.note[:1024],
            "type": "Warning" if action.warning else "Normal",
            "source": {"component": names.CONTROLLER_MANAGER},
            "reportingComponent": names.CONTROLLER_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._kube.create(event)
        except KubeError as error:
            log.debug("%s/%s: an Event was not taken: %s", meta.namespace, meta.name, error)
