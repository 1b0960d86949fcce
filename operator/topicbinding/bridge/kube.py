"""The bridge's Kubernetes port: get, watch and patch one TopicBinding, write its status, create Events.

Nothing more, because its role allows nothing more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from topicbinding.api import names
from topicbinding.bridge.apiserver import APPLY_PATCH, MERGE_PATCH, ApiServer, Away, Conflict, Refused

logger = logging.getLogger(__name__)

_COMPONENT: Final = "topicbinding-bridge"


class Kube:
    """One binding. `latest` is kept fresh by `follow`, which runs in a thread of its own."""

    def __init__(self, server: ApiServer, namespace: str, name: str) -> None:
        self.namespace, self.name = namespace, name
        self._server = server
        self._path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.BINDINGS}"
        self._lock = threading.Lock()
        self._latest: dict[str, Any] | None = None

    def latest(self) -> dict[str, Any]:
        """As last seen; asks the API server only if it was never seen."""
        with self._lock:
            seen = self._latest
        return seen if seen is not None else self.refresh()

    def refresh(self) -> dict[str, Any]:
        """As it is now."""
        seen: dict[str, Any] = self._server.request("GET", f"{self._path}/{self.name}")
        with self._lock:
            self._latest = seen
        return seen

    def patch(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch with its resourceVersion in it: Conflict if somebody wrote in between."""
        return self._keep(
            self._server.request(
                "PATCH",
                f"{self._path}/{self.name}",
                body=body,
                content_type=MERGE_PATCH,
                query={"fieldManager": names.BRIDGE_MANAGER, "fieldValidation": "Strict"},
            )
        )

    def apply_status(self, status: Mapping[str, Any]) -> None:
        """Server-side apply: what is ours in the status, whole, and nothing else."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.BINDING_KIND,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "status": status,
        }
        self._keep(
            self._server.request(
                "PATCH",
                f"{self._path}/{self.name}/status",
                body=body,
                content_type=APPLY_PATCH,
                query={"fieldManager": names.BRIDGE_MANAGER, "force": "true"},
            )
        )

    def event(self, identity: str, kind: str, reason: str, message: str) -> None:
        """Told once per identity: the name is made from it, so telling it again adds nothing."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{self.name}.{identity}", "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.BINDING_KIND,
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.latest()["metadata"]["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._server.request("POST", f"/api/v1/namespaces/{self.namespace}/events", body=body)
        except Conflict:
            return  # it was told before

    def signing_keys(self) -> Mapping[str, Any]:
        """The cluster's published keys, for checking tokens."""
        keys: Mapping[str, Any] = self._server.request(
            "GET", "/openid/v1/jwks", accept="application/jwk-set+json"
        )
        return keys

    def follow(self, stopped: threading.Event) -> None:
        """Keeps `latest` fresh until stopped; whatever goes wrong, it begins again."""
        while not stopped.is_set():
            try:
                # The role names one object: a watch is allowed only with this selector. From "0" it begins
                # with the object as it is; its own version may be older than what the server remembers.
                only = {"fieldSelector": f"metadata.name={self.name}"}
                for kind, seen in self._server.watch(self._path, "0", only):
                    if kind in ("ADDED", "MODIFIED"):
                        self._keep(seen)
                    if stopped.is_set():
                        return
            except (Away, Refused) as error:
                logger.warning("watching the binding: %s; trying again", error)
                stopped.wait(1.0)

    def _keep(self, seen: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._latest is None or _version(seen) >= _version(self._latest):
                self._latest = seen
        return seen


def _version(seen: Mapping[str, Any]) -> int:
    """Versions of one object grow: a watch that lags behind our own patch must not turn the clock back."""
    return int(seen["metadata"]["resourceVersion"])
