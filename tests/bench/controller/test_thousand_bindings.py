"""A thousand bindings on the real API server, one controller, drivers played by one process (see `crowd.py`).

Driver pods are real objects that no scheduler takes, so that the figures are the controller's and the API
server's
and not those of a thousand containers on one node. TB_BENCH_BINDINGS and TB_BENCH_SWAPS change the size.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.controller.process import (
    ControllerProcess,
    controller,
    make_namespace,
    remove_namespace,
)
from tests.integration.controller.stage import Stage, stage, until
from tests.support.cluster import Cluster

NAMESPACE = "tbc-bench"
BINDINGS = int(os.environ.get("TB_BENCH_BINDINGS", "1000"))
SWAPS = int(os.environ.get("TB_BENCH_SWAPS", "50"))


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    cluster.apply_crds()
    make_namespace(cluster, NAMESPACE)
    yield NAMESPACE
    remove_namespace(cluster, NAMESPACE)


class Watcher:
    """When each thing was first seen on the API server's watches, by this process's clock."""

    def __init__(self, on: Stage) -> None:
        self._on = on
        self.flipped: dict[str, float] = {}  # generation name -> its Service selects it
        self.made: dict[str, float] = {}  # generation name -> the Generation exists
        self.served: dict[str, int] = {}  # binding -> activeGeneration in its status

    async def run(self) -> None:
        await asyncio.gather(self._services(), self._generations(), self._bindings())

    async def _services(self) -> None:
        async for event in self._on.api.watch(self._on.path("services")):
            meta, selector = event["object"]["metadata"], event["object"]["spec"].get("selector") or {}
            number = selector.get("topicbinding.dev/generation")
            if meta["name"].startswith("tb-") and number:
                name = f"{meta['labels']['topicbinding.dev/binding']}-g{number}"
                self.flipped.setdefault(name, time.monotonic())

    async def _generations(self) -> None:
        async for event in self._on.api.watch(self._on.path("generations")):
            self.made.setdefault(event["object"]["metadata"]["name"], time.monotonic())

    async def _bindings(self) -> None:
        async for event in self._on.api.watch(self._on.path("topicbindings")):
            active = event["object"].get("status", {}).get("activeGeneration")
            self.served[event["object"]["metadata"]["name"]] = active or 0


def requests(running: ControllerProcess) -> float:
    counted = "topicbinding_api_request_seconds_count"
    return sum(value for name, value in running.metrics.items() if name.startswith(counted))


def peak_megabytes(running: ControllerProcess) -> float:
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def of(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] * 1000


@pytest.mark.timeout(1800)
async def test_a_thousand_bindings(cluster: Cluster, namespace: str) -> None:
    rows: list[tuple[str, str]] = []
    async with stage(cluster, namespace) as on:
        watcher = Watcher(on)
        watching = asyncio.create_task(watcher.run())
        with controller(cluster, namespace, workers="16") as running:
            limit = asyncio.Semaphore(16)

            async def create(name: str) -> None:
                async with limit:
                    await on.create(name)

            begun = time.monotonic()
            await asyncio.gather(*(create(f"b{number}") for number in range(BINDINGS)))
            created = time.monotonic() - begun

            async def all_served() -> bool:
                return sum(active == 1 for active in watcher.served.values()) == BINDINGS

            await until(all_served, 1500, "all bindings to serve")
            converged = time.monotonic() - begun
            rows += [
                (f"{BINDINGS} bindings created by the client", f"{created:.1f} s"),
                ("all served, from the first creation", f"{converged:.1f} s"),
                ("requests of the controller for each binding", f"{requests(running) / BINDINGS:.1f}"),
                ("peak memory of the controller, then", f"{peak_megabytes(running):.0f} MB"),
            ]
            rows += await measure_swaps(on, watcher, running)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    load = os.getloadavg()[0]
    rows.append(("load average of the machine at the end (2 cores, shared)", f"{load:.1f}"))
    width = max(len(name) for name, _ in rows)
    print("\n" + "\n".join(f"{name:<{width}}  {value}" for name, value in rows))


async def measure_swaps(on: Stage, watcher: Watcher, running: ControllerProcess) -> list[tuple[str, str]]:
    """One change after the other, with all the others idle."""
    before = requests(running)
    reactions, flips, whole = [], [], []
    for number in range(SWAPS):
        name = f"b{number * (BINDINGS // SWAPS)}"
        sent = time.monotonic()
        await on.change(name, usersTopic="users-2")

        async def served(name: str = name) -> bool:
            return watcher.served.get(name) == 2 and f"{name}-g2" in watcher.flipped

        await until(served, 60, f"{name} to serve generation 2")
        reactions.append(watcher.made[f"{name}-g2"] - sent)
        flips.append(watcher.flipped[f"{name}-g2"] - on.crowd.caught_up[f"{name}-g2"])
        whole.append(watcher.flipped[f"{name}-g2"] - sent)
    return [
        (
            f"{SWAPS} changes: spec -> new Generation, p50 / p95",
            f"{of(reactions, 50):.0f} / {of(reactions, 95):.0f} ms",
        ),
        (
            f"{SWAPS} flips: caught-up report -> Service, p50 / p95",
            f"{of(flips, 50):.0f} / {of(flips, 95):.0f} ms",
        ),
        ("change -> flip with a stand-in driver, p50 / p95", f"{of(whole, 50):.0f} / {of(whole, 95):.0f} ms"),
        ("requests of the controller for each swap", f"{(requests(running) - before) / SWAPS:.1f}"),
        ("peak memory of the controller", f"{peak_megabytes(running):.0f} MB"),
    ]
