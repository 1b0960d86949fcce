"""Brokers that demand a login, and the promise that nothing secret is ever seen when one fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.bridge.conftest import Stage
from tests.support.kafka_broker import PASSWORD, USERNAME, Broker

MakeStage = Callable[..., Stage]
WRONG = "wr0ng-but-st1ll-secret"

# Every mechanism, in both dialects, is tried in test_dialects; here the whole bridge over the two kinds.
LOGINS = [("SASL_SSL", "SCRAM-SHA-512"), ("SSL", None)]


def _kafka(broker: Broker, protocol: str, mechanism: str | None) -> dict[str, Any]:
    security: dict[str, Any] = {"protocol": protocol, "secretRef": {"name": "kafka"}}
    if mechanism:
        security["mechanism"] = mechanism
    return {"bootstrapServers": broker.listener(protocol), "security": security}


def _mount(broker: Broker, secrets: Path, password: str = PASSWORD) -> None:
    (secrets / "username").write_text(USERNAME)
    (secrets / "password").write_text(password + "\n")
    shutil.copy(broker.directory / "ca.crt", secrets / "ca.crt")


@pytest.mark.parametrize(("protocol", "mechanism"), LOGINS, ids=[f"{a}-{b}" for a, b in LOGINS])
def test_a_broker_that_demands_it(
    stage: MakeStage, broker: Broker, protocol: str, mechanism: str | None
) -> None:
    on = stage(kafka=_kafka(broker, protocol, mechanism), answers=True)
    if protocol == "SSL":
        for name, file in (("ca.crt", "ca.crt"), ("tls.crt", "client.crt"), ("tls.key", "client.key")):
            shutil.copy(broker.directory / file, on.secrets / name)
    else:
        _mount(broker, on.secrets)
    on.send({"usersTopic": "over-" + protocol.lower().replace("_", "-")}, b"junk")
    on.running()
    on.until_three("over-" + protocol.lower().replace("_", "-"), "a1", "left")
    assert on.read_all(f"{on.topic}-dead", 1)[0].value() == b"junk"


def test_a_failing_login_shows_nothing_secret_anywhere_and_heals_when_the_secret_does(
    stage: MakeStage, broker: Broker
) -> None:
    on = stage(kafka=_kafka(broker, "SASL_SSL", "SCRAM-SHA-512"))
    _mount(broker, on.secrets, WRONG)
    on.send({"usersTopic": "u2"})
    bridge = on.bridge().start()
    on.until(lambda: on.condition() == ("False", "KafkaAuthenticationFailed"), "the condition to say so", 40)
    assert bridge.healthy()
    assert bridge.process is not None
    places = {
        "log": bridge.lines(),
        "events": json.dumps(on.events()),
        "object": json.dumps(on.raw()),
        "arguments": Path(f"/proc/{bridge.process.pid}/cmdline").read_text(),
        "environment": Path(f"/proc/{bridge.process.pid}/environ").read_text(),
        "metrics": bridge.get("/metrics"),
    }
    assert "check the Secret" in places["object"]
    for place, text in places.items():
        assert WRONG not in text, f"the password is in the {place}"

    _mount(broker, on.secrets)  # the Secret is put right, as a mounted one changes under a running pod
    on.until_three("u2", "a1", "left", 40)
    on.until(lambda: on.condition() == ("True", "Connected"), "connected")
    assert PASSWORD not in bridge.lines() + json.dumps(on.raw()) + json.dumps(on.events())


@pytest.mark.parametrize(
    ("change", "reason", "says"),
    [
        ({"bootstrapServers": "127.0.0.1:1"}, "KafkaUnreachable", "check bootstrapServers"),
        ({"properties": {"no.such.thing": "x"}}, "KafkaSettingsInvalid", "no.such.thing"),
        ({"properties": {"sasl.password": "x"}}, "KafkaPropertyRefused", "Secret"),
        (
            {"security": {"protocol": "SASL_SSL", "mechanism": "PLAIN", "secretRef": {"name": "x"}}},
            "SecretIncomplete",
            "'username'",
        ),
        ({"security": {"protocol": "SSL"}}, "KafkaTlsFailed", "ca.crt"),
    ],
    ids=["address", "unknown property", "refused property", "empty secret", "unknown authority"],
)
def test_the_condition_names_what_is_wrong_and_what_to_do(
    stage: MakeStage, broker: Broker, change: dict[str, Any], reason: str, says: str
) -> None:
    servers = broker.listener("SSL") if "security" in change else broker.address
    on = stage(kafka={"bootstrapServers": servers, **change})
    bridge = on.bridge().start()
    on.until(lambda: on.condition() == ("False", reason), f"{reason}, not {on.condition()}", 40)
    found = on.binding().status.condition("ControlConnected")
    assert found is not None
    assert says in found.message
    assert bridge.healthy()


def test_a_missing_topic_is_named_and_found_once_it_is_there(stage: MakeStage, broker: Broker) -> None:
    on = stage()
    broker.delete_topic(on.topic)
    on.bridge().start()
    on.until(lambda: on.condition() == ("False", "TopicNotFound"), "the condition to say so", 40)
    broker.create_topic(on.topic)
    on.send({"usersTopic": "u2"})
    on.until_three("u2", "a1", "left", 30)
