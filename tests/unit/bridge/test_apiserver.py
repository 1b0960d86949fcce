"""Every answer of an API server becomes one of our few words, and a watch survives how bytes arrive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes.client import Configuration

from topicbinding.bridge.apiserver import ApiServer, Away, Conflict, Gone, NotAllowed, Refused


@contextmanager
def answering(status: int, *chunks: bytes) -> Iterator[tuple[ApiServer, list[str]]]:
    """A server that gives one answer to everything, and remembers what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            for chunk in chunks:
                self.wfile.write(chunk)
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield ApiServer(Configuration(host=f"http://127.0.0.1:{server.server_port}")), asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (409, Conflict),
        (422, Refused),
        (400, Refused),
        (413, Refused),
        (401, NotAllowed),
        (403, NotAllowed),
        (404, Gone),
        (410, Away),
        (429, Away),
        (500, Away),
        (503, Away),
    ],
)
def test_errors_are_typed_and_keep_the_servers_words(status: int, error: type[Exception]) -> None:
    with (
        answering(status, b'{"message": "the very words"}') as (server, _),
        pytest.raises(error, match="very words"),
    ):
        server.request("GET", "/x")


def test_an_error_without_words() -> None:
    with answering(500, b"<html>") as (server, _), pytest.raises(Away, match="500"):
        server.request("GET", "/x")


def test_nobody_there() -> None:
    with answering(200) as (server, _):
        pass
    with pytest.raises(Away, match="does not answer"):
        server.request("GET", "/x")


def test_an_answer() -> None:
    with answering(200, b'{"a": 1}') as (server, asked):
        assert server.request("GET", "/x", query={"fieldManager": "a b"}) == {"a": 1}
    assert asked == ["/x?fieldManager=a+b"]


def test_a_watch_puts_lines_together_again() -> None:
    events = [{"type": "ADDED", "object": {"n": 1}}, {"type": "MODIFIED", "object": {"n": 2}}]
    text = b"".join(json.dumps(each).encode() + b"\n" for each in events)
    with answering(200, text[:10], text[10:45], text[45:]) as (server, asked):
        assert list(server.watch("/x", "0", {"fieldSelector": "metadata.name=b"})) == [
            ("ADDED", {"n": 1}),
            ("MODIFIED", {"n": 2}),
        ]
    assert "watch=true" in asked[0]
    assert "resourceVersion=0" in asked[0]


def test_a_watch_that_is_refused_or_ends_with_an_error() -> None:
    with answering(403, b'{"message": "no"}') as (server, _), pytest.raises(NotAllowed):
        list(server.watch("/x", "0", {}))
    error = json.dumps({"type": "ERROR", "object": {"message": "too old"}}).encode() + b"\n"
    with answering(200, error) as (server, _), pytest.raises(Away, match="too old"):
        list(server.watch("/x", "0", {}))
