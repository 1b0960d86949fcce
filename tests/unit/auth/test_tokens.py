"""A token is taken only if it is whole, fresh, for us, from the gateway, and signed by the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from topicbinding.auth import NotAuthorized, TokenVerifier, bearer

SUBJECT = "system:serviceaccount:topicbinding-system:topicbinding-gateway"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def published(*keys: tuple[str, rsa.RSAPrivateKey]) -> Mapping[str, Any]:
    entries = []
    for kid, key in keys:
        entry = json.loads(RSAAlgorithm.to_jwk(key.public_key()))
        entries.append({**entry, "kid": kid, "use": "sig", "alg": "RS256"})
    return {"keys": entries}


def token(key: rsa.RSAPrivateKey = KEY, kid: str | None = "one", **claims: Any) -> str:
    said = {"aud": ["topicbinding-driver"], "sub": SUBJECT, "exp": time.time() + 600} | claims
    said = {name: value for name, value in said.items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(said, key, algorithm="RS256", headers=headers)


def verifier(fetch: Callable[[], Mapping[str, Any]] | None = None) -> TokenVerifier:
    return TokenVerifier(fetch or (lambda: published(("one", KEY))), SUBJECT)


def test_the_gateways_token_is_taken() -> None:
    verifier().verify(token())


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: token(exp=time.time() - 60), "expired"),
        (lambda: token(exp=None), "not valid"),
        (lambda: token(aud=["https://kubernetes.default.svc"]), "not made for"),
        (lambda: token(aud=None), "not valid"),
        (lambda: token(sub="system:serviceaccount:default:default"), "another account"),
        (lambda: token(sub=None), "not valid"),
        (lambda: token(nbf=time.time() + 600), "not valid"),
        (lambda: token(OTHER_KEY), "not valid"),
        (lambda: token(kid="two"), "does not publish"),
        (lambda: token(kid=None), "names no key"),
        (lambda: token()[:-4] + "AAAA", "not valid"),
        (lambda: "a.b", "no JWT"),
        (lambda: "", "no JWT"),
        (lambda: "x" * 20_000, "too long"),
        (lambda: jwt.encode({"sub": SUBJECT}, "", algorithm="none", headers={"kid": "one"}), "not valid"),
    ],
)
def test_every_other_token_is_refused_without_being_shown(made: Callable[[], str], says: str) -> None:
    bad = made()
    with pytest.raises(NotAuthorized, match=says) as caught:
        verifier().verify(bad)
    assert not bad or bad not in str(caught.value)


def test_keys_are_kept_while_the_api_server_is_away_and_strangers_cannot_make_us_ask_it() -> None:
    now, asked = [0.0], [0]

    def fetch() -> Mapping[str, Any]:
        asked[0] += 1
        if asked[0] > 1:
            raise OSError("away")
        return published(("one", KEY))

    checker = TokenVerifier(fetch, SUBJECT, clock=lambda: now[0])
    for _ in range(3):
        checker.verify(token())
    assert asked == [1]
    for _ in range(50):
        with pytest.raises(NotAuthorized):
            checker.verify(token(OTHER_KEY, kid="made-up"))
    assert asked == [1]
    now[0] = 4_000.0
    checker.verify(token())  # stale keys, server away: still good
    assert asked == [2]


def test_a_rotated_key_is_found() -> None:
    now, keys = [0.0], [published(("one", KEY))]
    checker = TokenVerifier(lambda: keys[0], SUBJECT, clock=lambda: now[0])
    checker.verify(token())
    keys[0] = published(("two", OTHER_KEY))
    now[0] = 11.0
    checker.verify(token(OTHER_KEY, kid="two"))
    with pytest.raises(NotAuthorized, match="does not publish"):
        checker.verify(token())


def test_entries_we_do_not_understand_do_not_hide_the_others() -> None:
    entries = [{"kid": "odd", "kty": "XX"}, {"kty": "RSA"}, None, *published(("one", KEY))["keys"]]
    verifier(lambda: {"keys": entries}).verify(token())


@pytest.mark.parametrize("header", [None, "", "Basic abc", "Bearer", "Bearer  ", "abc"])
def test_a_header_without_a_bearer_token(header: str | None) -> None:
    with pytest.raises(NotAuthorized, match="header is needed"):
        bearer(header)


def test_the_bearer_token() -> None:
    assert bearer("bearer  abc ") == "abc"
