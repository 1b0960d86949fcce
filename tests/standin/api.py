"""The few requests a stand-in makes, with the pod's own account or with a kubeconfig. Needs aiohttp only."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GENERATIONS = "/apis/topicbinding.dev/v1alpha1"


class Api:
    def __init__(self, host: str, token: str | None, tls: ssl.SSLContext) -> None:
        self._host = host
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def in_pod(cls) -> Api:
        tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        return cls("https://kubernetes.default.svc", (ACCOUNT / "token").read_text(), tls)

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Api:
        """The first cluster and user of a kubeconfig with inline certificates, as kind writes it."""
        import yaml

        said = yaml.safe_load(path.read_text())
        cluster, user = said["clusters"][0]["cluster"], said["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=authority)
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile("wb") as pair:
                for part in ("client-certificate-data", "client-key-data"):
                    pair.write(base64.b64decode(user[part]))
                pair.flush()
                tls.load_cert_chain(pair.name)
        return cls(cluster["server"], user.get("token"), tls)

    async def __aenter__(self) -> Api:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=32)
        self._session = aiohttp.ClientSession(self._host, headers=self._headers, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            # TLS connections say goodbye in the background; the loop must live until they have.
            await asyncio.sleep(0.25)

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "use `async with`"
        return self._session

    async def get(self, path: str) -> dict[str, Any] | None:
        async with self.session.get(path) as answer:
            if answer.status == 404:
                return None
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json()
            return found

    async def patch(self, path: str, body: dict[str, Any], content: str = "merge-patch+json") -> int:
        headers = {"Content-Type": f"application/{content}"}
        async with self.session.patch(path, data=json.dumps(body), headers=headers) as answer:
            await answer.read()
            return answer.status

    async def post(self, path: str, body: dict[str, Any]) -> int:
        async with self.session.post(path, json=body) as answer:
            await answer.read()
            return answer.status

    async def delete(self, path: str) -> int:
        async with self.session.delete(path) as answer:
            await answer.read()
            return answer.status

    async def watch(self, path: str, **query: str) -> AsyncIterator[dict[str, Any]]:
        """What is there, then what changes; starts afresh when the server ends it."""
        while True:
            timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
            try:
                wanted = query | {"watch": "true"}
                async with self.session.get(path, params=wanted, timeout=timeout) as answer:
                    answer.raise_for_status()
                    async for line in answer.content:
                        yield json.loads(line)
            except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError):
                continue
