"""Speaks to the Kubernetes API server: a handful of requests with typed errors, and watching.

The kubernetes package finds address and credentials (in a pod, or from a kubeconfig). The requests are made
here, because the bridge needs five of them, with timeouts of its own and without hidden retries. Used by the
bridge's Kubernetes port and by the command line.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

# Seconds to connect and to read one answer. The API server answers in milliseconds or is away.
TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=10.0)
# A watch ends by itself after so long, so that one that died silently is noticed.
WATCH_SECONDS: Final = 30

MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class Away(Exception):  # noqa: N818 - a state of the world
    """The API server does not answer, or not now: wait and try again."""


class Conflict(Exception):  # noqa: N818
    """Somebody else wrote first, or it is there already: read again."""


class Refused(Exception):  # noqa: N818
    """The API server answered and will not do it; the message is its own."""


class NotAllowed(Refused):
    """Our role does not allow it."""


class Gone(Refused):
    """It is not there (any more)."""


class ApiServer:
    """One API server with one identity. Safe to share between threads."""

    def __init__(self, settings: client.Configuration) -> None:
        self._settings = settings
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if not settings.verify_ssl:  # only by the user's own kubeconfig
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        self._pool = urllib3.PoolManager(maxsize=4, retries=False, ssl_context=context, timeout=TIMEOUT)

    @classmethod
    def from_surroundings(cls, context: str | None = None) -> ApiServer:
        """The cluster this pod runs in, else the one the kubeconfig names."""
        settings = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            return cls.from_kubeconfig(None, context)
        return cls(settings)

    @classmethod
    def from_kubeconfig(cls, path: Path | None = None, context: str | None = None) -> ApiServer:
        """As kubectl finds it when no path is given."""
        settings = client.Configuration()
        where = None if path is None else str(path)
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=where, context=context, client_configuration=settings
        )
        return cls(settings)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> Any:
        headers = {**self._identity(), "Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            answer = self._pool.request(
                method,
                self._address(path, query),
                headers=headers,
                body=None if body is None else json.dumps(body).encode(),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Away(f"the API server does not answer ({type(error).__name__})") from None
        _raise_for(answer.status, answer.data)
        return json.loads(answer.data)

    def watch(
        self, path: str, version: str, query: Mapping[str, str]
    ) -> Generator[tuple[str, dict[str, Any]], None, None]:
        """(type, object) as they come; ends after a while and wants to be called again."""
        asked = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        try:
            answer = self._pool.request(
                "GET",
                self._address(path, asked),
                headers=self._identity(),
                preload_content=False,
                timeout=urllib3.Timeout(connect=3.0, read=WATCH_SECONDS + 5.0),
            )
            try:
                if answer.status != 200:
                    _raise_for(answer.status, answer.read())
                rest = b""
                for chunk in answer.stream(None):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            raise Away(f"the watch ended: {event['object'].get('message')}")
                        yield event["type"], event["object"]
            finally:
                answer.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Away(f"the API server does not answer ({type(error).__name__})") from None

    def _identity(self) -> dict[str, str]:
        # Asked for each time: a projected token is replaced while we run.
        auth = self._settings.auth_settings().get("BearerToken")
        return {"Authorization": auth["value"]} if auth and auth["value"] else {}

    def _address(self, path: str, query: Mapping[str, str] | None) -> str:
        asked = "?" + urlencode(dict(query)) if query else ""
        return f"{self._settings.host.rstrip('/')}{path}{asked}"


def _raise_for(status: int, body: bytes) -> None:
    if 200 <= status < 300:
        return
    try:
        said = str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        said = ""
    if status == 409:
        raise Conflict(said)
    if status in (400, 413, 422):
        raise Refused(said)
    if status in (401, 403):
        raise NotAllowed(said)
    if status == 404:
        raise Gone(said)
    # 410: a watch's place in history is too old; 429 and 5xx: the server is busy or starting.
    raise Away(f"the API server answers {status} {said}".strip())
