"""Made-up people and their accounts, changing for ever. Pure: the same seed tells the same story."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FIRST = (
    "Ada",
    "Ben",
    "Chloe",
    "Dev",
    "Elena",
    "Femi",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Kaya",
    "Luis",
    "Mona",
    "Nils",
)
LAST = (
    "Ash",
    "Brook",
    "Cole",
    "Dale",
    "Elm",
    "Field",
    "Glen",
    "Hill",
    "Ivy",
    "Lake",
    "Marsh",
    "North",
    "Oak",
    "Reed",
)
ACCOUNT_TYPES = ("checking", "savings", "credit", "broker")


@dataclass(frozen=True)
class Row:
    """One message to produce. `table` is users or accounts."""

    table: str
    key: str
    value: dict[str, Any]


def story(seed: int, version: str, people: int = 40) -> Iterator[Row]:
    """First everybody once, then changes without end.

    Most changes are balances, some are birthdays, and now and then somebody new appears whose account comes
    later: the joined row is there first, with nothing in the account's columns. `version` marks the
    addresses, so that one can see in the table which topics it is read from.
    """
    dice = random.Random(f"{seed} {version}")
    users: dict[str, dict[str, Any]] = {}
    accounts: dict[str, dict[str, Any]] = {}
    waiting: list[str] = []

    def newcomer() -> Row:
        user = f"{version}-{len(users) + 1:04d}"
        first, last = dice.choice(FIRST), dice.choice(LAST)
        email = f"{first}.{last}@{version}.example".lower()
        users[user] = {"userId": user, "name": f"{first} {last}", "email": email, "age": dice.randint(18, 90)}
        waiting.append(user)
        return Row("users", user, dict(users[user]))

    def opened() -> Row:
        user = waiting.pop(0)
        kind, balance = dice.choice(ACCOUNT_TYPES), round(dice.uniform(0, 5000), 2)
        accounts[user] = {"userId": user, "accountType": kind, "balance": balance}
        return Row("accounts", user, dict(accounts[user]))

    for _ in range(people):
        yield newcomer()
    while waiting:
        yield opened()
    while True:
        chance = dice.random()
        if chance < 0.02:
            yield newcomer()
        elif chance < 0.05 and waiting:
            yield opened()
        elif chance < 0.12:
            user = dice.choice(list(users))
            users[user]["age"] += 1
            yield Row("users", user, dict(users[user]))
        else:
            user = dice.choice(list(accounts))
            change = dice.gauss(0, 120)
            accounts[user]["balance"] = round(accounts[user]["balance"] + change, 2)
            yield Row("accounts", user, dict(accounts[user]))
