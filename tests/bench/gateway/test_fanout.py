"""Two hundred viewers at a thousand rows a second: what the gateway adds to freshness, and its memory.

Freshness is measured at a few viewers that decode every frame, against a viewer that is connected to the
driver itself; the other viewers take their bytes in a process of their own. Prints a table. Sizes:
TB_BENCH_VIEWERS, TB_BENCH_SECONDS.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

import aiohttp
import psutil

from tests.support.driver_server import TOKEN, DriverServer
from topicbinding.tables import frames

VIEWERS = int(os.environ.get("TB_BENCH_VIEWERS", "200"))
SECONDS = float(os.environ.get("TB_BENCH_SECONDS", "20"))
ROWS_PER_SECOND = 1000
PROBES = 4
TICK = 0.01
TABLE = "final_ui"


async def produce(server: DriverServer, until: float) -> int:
    """Rows at a steady rate, each carrying the time at which it was made."""
    table = server.drivers["shop", "orders-g1"].tables[TABLE]
    made = 0
    begun = time.monotonic()
    while time.monotonic() < until:
        due = int((time.monotonic() - begun) * ROWS_PER_SECOND) - made
        if due > 0:
            now = time.time() * 1000
            table.put(
                [
                    {
                        "_row": (made + n) % 20_000,
                        "userId": f"user-{(made + n) % 20_000}",
                        "name": "Grace Hopper",
                        "email": "grace.hopper@example.org",
                        "age": 40,
                        "accountType": "checking",
                        "balance": now,
                    }
                    for n in range(due)
                ]
            )
            made += due
        await asyncio.sleep(TICK)
    return made


async def probe(http: aiohttp.ClientSession, url: str, until: float, headers: dict[str, str]) -> list[float]:
    """The age in milliseconds of every row at the moment it is decoded."""
    ages: list[float] = []
    async with http.ws_connect(url, max_msg_size=0, headers=headers) as stream:
        while time.monotonic() < until:
            header, rows = frames.decode(await stream.receive_bytes())
            if header["type"] == "delta" and rows is not None:
                now = time.time() * 1000
                ages.extend(now - made for made in rows["balance"].to_pylist())
    return ages


def line(name: str, ages: list[float]) -> str:
    cut = statistics.quantiles(ages, n=100)
    return f"{name:<28}{cut[49]:>8.1f}{cut[94]:>8.1f}{cut[98]:>8.1f}{len(ages):>10}"


async def test_two_hundred_viewers(tmp_path: Path) -> None:
    server = DriverServer()
    await server.start()
    server.add("shop", "orders", 1, keep=200)
    server.drivers["shop", "orders-g1"].tables[TABLE].put(
        [{"userId": "first", "balance": time.time() * 1000}]
    )
    token = tmp_path / "token"
    token.write_text(TOKEN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["operator", "."])}
    gateway = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.gateway.serve",
        server.url,
        str(token),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert gateway.stdout is not None
    port = (await gateway.stdout.readline()).decode().strip()
    path = f"/v1/bindings/shop/orders/tables/{TABLE}/stream"
    crowd = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.gateway.crowd",
        "127.0.0.1",
        port,
        path,
        str(VIEWERS - PROBES),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert crowd.stdout is not None
    assert crowd.stdin is not None
    assert (await crowd.stdout.readline()).strip() == b"ready"
    process = psutil.Process(gateway.pid)
    process.cpu_percent()
    until = time.monotonic() + SECONDS
    async with aiohttp.ClientSession() as http:
        direct_url = server.url + f"/shop/orders-g1/v1/tables/{TABLE}/stream"
        gateway_url = f"http://127.0.0.1:{port}{path}"
        producing = asyncio.create_task(produce(server, until))
        direct, *through = await asyncio.gather(
            probe(http, direct_url, until, {"Authorization": f"Bearer {TOKEN}"}),
            *(probe(http, gateway_url, until, {}) for _ in range(PROBES)),
        )
        made = await producing
    memory = process.memory_info().rss / 1e6
    cpu = process.cpu_percent()
    crowd.stdin.write(b"\n")
    await crowd.stdin.drain()
    lost, taken = (int(word) for word in (await crowd.stdout.readline()).split())
    await crowd.wait()
    gateway.terminate()
    await gateway.wait()
    await server.stop()
    behind = [age for ages in through for age in ages]
    added = statistics.quantiles(behind, n=100)[94] - statistics.quantiles(direct, n=100)[94]
    print(
        f"\n{VIEWERS} viewers, {made / SECONDS:.0f} rows/s for {SECONDS:.0f} s, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'produced -> decoded, ms':<28}{'p50':>8}{'p95':>8}{'p99':>8}{'rows':>10}")
    print(line("at the driver", direct))
    print(line("through the gateway", behind))
    print(
        f"added at p95: {added:.1f} ms; gateway: {memory:.0f} MB, {cpu:.0f} % of a core; lost sockets: {lost}"
    )
    print(f"bytes taken by the crowd: {taken / 1e6:.0f} MB")
    assert lost == 0
    assert memory < 500
    assert all(len(ages) > 0.9 * len(direct) for ages in through), "every viewer saw (nearly) every row"
    assert added < 30
