"""Real driver pods: right tables before and after a swap, after a killed driver, and with executors."""

from __future__ import annotations

from typing import Any

from tests.e2e.job.pods import IN_CLUSTER, SLOW, Bindings
from tests.integration.job.world import Topics
from tests.support.waiting import eventually
from tests.unit.job.reference import Expected, Record, tables_of
from topicbinding.api import JoinType
from topicbinding.api import Tables as TablesSpec


class Pair:
    """Two topics and what was sent to them."""

    def __init__(self, topics: Topics, name: str) -> None:
        self._topics = topics
        self.users = topics.make(f"{name}-users")
        self.accounts = topics.make(f"{name}-accounts")
        self._name = name
        self._sent: list[Record] = []

    def send(self, users: int, accounts: int) -> None:
        values: dict[str, list[bytes | None]] = {
            "users": [
                b'{"userId":"u%d","name":"%s %d","age":%d}' % (each % 40, self._name.encode(), each, each)
                for each in range(users)
            ],
            "accounts": [
                b'{"userId":"u%d","accountType":"%s","balance":%d.5}' % (each % 50, self._name.encode(), each)
                for each in range(accounts)
            ],
        }
        values["users"] += [b"not json", None, b'{"userId":null,"name":"no key"}']
        for side, topic in (("users", self.users), ("accounts", self.accounts)):
            self._topics.send(topic, values[side])
            first = sum(each.side == side for each in self._sent)
            self._sent += [
                Record(side, 0, first + number, first + number, value)
                for number, value in enumerate(values[side])
            ]

    def expected(self, join: JoinType) -> Expected:
        return tables_of(self._sent, TablesSpec(), join)

    def spec(self, join: str, **spark: Any) -> dict[str, Any]:
        return {
            "usersTopic": self.users,
            "accountsTopic": self.accounts,
            "joinType": join,
            "startingOffsets": "earliest",
            "kafka": {"bootstrapServers": IN_CLUSTER},
            "linger": {"seconds": 600},
            "progressDeadlineSeconds": int(SLOW),
            "spark": {"mode": "auto", **spark},
        }


def shows(bindings: Bindings, pod: str, expected: Expected, seconds: float = 120) -> None:
    """The pod serves these tables, soon at the latest."""

    def by_content(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(repr(row) for row in rows)

    with bindings.tables(pod) as tables:
        eventually(
            lambda: by_content(tables.table("final_ui")) == by_content(expected.final),
            seconds,
            f"final_ui of {pod}",
            every=1,
        )
        assert tables.table("users_ui") == expected.users
        assert tables.table("accounts_ui") == expected.accounts


def test_a_swap_of_topics_and_join_and_a_killed_driver(bindings: Bindings, topics: Topics) -> None:
    old, new = Pair(topics, "old"), Pair(topics, "new")
    old.send(users=100, accounts=200)
    new.send(users=60, accounts=90)
    bindings.apply("people", old.spec("left"))
    bindings.wait_active("people", 1)
    shows(bindings, "people-g1", old.expected(JoinType.LEFT))

    bindings.apply("people", new.spec("inner"))
    bindings.wait_active("people", 2)
    shows(bindings, "people-g2", new.expected(JoinType.INNER))
    # The one that lingers is still fresh.
    old.send(users=5, accounts=5)
    shows(bindings, "people-g1", old.expected(JoinType.LEFT))

    before = bindings.wait_caught_up("people-g2")
    with bindings.tables("people-g2") as tables:
        kept = {name: tables.table(name) for name in ("users_ui", "accounts_ui", "final_ui")}
    bindings.delete_pod("people-g2")
    after = bindings.wait_caught_up("people-g2", but_not_pod=before["podUid"])
    assert after["startOffsets"] == before["startOffsets"]
    with bindings.tables("people-g2") as tables:
        assert {name: tables.table(name) for name in kept} == kept


def test_two_executors_one_of_which_is_killed(bindings: Bindings, topics: Topics) -> None:
    pair = Pair(topics, "spread")
    pair.send(users=100, accounts=200)
    spark = {
        # Real time needs a slot for each of its tasks: two partitions and the keyed state.
        "executors": {"instances": 2, "cores": 2, "memory": "1Gi"},
        "checkpoint": {"type": "pvc", "size": "256Mi"},
        "mode": "auto",
    }
    bindings.apply("spread", pair.spec("left", **spark))
    bindings.wait_active("spread", 1)
    shows(bindings, "spread-g1", pair.expected(JoinType.LEFT))
    selector = (
        "topicbinding.dev/component=executor,topicbinding.dev/binding=spread,topicbinding.dev/generation=1"
    )
    executors = eventually(
        lambda: bindings.names("pod", selector) if len(bindings.names("pod", selector)) >= 2 else None,
        SLOW,
        "two executors",
        every=1,
    )
    owner = bindings.get("pod", executors[0])["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Pod", "spread-g1")
    eventually(
        lambda: bindings.get("generation", "spread-g1")["status"].get("mode") == "realtime",
        SLOW,
        "real time in the executors",
        every=1,
    )
    pair.send(users=20, accounts=20)
    shows(bindings, "spread-g1", pair.expected(JoinType.LEFT), seconds=SLOW)
    bindings.delete_pod(executors[0])
    pair.send(users=20, accounts=20)
    shows(bindings, "spread-g1", pair.expected(JoinType.LEFT), seconds=SLOW)


def test_executors_without_shared_storage_are_refused_with_a_reason(
    bindings: Bindings, topics: Topics
) -> None:
    pair = Pair(topics, "alone")
    bindings.apply("alone", pair.spec("left", executors={"instances": 1}))

    def said() -> bool:
        generation = bindings.get("generation", "alone-g1").get("status", {}).get("reason")
        binding = bindings.get("topicbinding", "alone").get("status", {}).get("conditions", [])
        return "CheckpointNotShared" in (generation, *(each.get("reason") for each in binding))

    eventually(said, SLOW, "the reason CheckpointNotShared", every=1)
