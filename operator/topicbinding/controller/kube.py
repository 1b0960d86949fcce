"""The Kubernetes port: the only module of the controller that talks to the API server by itself.

Blocking; the queue's worker threads call it. It speaks plain HTTP through the official client, which brings
the
cluster's configuration, TLS and token renewal, and leaves out its models: objects stay as they are on the
wire.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from topicbinding.api import names
from topicbinding.controller.observed import Manifest
from topicbinding.controller.ports import (
    EVENT,
    KINDS,
    Kind,
    KubeError,
    RefusedError,
    StaleError,
    UnavailableError,
)

log = logging.getLogger("topicbinding.controller.kube")
Observer = Callable[[str, str, int, float], None]  # verb, plural, code, seconds
_PAGE = 500


def configured(connections: int) -> client.ApiClient:
    """From the pod's own account if there is one, else from the kubeconfig, as kubectl would."""
    settings = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    settings.connection_pool_maxsize = connections
    # A kept connection may have been closed meanwhile: reads are tried once more. Anything else is the
    # queue's to
    # try again, with what it knows then.
    settings.retries = urllib3.Retry(
        total=1, redirect=0, status=0, allowed_methods=["GET"], raise_on_status=False
    )
    return client.ApiClient(settings)


class ApiServer:
    """Implements `ports.Kube`."""

    def __init__(
        self,
        api: client.ApiClient,
        timeout: float,
        observer: Observer = lambda verb, plural, code, seconds: None,
    ) -> None:
        self._api = api
        self._timeout = timeout
        self._observer = observer

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return self._ask("GET", kind, namespace, name, absent_is_fine=True)

    def find(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str]
    ) -> tuple[list[Manifest], str]:
        query = {"limit": str(_PAGE)}
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        return self._pages(kind, namespace, query)

    def events_about(self, namespace: str, uid: str) -> list[Manifest]:
        return self._pages(EVENT, namespace, {"fieldSelector": f"involvedObject.uid={uid}"})[0]

    def _pages(self, kind: Kind, namespace: str | None, query: dict[str, str]) -> tuple[list[Manifest], str]:
        found: list[Manifest] = []
        while True:
            page = self._ask("GET", kind, namespace, query=query) or {}
            for each in page.get("items", ()):
                # Lists leave out what every entry has in common.
                found.append({"apiVersion": kind.api_version, "kind": kind.kind} | each)
            token = page["metadata"].get("continue")
            if not token:
                return found, page["metadata"]["resourceVersion"]
            query = query | {"continue": token}

    def create(self, manifest: Manifest) -> Manifest:
        kind, namespace, _ = _where(manifest)
        query = {"fieldManager": names.CONTROLLER_MANAGER}
        return self._ask("POST", kind, namespace, body=manifest, query=query) or {}

    def apply(self, manifest: Manifest) -> Manifest:
        return self._apply(manifest, "")

    def apply_status(self, manifest: Manifest) -> Manifest:
        return self._apply(manifest, "/status")

    def _apply(self, manifest: Manifest, subresource: str) -> Manifest:
        kind, namespace, name = _where(manifest)
        query = {"fieldManager": names.CONTROLLER_MANAGER, "force": "true"}
        return (
            self._ask(
                "PATCH",
                kind,
                namespace,
                name + subresource,
                body=manifest,
                query=query,
                content="application/apply-patch+yaml",
            )
            or {}
        )

    def patch(self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any]) -> Manifest:
        query = {"fieldManager": names.CONTROLLER_MANAGER}
        content = "application/merge-patch+json"
        return self._ask("PATCH", kind, namespace, name, body=dict(body), query=query, content=content) or {}

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        foreground: bool = False,
    ) -> None:
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if foreground else "Background",
            "preconditions": {key: value for key, value in preconditions.items() if value is not None},
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        self._ask("DELETE", kind, namespace, name, body=body, absent_is_fine=True)

    def _ask(
        self,
        verb: str,
        kind: Kind,
        namespace: str | None,
        name: str = "",
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        absent_is_fine: bool = False,
    ) -> Manifest | None:
        path = f"{kind.root}/namespaces/{quote(namespace)}" if namespace else kind.root
        path += f"/{kind.plural}" + (f"/{quote(name)}" if name else "")
        url = self._api.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        headers = {
            "Accept": "application/json",
            "Content-Type": content,
            "User-Agent": names.CONTROLLER_MANAGER,
        }
        self._api.update_params_for_auth(headers, [], ["BearerToken"], path, verb, body)
        begun, code = time.monotonic(), 0
        try:
            answer = self._api.rest_client.request(  # type: ignore[no-untyped-call]
                verb, url, headers=headers, body=body, _request_timeout=self._timeout
            )
            code, text = answer.status, answer.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise UnavailableError(f"{verb} {path}: {type(error).__name__}: {error}") from error
        finally:
            self._observer(verb, kind.plural, code, time.monotonic() - begun)
        if code == 404 and absent_is_fine:
            return None
        if code >= 300:
            raise _error(verb, path, code, text)
        found: Manifest = json.loads(text)
        return found


def _where(manifest: Manifest) -> tuple[Kind, str, str]:
    meta = manifest["metadata"]
    return KINDS[manifest["kind"]], meta["namespace"], meta["name"]


def _error(verb: str, path: str, code: int, text: bytes) -> KubeError:
    """Every answer that is not a yes, as one of our own errors."""
    try:
        message = str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        message = text[:200].decode(errors="replace")
    said = message or f"{verb} {path}: HTTP {code}"
    if code in (404, 409, 410, 412):
        return StaleError(said)
    if code == 403 and "exceeded quota" in said:
        return RefusedError("QuotaExceeded", said)
    if code == 403 and "being terminated" in said:
        return RefusedError("NamespaceTerminating", said)
    if code == 403:
        return RefusedError("Forbidden", said)
    if code in (400, 405, 413, 415, 422):
        return RefusedError("NotAccepted", said)
    return UnavailableError(f"HTTP {code}: {said}")
