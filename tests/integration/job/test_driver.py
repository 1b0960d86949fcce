"""A real driver process on real Kafka, from its first question to its last breath."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.integration.job import world
from tests.integration.job.world import BROKER, DriverProcess, StreamReader, generation, source_of
from tests.support.kafka_broker import free_port
from tests.support.waiting import eventually
from tests.unit.job.reference import Record, tables_of
from topicbinding.api import JoinType, Source, Tables
from topicbinding.kafka.records import KafkaProblem
from topicbinding_job.topics import Topics


def users(numbers: range) -> list[bytes | None]:
    return [b'{"userId":"u%d","name":"n%d","age":%d}' % (each % 50, each, each) for each in numbers]


def accounts(numbers: range) -> list[bytes | None]:
    return [b'{"userId":"u%d","accountType":"t","balance":%d.5}' % (each % 60, each) for each in numbers]


def test_a_life_killed_and_rebuilt(topics: world.Topics, tmp_path: Path) -> None:
    """Starts at `latest`, catches up, goes on in real time, is killed, and comes back with the same
    tables."""
    places = {"users": topics.make("users"), "accounts": topics.make("accounts")}
    topics.send(places["users"], users(range(100)))
    wish = generation(
        source_of(places["users"], places["accounts"], startingOffsets="latest"), spark={"mode": "auto"}
    )
    with DriverProcess(tmp_path) as driver:
        driver.start(wish)
        status = driver.wait_phase("CaughtUp")
        # An empty topic is caught up at once, and `latest` was pinned before anything was read.
        assert status["startOffsets"] == {"users": {"0": 100}, "accounts": {"0": 0}}
        assert status["driverVersion"]
        assert driver.code("/readyz") == 200
        assert driver.rows_of("users_ui") == 0
        reader = StreamReader(driver.port, "final_ui")
        topics.send(places["users"], users(range(200)))
        topics.send(places["accounts"], accounts(range(300)))
        driver.wait_mode("realtime")
        topics.send(places["users"], [*users(range(200, 210)), None, b"nope", b'{"userId":"u1","age":"30"}'])
        topics.send(places["accounts"], accounts(range(300, 330)))
        driver.wait_rows("users_ui", 212)
        driver.wait_rows("accounts_ui", 330)
        records = [
            Record("users", 0, number, number, value)
            for number, value in enumerate(
                [*users(range(200)), *users(range(200, 210)), None, b"nope", b'{"userId":"u1","age":"30"}']
            )
        ]
        records += [
            Record("accounts", 0, number, number, value) for number, value in enumerate(accounts(range(330)))
        ]
        expected = tables_of(records, Tables(), JoinType.LEFT)
        eventually(lambda: driver.table("final_ui") == expected.final, 30, "final_ui of the reference")
        assert driver.table("users_ui") == expected.users
        assert driver.table("accounts_ui") == expected.accounts
        status = eventually(
            lambda: driver.status if driver.status["badRows"]["users"] == 2 else None,
            15,
            "the bad rows' count",
        )
        assert status["tombstones"]["users"] == 1
        assert [sample["value"] for sample in status["badSamples"]] == ["nope", '{"userId":"u1","age":"30"}']
        eventually(lambda: driver.status["lag"] == 0, 20, "no lag")
        # The stream shows the same as the table, and an account that comes later changes rows in place.
        reader.read_sync(lambda each: len(each.rows) == 212, 30)
        assert reader.shown() == expected.final
        topics.send(places["accounts"], [b'{"userId":"u7","accountType":"changed","balance":1}'])
        reader.read_sync(
            lambda each: any(row["accountType"] == "changed" for row in each.rows.values()), 30, resume=True
        )
        assert "snapshot" not in reader.kinds[1:], "a reader that resumes gets what changed, not everything"
        changed = {row["userId"] for row in reader.shown() if row["accountType"] == "changed"}
        assert changed == {"u7"}
        before = {name: driver.table(name) for name in ("users_ui", "accounts_ui", "final_ui")}
        metrics = driver.get("/metrics").decode()
        assert re.search(r'topicbinding_table_rows\{table="final_ui"\} 212\.0', metrics)
        assert "topicbinding_freshness_seconds_bucket" in metrics
        driver.kill()

        driver.start(wish)
        status = driver.wait_phase("CaughtUp")
        assert status["startOffsets"]["users"] == {"0": 100}
        assert {name: driver.table(name) for name in before} == before
        old_epoch = reader.epoch
        reader.read_sync(lambda each: each.epoch != old_epoch and len(each.rows) == 212, 30, resume=True)

        # Asked to stop: streams hear why, and it ends well and soon.
        listening = threading.Thread(target=lambda: reader.read_sync(lambda each: each.bye is not None, 30))
        listening.start()
        eventually(
            lambda: b'topicbinding_stream_clients{table="final_ui"} 1.0' in driver.get("/metrics"),
            10,
            "the reader",
        )
        assert driver.stop(20) == 0
        listening.join(10)
        assert reader.bye == "stopped"


def test_a_standby_starts_when_it_is_given_a_source(topics: world.Topics, tmp_path: Path) -> None:
    places = {"users": topics.make("users", 2), "accounts": topics.make("accounts", 3)}
    for partition in range(2):
        topics.send(places["users"], users(range(100)), partition)
    store = tmp_path / "store"
    spark = {"mode": "auto", "checkpoint": {"type": "uri", "uri": f"file://{store}"}}
    served = source_of(topics.make("served-users"), topics.make("served-accounts"))
    with DriverProcess(tmp_path) as driver:
        driver.start(generation(None, spark=spark, rehearsal=served))
        driver.wait_phase("Standby")
        assert "rehearsed in" in driver.tail()
        assert driver.code("/readyz") == 503
        assert driver.code("/v1/tables/final_ui") == 503
        driver.update(generation(source_of(places["users"], places["accounts"], "inner"), spark=spark))
        driver.wait_phase("CaughtUp")
        assert driver.rows_of("users_ui") == 200
        # The checkpoint stands where it was asked for, under (binding UID, generation).
        assert any((store / "uid" / "1").glob("*/commits/0"))
        assert driver.rows_of("final_ui") == 0
        # Partitions that are added while it runs are read from their beginning, in real time too.
        driver.wait_mode("realtime")
        admin = AdminClient({"bootstrap.servers": BROKER})
        admin.create_partitions([NewPartitions(places["accounts"], 4)])[places["accounts"]].result(30)
        eventually(
            lambda: (
                len(admin.list_topics(places["accounts"], timeout=5).topics[places["accounts"]].partitions)
                == 4
            ),
            20,
            "the new partition",
        )
        topics.send(places["accounts"], [b'{"userId":"u3","accountType":"new","balance":1}'], partition=3)
        driver.wait_rows("final_ui", 4)
        rows = driver.table("final_ui")
        assert [row["accountType"] for row in rows] == ["new"] * 4
        answer = json.loads(
            driver.get("/v1/tables/users_ui?where=age%20%3E%3D%2098&columns=age&order=-age&limit=3")
        )
        assert answer["rows"] == [{"age": 99}, {"age": 99}, {"age": 98}]
        assert answer["total"] == 4
        assert driver.code("/v1/tables/users_ui?where=agee%3D1") == 400
        assert driver.code("/v1/tables/users_u") == 404
        assert driver.code("/v1/tables/users_ui/stream?epoch=x&seq=-1") == 400
        # Nothing stays behind where no pod's end would remove it.
        assert driver.stop(30) == 0
        assert not (store / "uid" / "1").exists()


def test_a_topic_that_is_not_there_is_said_with_the_nearest_names(
    topics: world.Topics, tmp_path: Path
) -> None:
    place = topics.make("users-of-today")
    with DriverProcess(tmp_path) as driver:
        driver.start(generation(source_of(place.replace("today", "todday"), place)))
        assert driver.wait_end(240) == 1
        status = driver.status
        assert (status["phase"], status["reason"]) == ("Failed", "TopicNotFound")
        assert place in status["message"]
        said = json.loads((tmp_path / "termination.json").read_text())
        assert said["reason"] == "TopicNotFound"


def test_a_table_that_grows_too_large_fails_with_its_reason(topics: world.Topics, tmp_path: Path) -> None:
    places = {"users": topics.make("users"), "accounts": topics.make("accounts")}
    topics.send(places["users"], users(range(1500)))
    with DriverProcess(tmp_path) as driver:
        driver.start(generation(source_of(places["users"], places["accounts"]), spark={"maxRows": 1000}))
        assert driver.wait_end(240) == 1
        assert (driver.status["phase"], driver.status["reason"]) == ("Failed", "TableTooLarge")
        assert "spark.maxRows" in driver.status["message"]


def refusal(source: dict[str, Any], settings: dict[str, str]) -> KafkaProblem:
    with pytest.raises(KafkaProblem) as caught:
        Topics(settings, 3).plan(Source.model_validate(source), None)
    return caught.value


def test_no_broker() -> None:
    problem = refusal(source_of("a", "b"), {"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    assert problem.reason == "KafkaUnreachable"


def test_start_offsets_of_a_moment(topics: world.Topics) -> None:
    place = topics.make("users", config={"retention.ms": "-1"})
    for moment in (1_700_000_000_000, 1_700_000_060_000, 1_700_000_120_000):
        topics.send(place, [b"{}"], time_ms=moment)
    kafka = Topics({"bootstrap.servers": BROKER}, 10)

    def start(wish: str) -> dict[int, int]:
        source = Source.model_validate(source_of(place, place, startingOffsets=wish))
        return kafka.plan(source, None).users.start

    assert start("earliest") == {0: 0}
    assert start("latest") == {0: 3}
    assert start("2023-11-14T22:14:00Z") == {0: 1}
    assert start("2030-01-01T00:00:00+01:00") == {0: 3}
