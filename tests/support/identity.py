"""A token endpoint of a test's own, as an OIDC provider has it: client credentials in, a signed token out."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT_ID = "svc-topicbinding"
CLIENT_SECRET = "c1ient-s3cret"


@dataclass
class IdentityProvider:
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    scopes_asked: list[str] = field(default_factory=list)

    def published(self) -> dict[str, Any]:
        entry = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**entry, "kid": "one", "use": "sig", "alg": "RS256"}]}

    def token(self, scope: str) -> str:
        now = int(time.time())
        claims = {
            "sub": CLIENT_ID,
            "iss": "test",
            "aud": "kafka",
            "iat": now,
            "exp": now + 3600,
            "scope": scope,
        }
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "one"})

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """The endpoint's address."""
        provider = self

        class Endpoint(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
                good = self.headers.get("Authorization") == f"Basic {expected}"
                scope = asked.get("scope", [""])[0]
                provider.scopes_asked.append(scope)
                body: dict[str, Any] = {"error": "invalid_client"}
                if good:
                    body = {"access_token": provider.token(scope), "token_type": "Bearer", "expires_in": 3600}
                data = json.dumps(body).encode()
                self.send_response(200 if good else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)
