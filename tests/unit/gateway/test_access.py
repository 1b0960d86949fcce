"""Tokens, rights and their cache, against a cluster in memory. The real one is asked in
tests/integration/gateway."""

from __future__ import annotations

import asyncio
import base64

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from topicbinding.gateway.access import TOKEN_SUBPROTOCOL, TokenAccess, token_of
from topicbinding.gateway.kube import Unreachable, User


class Cluster:
    """Knows one token and one right, and counts the questions."""

    def __init__(self) -> None:
        self.tokens = {"good": User("ann")}
        self.rights = {("ann", "shop")}
        self.asked = 0
        self.away = False

    async def review_token(self, token: str) -> User | None:
        self.asked += 1
        if self.away:
            raise Unreachable("away")
        return self.tokens.get(token)

    async def review_access(self, user: User, namespace: str, name: str) -> bool:
        self.asked += 1
        return (user.name, namespace) in self.rights


def request(**headers: str) -> web.Request:
    return make_mocked_request(
        "GET", "/", headers={name.replace("_", "-"): text for name, text in headers.items()}
    )


def bearer(token: str) -> web.Request:
    return request(Authorization=f"Bearer {token}")


def offered(token: str) -> web.Request:
    text = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return request(Sec_WebSocket_Protocol=f"v1.topicbinding.dev, {TOKEN_SUBPROTOCOL}{text}")


def test_where_a_token_may_stand() -> None:
    assert token_of(bearer("abc")) == "abc"
    assert token_of(offered("äbc?>")) == "äbc?>"
    assert token_of(request(Authorization="bearer abc")) == "abc"
    assert token_of(request(Authorization="Basic abc")) is None
    assert token_of(request(Authorization="Bearer ")) is None
    assert token_of(request(Authorization="Bearer " + "x" * 20_000)) is None
    assert token_of(request(Sec_WebSocket_Protocol=TOKEN_SUBPROTOCOL + "!!!")) is None
    assert token_of(request()) is None


async def test_only_a_known_token_gets_in() -> None:
    access = TokenAccess(Cluster(), 30)
    assert (await access.who(bearer("good"))).name == "ann"
    assert (await access.who(offered("good"))).name == "ann"
    for bad in (request(), bearer("bad")):
        with pytest.raises(web.HTTPUnauthorized) as caught:
            await access.who(bad)
        assert "Bearer" in caught.value.headers["WWW-Authenticate"]


async def test_rights_are_by_namespace() -> None:
    access = TokenAccess(Cluster(), 30)
    user = await access.who(bearer("good"))
    assert await access.may_see(user, "shop")
    assert not await access.may_see(user, "bank")


async def test_answers_are_remembered_for_a_while_and_asked_once() -> None:
    cluster = Cluster()
    access = TokenAccess(cluster, 30)
    await asyncio.gather(*(access.who(bearer("good")) for _ in range(50)))
    assert cluster.asked == 1
    forgetful = TokenAccess(cluster, 0)
    await forgetful.who(bearer("good"))
    cluster.tokens.clear()
    with pytest.raises(web.HTTPUnauthorized):
        await forgetful.who(bearer("good"))


async def test_a_cluster_that_is_away_lets_nobody_in_and_is_asked_again() -> None:
    cluster = Cluster()
    cluster.away = True
    access = TokenAccess(cluster, 30)
    with pytest.raises(Unreachable):
        await access.who(bearer("good"))
    cluster.away = False
    assert (await access.who(bearer("good"))).name == "ann"


async def test_no_token_is_kept_in_memory() -> None:
    access = TokenAccess(Cluster(), 30)
    await access.who(bearer("good"))
    assert "good" not in repr(vars(access._users))
