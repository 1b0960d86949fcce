"""Who may see what. Reading only: there is nothing else to allow.

token: a Kubernetes bearer token names the user (TokenReview), and the right to `get topicbindings` in a
namespace (SubjectAccessReview) decides. open: everybody, for clusters that are published on loopback alone.
Called by the routes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

from aiohttp import hdrs, web

from topicbinding.gateway.kube import User

SUBPROTOCOL: Final = "v1.topicbinding.dev"
"""The WebSocket subprotocol every client may offer."""
TOKEN_SUBPROTOCOL: Final = "base64url.bearer.authorization.topicbinding.dev."  # noqa: S105 - a prefix
"""Browsers cannot send headers with a WebSocket: there the token travels as an offered subprotocol, as with
kubectl's API."""
MAX_TOKEN: Final = 16 * 1024
MAX_CACHED: Final = 4096

ANYONE: Final = User(name="anyone")


class Reviews(Protocol):
    async def review_token(self, token: str) -> User | None: ...

    async def review_access(self, user: User, namespace: str, name: str) -> bool: ...


class Access(Protocol):
    mode: str

    async def who(self, request: web.Request) -> User:
        """The user of a request; raises HTTP 401 when there is none."""

    async def may_see(self, user: User, namespace: str) -> bool: ...


class OpenAccess:
    mode = "open"

    async def who(self, request: web.Request) -> User:
        return ANYONE

    async def may_see(self, user: User, namespace: str) -> bool:
        return True


class TokenAccess:
    mode = "token"

    def __init__(self, reviews: Reviews, seconds: float) -> None:
        self._reviews = reviews
        self._users: _Cache[str, User | None] = _Cache(seconds)
        self._rights: _Cache[tuple[User, str], bool] = _Cache(seconds)

    async def who(self, request: web.Request) -> User:
        token = token_of(request)
        if token is None:
            raise _unauthorized("a Kubernetes bearer token is needed")
        # The cache holds a digest: a dump of this process shows no token.
        digest = hashlib.sha256(token.encode()).hexdigest()
        user = await self._users.get(digest, lambda: self._reviews.review_token(token))
        if user is None:
            raise _unauthorized("the token is not accepted by the cluster")
        return user

    async def may_see(self, user: User, namespace: str) -> bool:
        return await self._rights.get(
            (user, namespace), lambda: self._reviews.review_access(user, namespace, "")
        )


def _unauthorized(message: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=message, headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="topicbinding"'})


def token_of(request: web.Request) -> str | None:
    """The token of a request: from the Authorization header, or from the subprotocols a browser offers."""
    kind, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if kind.lower() == "bearer" and 0 < len(token.strip()) <= MAX_TOKEN:
        return token.strip()
    for offered in request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").split(","):
        text = offered.strip()
        if text.startswith(TOKEN_SUBPROTOCOL) and len(text) <= MAX_TOKEN:
            encoded = text[len(TOKEN_SUBPROTOCOL) :]
            try:
                return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode() or None
            except (binascii.Error, UnicodeDecodeError):
                return None
    return None


K = TypeVar("K")
V = TypeVar("V")


class _Cache(Generic[K, V]):
    """Answers for a short while; equal questions at the same time are asked once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._answers: OrderedDict[K, tuple[float, asyncio.Future[V]]] = OrderedDict()

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        now = time.monotonic()
        known = self._answers.get(key)
        if known is not None and known[0] > now and not (known[1].done() and _failed(known[1])):
            return await asyncio.shield(known[1])
        future = asyncio.ensure_future(ask())
        self._answers[key] = (now + self._seconds, future)
        self._answers.move_to_end(key)
        while len(self._answers) > MAX_CACHED:
            self._answers.popitem(last=False)
        return await asyncio.shield(future)


def _failed(future: asyncio.Future[V]) -> bool:
    return future.cancelled() or future.exception() is not None
