"""Checks a bearer token offline against the API server's published keys.

Used by the driver (table API) and the bridge (control_raw). Nothing is asked of the API server per request:
its keys are fetched once, kept while it is away, and fetched again when a token names an unknown key.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import jwt

from topicbinding.api import names

# Only signatures made with a private key: with a shared-key algorithm the public key would be the secret.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
MAX_TOKEN_BYTES: Final = 16_384
# Clocks of two nodes may differ by so much; longer would keep expired tokens alive.
LEEWAY_SECONDS: Final = 10
# A stranger who sends made-up key ids must not turn us into a load on the API server.
REFRESH_AT_MOST_EVERY_SECONDS: Final = 10.0
# Keys the cluster has withdrawn are forgotten after so long.
KEYS_MAX_AGE_SECONDS: Final = 3_600.0

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NotAuthorized(Exception):  # noqa: N818 - an answer to the caller, not a fault of ours
    """The token is not good enough; the message says why and never shows the token."""


class TokenVerifier:
    """Accepts tokens of one subject, made for one audience. Safe to share between threads."""

    def __init__(
        self,
        fetch_keys: Callable[[], Mapping[str, Any]],
        subject: str,
        audience: str = names.DRIVER_AUDIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch_keys = fetch_keys
        self._subject = subject
        self._audience = audience
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None

    def verify(self, token: str) -> None:
        """Returns when the token is good, raises NotAuthorized when not. May block on the API server once."""
        if len(token) > MAX_TOKEN_BYTES:
            raise NotAuthorized("the token is too long")
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            raise NotAuthorized("the token is no JWT") from None
        if not isinstance(key_id, str):
            raise NotAuthorized("the token names no key")
        key = self._key(key_id)
        try:
            claims = jwt.decode(
                token,
                key=key,
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise NotAuthorized("the token has expired") from None
        except jwt.InvalidAudienceError:
            raise NotAuthorized(f"the token was not made for {self._audience!r}") from None
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise NotAuthorized(f"the token is not valid ({type(error).__name__})") from None
        if claims["sub"] != self._subject:
            raise NotAuthorized("the token is another account's")

    def _key(self, key_id: str) -> jwt.PyJWK:
        with self._lock:
            now = self._clock()
            stale = self._fetched_at is None or now - self._fetched_at > KEYS_MAX_AGE_SECONDS
            may_try = self._tried_at is None or now - self._tried_at >= REFRESH_AT_MOST_EVERY_SECONDS
            if (stale or key_id not in self._keys) and may_try:
                self._tried_at = now
                self._refresh(now)
            key = self._keys.get(key_id)
        if key is None:
            raise NotAuthorized("the token is signed with a key this cluster does not publish")
        return key

    def _refresh(self, now: float) -> None:
        try:
            published = self._fetch_keys()
            entries = published["keys"]
        except (
            Exception
        ):  # whatever the transport raises: the keys we have stay good while the server is away
            return
        keys: dict[str, jwt.PyJWK] = {}
        for entry in entries:
            try:
                keys[entry["kid"]] = jwt.PyJWK(entry)
            except (jwt.PyJWTError, AttributeError, KeyError, TypeError, ValueError):
                continue  # a kind of key we do not know is somebody else's
        if keys:
            self._keys, self._fetched_at = keys, now


def bearer(authorization: str | None) -> str:
    """The token of an Authorization header."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthorized("an 'Authorization: Bearer <token>' header is needed")
    return token.strip()


def cluster_keys(timeout: float = 5.0) -> Mapping[str, Any]:
    """The keys of the cluster this pod runs in; every ServiceAccount may read them."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    token = (SERVICE_ACCOUNT_DIR / "token").read_text().strip()
    request = urllib.request.Request(
        f"https://{host}:{port}/openid/v1/jwks", headers={"Authorization": f"Bearer {token}"}
    )
    trusted = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT_DIR / "ca.crt"))
    with urllib.request.urlopen(request, timeout=timeout, context=trusted) as answer:  # noqa: S310
        keys: Mapping[str, Any] = json.load(answer)
    return keys
