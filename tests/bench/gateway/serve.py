"""A gateway in a process of its own, with one binding whose driver is given: `python -m
tests.bench.gateway.serve URL TOKEN`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from topicbinding.gateway.access import OpenAccess
from topicbinding.gateway.app import make_app
from topicbinding.gateway.directory import Directory, Kind
from topicbinding.gateway.settings import Settings


async def main(drivers: str, token_file: str) -> None:
    directory = Directory()
    kafka = {"bootstrapServers": "kafka:9092"}
    source = {"usersTopic": "users", "accountsTopic": "accounts", "joinType": "left", "kafka": kafka}
    directory.put(
        Kind.GENERATION,
        {
            "metadata": {"namespace": "shop", "name": "orders-g1", "uid": "g1"},
            "spec": {"binding": "orders", "bindingUid": "b", "number": 1, "source": source, "spark": {}},
            "status": {"phase": "CaughtUp"},
        },
    )
    directory.put(
        Kind.BINDING,
        {
            "metadata": {"namespace": "shop", "name": "orders", "uid": "b"},
            "spec": source,
            "status": {"activeGeneration": 1},
        },
    )
    settings = Settings(
        host="127.0.0.1",
        port=0,
        access="open",
        driver_url=drivers + "/{namespace}/{generation}",
        token_file=Path(token_file),
        max_streams_per_client=1000,
        request_burst=5000,
    )
    runner = web.AppRunner(make_app(settings, directory, OpenAccess()), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, settings.host, 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)  # as the gateway's own main does
    asyncio.run(main(sys.argv[1], sys.argv[2]))
