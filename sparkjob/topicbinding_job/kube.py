"""The driver's own Generation: read it, wait for its source, report on its status. Nothing else of
Kubernetes.

The only module of the job that talks to the API server. `driver` reads and waits, `reporter` reports. Errors
become `ApiAway` (try again) or `GenerationGone` (there is nothing left to work for).
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from topicbinding.api import Generation, names

logger = logging.getLogger(__name__)

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT: Final = 10.0
WATCH_SECONDS: Final = 240
"""A watch is asked to end by then; a connection that died silently is noticed a little later."""


class ApiAway(Exception):  # noqa: N818 - a state of the world, not a fault
    """The API server does not answer, or not sensibly: try again."""


class GenerationGone(Exception):  # noqa: N818 - a state of the world, not a fault
    """Our Generation was deleted."""


class GenerationPort(Protocol):
    """Where a driver's Generation lives."""

    def read(self) -> Generation: ...

    def wait_for_source(self, stop: threading.Event) -> Generation | None:
        """The Generation once it has a source; None if asked to stop before."""

    def report(self, status: Mapping[str, Any]) -> None:
        """Merge into the status."""


class ClusterGeneration:
    """Our Generation on the API server of the cluster this pod runs in."""

    def __init__(self, namespace: str, name: str) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._host, self._port = host, int(port)
        self._name = name
        self._collection = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.GENERATIONS}"
        self._path = f"{self._collection}/{name}"
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def read(self) -> Generation:
        with self._asked("GET", self._path) as answer:
            return Generation.model_validate(json.load(answer))

    def wait_for_source(self, stop: threading.Event) -> Generation | None:
        while not stop.is_set():
            try:
                found = self._watched(stop)
            except ApiAway as trouble:
                logger.info("waiting for the API server: %s", trouble)
                stop.wait(0.5)
                continue
            if found is not None:
                return found
        return None

    def report(self, status: Mapping[str, Any]) -> None:
        path = f"{self._path}/status?fieldManager={names.DRIVER_MANAGER}"
        with self._asked("PATCH", path, {"status": status}) as answer:
            answer.read()

    def _watched(self, stop: threading.Event) -> Generation | None:
        """Read once, then follow the changes until there is a source or the watch ends."""
        with self._asked("GET", self._path) as answer:
            now = Generation.model_validate(json.load(answer))
        if now.spec.source is not None:
            return now
        query = (
            f"{self._collection}?watch=true&fieldSelector=metadata.name%3D{self._name}"
            f"&resourceVersion={now.metadata['resourceVersion']}&timeoutSeconds={WATCH_SECONDS}"
        )
        with self._asked("GET", query, timeout=WATCH_SECONDS + 30) as answer:
            while not stop.is_set():
                line = answer.readline()
                if not line:
                    return None
                event = json.loads(line)
                if event["type"] == "DELETED":
                    raise GenerationGone(self._name)
                if event["type"] not in ("ADDED", "MODIFIED"):
                    return None
                now = Generation.model_validate(event["object"])
                if now.spec.source is not None:
                    return now
        return None

    @contextmanager
    def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = TIMEOUT
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._trust)
        try:
            # The token is replaced while we run: read it each time.
            headers = {
                "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
                "Content-Type": "application/merge-patch+json",
                "Accept": "application/json",
            }
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status == http.client.NOT_FOUND:
                raise GenerationGone(self._name)
            if answer.status >= 300:
                raise ApiAway(f"{method}: {answer.status} {answer.read(500)!r}")
            yield answer
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise ApiAway(f"{method}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()


class FileGeneration:
    """A Generation in a directory: `generation.json` is read, `status.json` is written. For running the job
    without a cluster (tests, benchmarks)."""

    def __init__(self, directory: Path) -> None:
        self._spec = directory / "generation.json"
        self._status = directory / "status.json"

    def read(self) -> Generation:
        found: dict[str, Any] = json.loads(self._spec.read_text())
        if self._status.exists():
            found["status"] = json.loads(self._status.read_text())
        return Generation.model_validate(found)

    def wait_for_source(self, stop: threading.Event) -> Generation | None:
        while not stop.is_set():
            found = self.read()
            if found.spec.source is not None:
                return found
            stop.wait(0.02)
        return None

    def report(self, status: Mapping[str, Any]) -> None:
        known: dict[str, Any] = json.loads(self._status.read_text()) if self._status.exists() else {}
        known.update(status)
        written = self._status.with_suffix(".new")
        written.write_text(json.dumps({name: value for name, value in known.items() if value is not None}))
        written.replace(self._status)
