"""The driver against a broker that demands a login: what it reads, what is refused, what nobody sees."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.job.world import DriverProcess, generation, source_of
from tests.support.kafka_broker import PASSWORD, USERNAME, Broker, running_broker

WRONG = "wr0ng-but-st1ll-secret"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        for topic in ("users", "accounts", "private"):
            broker.create_topic(topic)
        broker.send("users", b'{"userId":"u1","name":"Ann","email":"a@example.org","age":40}')
        broker.send("accounts", b'{"userId":"u1","accountType":"gold","balance":1.5}')
        yield broker


def driver_of(broker: Broker, place: Path, password: str = PASSWORD) -> DriverProcess:
    secret = place / "secret"
    secret.mkdir()
    (secret / "username").write_text(USERNAME)
    (secret / "password").write_text(password)
    shutil.copy(broker.directory / "ca.crt", secret / "ca.crt")
    return DriverProcess(place, env={"TB_KAFKA_SECRET": str(secret)})


def over_sasl(broker: Broker, accounts: str = "accounts", mode: str = "auto") -> dict[str, Any]:
    kafka = {
        "bootstrapServers": broker.listener("SASL_SSL"),
        "security": {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-512",
            "secretRef": {"name": "kafka"},
        },
    }
    return generation(source_of("users", accounts, kafka=kafka), spark={"mode": mode})


def seen_of(driver: DriverProcess, place: Path) -> str:
    """Everything that anybody but the Secret's owner could look at."""
    said = [driver.log.read_text(), json.dumps(driver.status)]
    said += [
        path.read_text() for path in (place / "termination.json", place / "tmp" / "cds.log") if path.exists()
    ]
    return "\n".join(said)


def test_both_speeds_read_over_sasl_and_tls(broker: Broker, tmp_path: Path) -> None:
    with driver_of(broker, tmp_path) as driver:
        driver.start(over_sasl(broker))
        driver.wait_phase("CaughtUp", seconds=240)
        (row,) = driver.table("final_ui")
        assert (row["name"], row["accountType"]) == ("Ann", "gold")
        driver.wait_mode("realtime", seconds=120)
        broker.send("users", b'{"userId":"u1","name":"Bea"}')
        driver.wait_rows("users_ui", 2)
        process = psutil.Process(driver.pid)
        for each in (process, *process.children(recursive=True)):
            assert PASSWORD not in " ".join(each.cmdline())
        assert PASSWORD not in seen_of(driver, tmp_path)


def test_a_refused_login_is_said_and_shows_no_secret(broker: Broker, tmp_path: Path) -> None:
    with driver_of(broker, tmp_path, WRONG) as driver:
        driver.start(over_sasl(broker))
        assert driver.wait_end(120) == 1
        assert (driver.status["phase"], driver.status["reason"]) == ("Failed", "KafkaAuthenticationFailed")
        assert "check the Secret" in driver.status["message"]
        assert WRONG not in seen_of(driver, tmp_path)


def test_a_topic_that_may_not_be_read_is_named(broker: Broker, tmp_path: Path) -> None:
    broker.reserve_topic("private", "User:somebody-else")
    with driver_of(broker, tmp_path) as driver:
        driver.start(over_sasl(broker, accounts="private"))
        assert driver.wait_end(120) == 1
        assert (driver.status["phase"], driver.status["reason"]) == ("Failed", "KafkaNotAuthorized")
        assert "'private'" in driver.status["message"]
        assert "give it DESCRIBE and READ" in driver.status["message"]
