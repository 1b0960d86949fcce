"""The job's speed, as one table: `make bench`, or `pytest tests/bench/job -s`.

Every figure stands beside a calibration (a fixed piece of work of this process), so that a slow hour can be
recognised. `TB_BENCH_ROWS` (default 3,000,000) is the size of the large backlog; the broker is TB_TEST_KAFKA.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import aiohttp
import numpy as np
import psutil
import pytest
from confluent_kafka import Producer

from tests.integration.job import world
from tests.integration.job.world import BROKER, DriverProcess, generation, source_of
from tests.support.cluster import ROOT
from topicbinding.tables import frames

ROWS = int(os.environ.get("TB_BENCH_ROWS", "3000000"))
SECONDS = float(os.environ.get("TB_BENCH_SECONDS", "60"))
WARM_SECONDS = 20
"""Of traffic before anything is measured: a live table is read for hours, its first seconds are another
figure."""
LINES: list[tuple[str, str, str]] = []


def note(what: str, figure: str, bar: str = "") -> None:
    LINES.append((what, figure, bar))
    print(f"  {what}: {figure}   {bar}", flush=True)


def calibration() -> float:
    """Seconds for a fixed piece of single-threaded work: 400 MB of SHA-256 and three million additions."""
    started = time.monotonic()
    digest = hashlib.sha256()
    block = bytes(1 << 20)
    for _ in range(400):
        digest.update(block)
    total = 0
    for number in range(3_000_000):
        total += number
    return time.monotonic() - started


@pytest.fixture(scope="module", autouse=True)
def _printed() -> Iterator[None]:
    cores = os.cpu_count()
    print(f"\ncalibration before: {calibration():.2f} s; load {os.getloadavg()[0]:.1f} on {cores} cores")
    yield
    print(f"calibration after: {calibration():.2f} s; load {os.getloadavg()[0]:.1f}\n")
    width = max(len(what) for what, _, _ in LINES)
    for what, figure, bar in LINES:
        print(f"| {what:<{width}} | {figure:<40} | {bar} |")


@pytest.fixture(scope="module")
def archive() -> dict[str, str]:
    """The class archive that the image has, made once for these jars."""
    path = world.archive()
    if not path.exists():
        env = os.environ | {
            "TB_JARS": str(world.jars()),
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'sparkjob'}",
        }
        making = [sys.executable, "-m", "topicbinding_job.archive", str(path)]
        subprocess.run(
            making, env=env, check=True, timeout=600, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    return {"TB_ARCHIVE": str(path)}


@pytest.fixture
def topics() -> Iterator[world.Topics]:
    made = world.Topics()
    yield made
    made.close()


def fill(topics: world.Topics, users: int, accounts: int, keys: int) -> tuple[str, str]:
    places = topics.make("users"), topics.make("accounts")
    topics.send(
        places[0],
        (
            b'{"userId":"u%d","name":"name %d","email":"%d@example.org","age":%d}' % (n % keys, n, n, n % 90)
            for n in range(users)
        ),
    )
    topics.send(
        places[1],
        (
            b'{"userId":"u%d","accountType":"type %d","balance":%d.5}' % (n * 7919 % keys, n % 5, n)
            for n in range(accounts)
        ),
    )
    return places


def tree(driver: DriverProcess) -> list[psutil.Process]:
    parent = psutil.Process(driver.pid)
    return [parent, *parent.children(recursive=True)]


def resident(driver: DriverProcess) -> float:
    return sum(each.memory_info().rss for each in tree(driver)) / 2**20


def cpu(driver: DriverProcess) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in tree(driver))


def test_starts_idle_and_memory(topics: world.Topics, tmp_path: Path, archive: dict[str, str]) -> None:
    users, accounts = fill(topics, 1_000, 5_000, 1_000)
    cold = tmp_path / "cold"
    cold.mkdir()
    with DriverProcess(cold, env=archive) as driver:
        started = time.monotonic()
        driver.start(generation(source_of(users, accounts), spark={"mode": "auto"}))
        driver.wait_phase("CaughtUp", seconds=600)
        note(
            "cold process -> caught up on 6,000 rows",
            f"{time.monotonic() - started:.1f} s, {cpu(driver):.0f} s of CPU",
            "<= 10 s",
        )
        started = time.monotonic()
        driver.wait_mode("realtime", seconds=600)
        note("change-over to real time", f"{time.monotonic() - started:.1f} s", "<= 2 s")
        time.sleep(10)
        before, since = cpu(driver), time.monotonic()
        time.sleep(20)
        note(
            "idle CPU of a live generation, real time",
            f"{(cpu(driver) - before) / (time.monotonic() - since):.3f} cores",
            "<= 0.1",
        )
        note("driver RSS, small tables", f"{resident(driver):.0f} MB", "<= 900 MB")
        started = time.monotonic()
        driver.stop()
        note("SIGTERM -> ended", f"{time.monotonic() - started:.1f} s")
    warm = tmp_path / "warm"
    warm.mkdir()
    served = fill(topics.another(), 1_000, 5_000, 1_000)
    with DriverProcess(warm, env=archive) as driver:
        # As the controller makes one: with what the binding reads now.
        driver.start(generation(None, rehearsal=source_of(*served), spark={"mode": "auto"}))
        driver.wait_phase("Standby", seconds=600)
        started, before = time.monotonic(), cpu(driver)
        driver.update(generation(source_of(users, accounts), spark={"mode": "auto"}))
        driver.wait_phase("CaughtUp", seconds=600)
        work = cpu(driver) - before
        note(
            "standby -> caught up on 6,000 rows",
            f"{time.monotonic() - started:.2f} s, {work:.1f} s of CPU",
            "<= 1.5 s",
        )
        started = time.monotonic()
        driver.wait_mode("realtime", seconds=600)
        note("change-over to real time of a standby", f"{time.monotonic() - started:.1f} s", "<= 2 s")
    slow = tmp_path / "slow"
    slow.mkdir()
    with DriverProcess(slow, env=archive) as driver:
        driver.start(generation(source_of(users, accounts)))
        driver.wait_phase("CaughtUp", seconds=600)
        time.sleep(5)
        before, since = cpu(driver), time.monotonic()
        time.sleep(20)
        note(
            "idle CPU of a live generation, micro-batches",
            f"{(cpu(driver) - before) / (time.monotonic() - since):.3f} cores",
            "<= 0.1",
        )


@pytest.mark.parametrize(("mode", "rate", "bar"), [
    ("realtime", 100, ""), ("realtime", 1000, "p50 <= 40, p95 <= 100"),
    ("microbatch", 100, ""), ("microbatch", 1000, "p50 <= 450"),
])  # fmt: skip
def test_freshness(
    topics: world.Topics, tmp_path: Path, archive: dict[str, str], mode: str, rate: int, bar: str
) -> None:
    users, accounts = fill(topics, 1_000, 5_000, 1_000)
    with DriverProcess(tmp_path, env=archive) as driver:
        driver.start(generation(source_of(users, accounts), spark={"mode": mode}))
        driver.wait_phase("CaughtUp", seconds=600)
        driver.wait_mode(mode, seconds=600)
        delays = asyncio.run(_delays(driver.port, users, accounts, rate))
        p50, p95, p99 = np.percentile(delays, [50, 95, 99])
        figure = f"{p50:.0f} / {p95:.0f} / {p99:.0f} ms ({len(delays)} rows)"
        note(f"produced -> frame, {mode}, {rate} rows/s, p50 / p95 / p99", figure, bar)


async def _delays(port: int, users: str, accounts: str, rate: int) -> list[float]:
    """Milliseconds from a users row's making to the frame of final_ui that carries it."""
    # In a process of its own: in one with the reader they would take turns, and that would be measured.
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    producing = spawn.Process(target=_produce, args=(users, accounts, rate, stop))
    delays: list[float] = []
    warm_until = time.time() + WARM_SECONDS
    end = warm_until + SECONDS
    url = f"http://127.0.0.1:{port}/v1/tables/final_ui/stream"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as socket:
        producing.start()
        try:
            while time.time() < end:
                message = await socket.receive(timeout=30)
                now = time.time()
                header, rows = frames.decode(message.data)
                if header["type"] != "delta" or rows is None or now < warm_until:
                    continue
                made = rows.filter(rows["name"].is_valid()).column("age").to_numpy()
                names = rows.column("name").to_pylist()
                fresh = [at for at, name in zip(made, names, strict=True) if name == "live"]
                delays += [now * 1000 - at for at in fresh if at > warm_until * 1000]
        finally:
            stop.set()
            producing.join()
    return delays


