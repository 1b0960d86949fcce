"""Random stories of two topics, for the tests that compare the job with the reference."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.unit.job.reference import Record

_ODD_USERS: list[bytes | None] = [
    None,
    b"",
    b"nope",
    b"null",
    b"[]",
    b'[{"userId":"k1"}]',
    b'"text"',
    b"{",
    b'{"userId":"k1"',
    b'{"userId":"k1"} trailing',
    b'{"userId":"k1","age":"30"}',
    b'{"userId":"k2","age":3.5,"name":"kept"}',
    b'{"userId":"k3","age":99999999999999999999,"name":"kept"}',
    b'{"userId":7,"name":true,"email":{"a":1},"age":1}',
    b'{"userId":null,"name":"no key"}',
    b'{"name":"key missing"}',
    b'{"userId":"","name":"empty key"}',
    b'{"userId":"k1","name":"5","email":"true","age":-0,"extra":[1,2]}',
    b'{"userId":"k1","name":NaN}',
    b"{'userId':'k1'}",
    b"{}",
    b'  {"userId":"k4","name":"spaces"}\n',
    '{"userId":"ключ","name":"名前 \\ud83d\\ude00","email":"é@例え.jp"}'.encode(),
    b'{"userId":"k\xff1"}',
]
_ODD_ACCOUNTS: list[bytes | None] = [
    None,
    b"nope",
    b'{"userId":"k1","balance":"12"}',
    b'{"userId":"k1","balance":12}',
    b'{"userId":"k2","balance":1e3,"accountType":null}',
    b'{"userId":null,"accountType":"no key","balance":1.5}',
    b'{"accountType":"key missing"}',
    b'{"userId":"","accountType":"empty key","balance":0.0}',
    b'{"userId":"k3","accountType":["x"],"balance":2}',
    b'{"userId":"k3","accountType":"[x]","balance":-2.25,"more":{}}',
    '{"userId":"ключ","accountType":"счёт","balance":7}'.encode(),
]


def story(seed: int, length: int, partitions: int = 2, keys: int = 5) -> list[Record]:
    """Records of both topics in an order of arrival: each partition's offsets ascend, times may go back."""
    rng = random.Random(seed)
    offsets: dict[tuple[str, int], int] = {}
    records = []
    for number in range(length):
        side = rng.choice(("users", "accounts"))
        partition = rng.randrange(partitions)
        # Compacted topics have holes.
        offset = offsets.get((side, partition), rng.randrange(3)) + rng.choice((0, 0, 0, 1, 4))
        offsets[(side, partition)] = offset + 1
        time = 1_700_000_000_000 + number * 3 + rng.randrange(-20, 20)
        records.append(Record(side, partition, offset, time, value(rng, side, number, keys)))
    return records


def value(rng: random.Random, side: str, number: int, keys: int) -> bytes | None:
    if rng.random() < 0.25:
        return rng.choice(_ODD_USERS if side == "users" else _ODD_ACCOUNTS)
    row: dict[str, Any] = {"userId": rng.choice((None, *(f"k{each}" for each in range(keys))))}
    if side == "users":
        row |= {"name": f"n{number}", "email": f"{number}@example.org", "age": number}
    else:
        row |= {"accountType": rng.choice(("gold", "silver")), "balance": number + 0.5}
    return json.dumps(row, ensure_ascii=rng.random() < 0.5).encode()


def cut(rng: random.Random, records: list[Record]) -> list[list[Record]]:
    """The story in batches of random size."""
    batches = []
    at = 0
    while at < len(records):
        size = rng.choice((1, 1, 2, 5, 20, 100))
        batches.append(records[at : at + size])
        at += size
    return batches
