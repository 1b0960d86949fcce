"""The API server: the watch that fills the directory, and the two reviews that decide who sees what.

The only module of the gateway that talks to Kubernetes. Started by `main`; `access` calls the reviews.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from kubernetes import client, config

from topicbinding.api import names
from topicbinding.gateway.directory import Directory, Kind

log = logging.getLogger(__name__)

IN_CLUSTER_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
WATCH_SECONDS: Final = 240
"""The API server ends a watch after this; a quiet one is then known to be alive at least so often."""
MAX_LINE: Final = 8 << 20
REVIEW_SECONDS: Final = 5.0


class Unreachable(Exception):  # noqa: N818 - a state of the world, named as the page shows it
    """The API server did not answer, or not sensibly."""


class Gone(Exception):  # noqa: N818
    """The watch's place is too old: list again."""


@dataclass(frozen=True, slots=True)
class User:
    """Who a token belongs to, as the API server says."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Cluster:
    """The API server over HTTP, with the credentials that kubectl or the pod would use."""

    def __init__(self) -> None:
        settings = client.Configuration()
        self._token_file: Path | None = None
        if IN_CLUSTER_TOKEN.exists():
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            self._token_file = IN_CLUSTER_TOKEN
        else:
            config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        self._host: str = settings.host
        self._bearer: str = settings.api_key.get("authorization", "")
        context: ssl.SSLContext | bool = True
        if self._host.startswith("https"):
            context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
            if settings.cert_file:
                context.load_cert_chain(settings.cert_file, settings.key_file)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))

    async def close(self) -> None:
        await self._session.close()

    def _headers(self) -> dict[str, str]:
        if self._token_file is not None:
            # Projected tokens are replaced every hour; the file is small and requests are rare.
            return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
        return {"Authorization": self._bearer} if self._bearer else {}

    async def get(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        async with self._session.get(
            self._host + path,
            params=parameters,
            headers=self._headers(),
            timeout=aiohttp.ClientTimeout(total=60, sock_connect=5),
            raise_for_status=True,
        ) as answer:
            body: dict[str, Any] = await answer.json()
            return body

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._session.post(
                self._host + path,
                json=body,
                headers=self._headers(),
                timeout=aiohttp.ClientTimeout(total=REVIEW_SECONDS),
                raise_for_status=True,
            ) as answer:
                made: dict[str, Any] = await answer.json()
                return made
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unreachable(f"the API server did not answer ({type(error).__name__})") from error

    async def watch(self, path: str, parameters: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The lines of a watch. Ends when the server ends it; Gone when the place is too old."""
        async with self._session.get(
            self._host + path,
            params={**parameters, "watch": "true", "allowWatchBookmarks": "true"},
            headers=self._headers(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=WATCH_SECONDS + 30),
            raise_for_status=True,
        ) as answer:
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > MAX_LINE:
                    raise Unreachable("a line of the watch is too long")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)

    async def review_token(self, token: str) -> User | None:
        """Who the token belongs to; None when the API server does not accept it."""
        answer = await self.post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
        )
        status = answer.get("status") or {}
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        extra = user.get("extra") or {}
        return User(
            name=str(user.get("username", "")),
            uid=str(user.get("uid") or ""),
            groups=tuple(user.get("groups") or ()),
            extra=tuple((key, tuple(values)) for key, values in sorted(extra.items())),
        )

    async def review_access(self, user: User, namespace: str, name: str) -> bool:
        """Whether the user may read this binding (or, with an empty name, all of the namespace or
        cluster)."""
        answer = await self.post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.name,
                    "uid": user.uid,
                    "groups": list(user.groups),
                    "extra": {key: list(values) for key, values in user.extra},
                    "resourceAttributes": {
                        "group": names.GROUP,
                        "resource": names.BINDINGS,
                        "verb": "get",
                        "namespace": namespace,
                        "name": name,
                    },
                },
            },
        )
        return bool((answer.get("status") or {}).get("allowed"))


class Watcher:
    """Keeps the directory equal to the cluster: list, watch, and again when the watch breaks."""

    def __init__(self, cluster: Cluster, directory: Directory, namespace: str = "") -> None:
        self._cluster = cluster
        self._directory = directory
        scope = f"/namespaces/{namespace}" if namespace else ""
        resources = f"/apis/{names.GROUP}/{names.VERSION}{scope}"
        events = f"/api/v1{scope}/events"
        self._sources: list[tuple[str, str, dict[str, str]]] = [
            (Kind.GENERATION, f"{resources}/{names.GENERATIONS}", {}),
            (Kind.BINDING, f"{resources}/{names.BINDINGS}", {}),
            (Kind.EVENT, events, {"fieldSelector": f"involvedObject.kind={names.BINDING_KIND}"}),
            (Kind.EVENT, events, {"fieldSelector": f"involvedObject.kind={names.GENERATION_KIND}"}),
        ]
        self._listed: set[int] = set()
        self._connected: set[int] = set()
        self._lost = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._follow(index, *source), name=f"watch {source[1]}")
            for index, source in enumerate(self._sources)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def ready(self) -> bool:
        """Whether everything has been listed once: before that, an unknown binding may well exist."""
        return len(self._listed) == len(self._sources)

    def down_seconds(self) -> float:
        """0 while the watches of bindings and generations are up, else how long they have been down. A quiet
        watch is not a silent one."""
        return 0.0 if {0, 1} <= self._connected else time.monotonic() - self._lost

    async def _follow(self, index: int, kind: str, path: str, parameters: dict[str, str]) -> None:
        place: str | None = None
        pause = 0.2
        while True:
            try:
                if place is None:
                    body = await self._cluster.get(path, parameters)
                    self._replace(kind, body.get("items") or [])
                    place = str(body["metadata"]["resourceVersion"])
                    self._listed.add(index)
                self._connected.add(index)
                pause = 0.2
                seconds = WATCH_SECONDS + random.randint(0, 30)
                query = {**parameters, "resourceVersion": place, "timeoutSeconds": str(seconds)}
                async for event in self._cluster.watch(path, query):
                    place = self._take(kind, event) or place
                continue
            except Gone:
                place = None
            except (aiohttp.ClientError, OSError, TimeoutError, Unreachable, ValueError, KeyError) as error:
                if index in self._connected or index not in self._listed:
                    log.warning("watch of %s broke: %s", path, type(error).__name__)
                if getattr(error, "status", None) == 410:
                    place = None
                if {0, 1} <= self._connected:
                    self._lost = time.monotonic()
                self._connected.discard(index)
            await asyncio.sleep(pause * random.uniform(0.7, 1.0))
            pause = min(pause * 2, 5.0)

    def _replace(self, kind: str, items: list[dict[str, Any]]) -> None:
        if kind == Kind.EVENT:
            # Two lists feed one kind, and Events are never removed by their absence.
            for item in items:
                self._directory.put(kind, item)
        else:
            self._directory.replace(kind, items)

    def _take(self, kind: str, event: dict[str, Any]) -> str | None:
        body = event["object"]
        match event["type"]:
            case "ADDED" | "MODIFIED":
                self._directory.put(kind, body)
            case "DELETED":
                self._directory.remove(kind, body)
            case "ERROR":
                if body.get("code") == 410:
                    raise Gone
                raise Unreachable(str(body.get("message", "watch error")))
        place = body.get("metadata", {}).get("resourceVersion")
        return str(place) if place else None