def _produce(users: str, accounts: str, rate: int, stop: Event) -> None:
    """Half of the rows are users with a key of their own, half are accounts of old users."""
    producer = Producer({"bootstrap.servers": BROKER, "linger.ms": 0})
    started = time.monotonic()
    number = 0
    while not stop.is_set():
        row = {"userId": f"live{number}", "name": "live", "email": "e", "age": int(time.time() * 1000)}
        producer.produce(users, json.dumps(row).encode())
        producer.produce(
            accounts, b'{"userId":"x%d","accountType":"a","balance":%d}' % (number % 1000, number)
        )
        producer.poll(0)
        number += 1
        ahead = started + number * 2 / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
    producer.flush(10)


def backlog(topics: world.Topics, tmp_path: Path, env: dict[str, str], rows: int, keys: int) -> str:
    """Rows a second, rows for each second of CPU (which a busy hour changes less), memory."""
    users, accounts = fill(topics, rows // 3, rows - rows // 3, keys)
    with DriverProcess(tmp_path, env=env | {"TB_MEMORY": str(3 * 2**30)}) as driver:
        driver.start(
            generation(source_of(users, accounts), spark={"mode": "microbatch", "maxRows": 20_000_000})
        )
        driver.wait_phase("Reading", "CaughtUp", seconds=600)
        started, before = time.monotonic(), cpu(driver)
        driver.wait_phase("CaughtUp", seconds=1800)
        wall, work = time.monotonic() - started, cpu(driver) - before
        return f"{rows / wall:,.0f} rows/s, {rows / work:,.0f} per CPU second, {resident(driver):,.0f} MB"


def test_backlog(topics: world.Topics, tmp_path: Path, archive: dict[str, str]) -> None:
    for rows in (ROWS // 3, ROWS):
        place = tmp_path / str(rows)
        place.mkdir()
        figure = backlog(topics.another(), place, archive, rows, rows // 3)
        bar = ">= 100,000 rows/s" if rows == ROWS else ""
        note(f"backlog of {rows:,} rows, {rows // 3:,} keys", figure, bar)


def test_growth_with_keys(topics: world.Topics, tmp_path: Path, archive: dict[str, str]) -> None:
    rows = ROWS // 3
    for keys in (1, 1_000, 100_000):
        place = tmp_path / str(keys)
        place.mkdir()
        figure = backlog(topics.another(), place, archive, rows, keys)
        note(f"backlog of {rows:,} rows, {keys:,} keys", figure)
