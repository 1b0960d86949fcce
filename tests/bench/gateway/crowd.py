"""Viewers that only take bytes off their sockets: `python -m tests.bench.gateway.crowd HOST PORT PATH COUNT`.

A browser would decode; here two hundred viewers share two cores with everything else, and decoding in this
process would measure this process.
"""

from __future__ import annotations

import asyncio
import sys


class Taker(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self.taken = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.taken += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def main(host: str, port: int, path: str, count: int) -> None:
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    takers = []
    for _ in range(count):
        _, taker = await loop.create_connection(lambda: Taker(request), host, port)
        takers.append(taker)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    lost = sum(taker.lost for taker in takers)
    taken = sum(taker.taken for taker in takers)
    print(f"{lost} {taken}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
