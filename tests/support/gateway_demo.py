"""The page with moving rows, without a cluster: `python -m tests.support.gateway_demo [port]`.

Two bindings on stand-in drivers; the first is swapped, stalled and rolled back over and over, so that
everything the page can show is shown within a minute. Used to work on the page.
"""

from __future__ import annotations

import asyncio
import random
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.driver_server import Driver
from tests.support.gateway_world import Binding, World
from topicbinding.api import names

FIRST = ("Ada", "Grace", "Linus", "Edsger", "Barbara", "Alan", "Katherine", "Dennis", "Radia", "Ken")
LAST = ("Lovelace", "Hopper", "Torvalds", "Dijkstra", "Liskov", "Turing", "Johnson", "Ritchie", "Perlman")
KINDS = ("checking", "savings", "gold", "business")


class Feed:
    """Users and accounts that keep arriving, joined as a left join would be."""

    def __init__(self, driver: Driver, users: int, seed: int) -> None:
        self.driver = driver
        self.random = random.Random(seed)
        self.users: list[dict[str, Any]] = []
        self.prefix = f"u{seed}-"
        self.add_users(users)
        self.add_accounts(users // 2)

    def add_users(self, count: int) -> None:
        made = []
        for _ in range(count):
            name = f"{self.random.choice(FIRST)} {self.random.choice(LAST)}"
            number = len(self.users)
            row = {
                "userId": f"{self.prefix}{number:05d}",
                "name": name,
                "email": f"{name.lower().replace(' ', '.')}@example.org",
                "age": self.random.randint(18, 90) if self.random.random() > 0.05 else None,
            }
            self.users.append(row)
            made.append(row)
        self.driver.tables[names.USERS_TABLE].put(made)
        self.driver.tables[names.FINAL_TABLE].put(made)

    def add_accounts(self, count: int) -> None:
        final = self.driver.tables[names.FINAL_TABLE]
        made, changed = [], []
        for _ in range(count):
            index = min(int(self.random.expovariate(3 / len(self.users))), len(self.users) - 1)
            account = {
                "userId": self.users[index]["userId"],
                "accountType": self.random.choice(KINDS),
                "balance": round(self.random.lognormvariate(6, 1.4), 2),
            }
            made.append(account)
            changed.append({**final.rows[index], **account})
        self.driver.tables[names.ACCOUNTS_TABLE].put(made)
        final.put(changed)

    def counts(self) -> dict[str, int]:
        tables = self.driver.tables
        return {
            "users": len(tables[names.USERS_TABLE].rows),
            "accounts": len(tables[names.ACCOUNTS_TABLE].rows),
            "final": len(tables[names.FINAL_TABLE].rows),
        }


async def move(feeds: dict[int, Feed], binding: Binding) -> None:
    while True:
        for number, feed in list(feeds.items()):
            feed.add_users(feed.random.randint(0, 3))
            feed.add_accounts(feed.random.randint(1, 8))
            if number in binding.generations and feed.random.random() < 0.1:
                counts = feed.counts()
                binding.report(number, rows=counts, badRows={"users": 2, "accounts": 1}, lag=0)
        await asyncio.sleep(0.15)


async def story(world: World) -> None:
    orders = world.binding("orders", "shop")
    feeds = {1: Feed(orders.generation(1, "users-v1", "accounts-v1"), 800, 1)}
    orders.flip(1)
    orders.event("Ready", "generation 1 is served: users-v1 left join accounts-v1")
    fleet = world.binding("fleet", "logistics")
    other = {1: Feed(fleet.generation(1, "drivers", "vehicles", "inner"), 120, 9)}
    fleet.flip(1)
    risk = world.binding("risk", "shop")
    risk.generation(1, "risk-users", "risk-accounts")
    risk.report(1, phase="Reading", progress={"percent": 37, "etaSeconds": 12})
    running = [asyncio.create_task(move(feeds, orders)), asyncio.create_task(move(other, fleet))]
    number = 1
    while True:
        number += 1
        await asyncio.sleep(6)
        orders.message(f'{{"usersTopic": "users-v{number}"}}', "applied", "usersTopic changed", number)
        orders.event("Building", f"building generation {number} (users-v{number}, accounts-v{number}, left)")
        driver = orders.generation(number, f"users-v{number}", f"accounts-v{number}")
        for percent in range(0, 101, 10):
            orders.report(
                number, phase="Reading", progress={"percent": percent, "etaSeconds": 10 - percent // 10}
            )
            await asyncio.sleep(0.4)
        feeds[number] = Feed(driver, 600 + 100 * number, number)
        orders.report(number, phase="CaughtUp", progress={"percent": 100}, rows=feeds[number].counts())
        orders.event("Swapped", f"swapped {number - 1} -> {number}")
        orders.flip(number)
        orders.retire_at(number - 1, datetime.now(UTC) + timedelta(seconds=20))
        orders.message(
            '{"userTopic": "users-v9"}', "rejected", "unknown key userTopic; did you mean usersTopic?"
        )
        orders.event("Rejected", "control message at 0/3: unknown key userTopic", kind="Warning")
        orders.message('{"usersTopic": " "}', "unchanged", "nothing to change")
        await asyncio.sleep(6)
        orders.generation(number + 100, "no-such-topic", "accounts-v2")
        orders.report(
            number + 100,
            phase="Failed",
            reason="TopicNotFound",
            message="topic no-such-topic does not exist; near: users-v1",
        )
        orders.stall("TopicNotFound", "topic no-such-topic does not exist; generation stays as it is")
        orders.event("BuildFailed", "topic no-such-topic does not exist", kind="Warning")
        await asyncio.sleep(8)
        await orders.retire(number + 100)
        feeds.pop(number - 1)
        await orders.retire(number - 1)
        orders.event("Retired", f"retired generation {number - 1}: pod, service and checkpoint are gone")
        if any(task.done() for task in running):
            await asyncio.gather(*running)


async def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    async with World(port=port) as world:
        print(f"the page is at {world.url}", flush=True)
        await story(world)


if __name__ == "__main__":
    asyncio.run(main())
