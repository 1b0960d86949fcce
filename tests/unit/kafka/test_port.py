"""What the port says when the client library refuses: the property's name, never its value."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from topicbinding.api import KafkaSpec
from topicbinding.kafka.port import Connection
from topicbinding.kafka.records import KafkaProblem
from topicbinding.kafka.settings import librdkafka, read_credentials, reveal

SECRET = "tip-top-secret"


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"no.such.property": SECRET}, "knows no property 'no.such.property'"),
        ({"fetch.min.bytes": SECRET}, "refuses the value of 'fetch.min.bytes'"),
        ({"socket.timeout.ms": "-1"}, "refuses the value of 'socket.timeout.ms'"),
    ],
)
def test_a_property_the_library_refuses(tmp_path: Path, properties: dict[str, str], says: str) -> None:
    spec = KafkaSpec.read({"bootstrapServers": "127.0.0.1:1", "properties": properties})
    connection = Connection(reveal(librdkafka(spec, read_credentials(tmp_path))), "test")
    with pytest.raises(KafkaProblem, match=says) as caught:
        connection.reader("topic")
    assert caught.value.reason == "KafkaSettingsInvalid"
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_certificate_the_library_refuses_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(f"-----BEGIN CERTIFICATE-----\n{SECRET}\n-----END CERTIFICATE-----\n")
    spec = KafkaSpec.read({"bootstrapServers": "127.0.0.1:1", "security": {"protocol": "SSL"}})
    connection = Connection(reveal(librdkafka(spec, read_credentials(tmp_path))), "test")
    with pytest.raises(KafkaProblem, match="certificates in the Secret") as caught:
        connection.describe("topic", 1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
