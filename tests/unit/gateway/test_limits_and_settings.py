"""Limits and settings: numbers at their edges, and words for what is wrong."""

from __future__ import annotations

import pytest

from topicbinding.gateway.limits import Rate, Streams, TooMany
from topicbinding.gateway.settings import Settings, SettingsError


def test_a_client_may_burst_and_then_goes_at_the_rate() -> None:
    rate = Rate(per_second=2, burst=3)
    for _ in range(3):
        rate.take("ann", now=0.0)
    with pytest.raises(TooMany) as caught:
        rate.take("ann", now=0.0)
    assert caught.value.retry_seconds == pytest.approx(0.5)
    rate.take("bob", now=0.0)
    rate.take("ann", now=0.5)
    with pytest.raises(TooMany):
        rate.take("ann", now=0.6)
    for _ in range(3):
        rate.take("ann", now=100.0)


def test_streams_are_counted_and_given_back() -> None:
    streams = Streams(most=3, most_per_client=2)
    with streams.one("ann"), streams.one("ann"):
        with pytest.raises(TooMany, match="too many open"), streams.one("ann"):
            pass
        with streams.one("bob"), pytest.raises(TooMany, match="no room"), streams.one("eve"):
            pass
        assert streams.open == 2
    assert streams.open == 0
    with pytest.raises(RuntimeError), streams.one("ann"):
        raise RuntimeError
    assert streams.open == 0


def test_settings_from_the_environment() -> None:
    settings = Settings.from_env(
        {
            "TB_GATEWAY_ACCESS": "open",
            "TB_GATEWAY_PORT": "9000",
            "TB_GATEWAY_ALLOWED_ORIGINS": "https://App.example, https://b.example",
            "PATH": "/bin",
        }
    )
    assert (settings.access, settings.port) == ("open", 9000)
    assert settings.origins == {"https://app.example", "https://b.example"}
    assert Settings.from_env({}).access == "token", "asking is the default"


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TB_GATEWAY_ACCESS", "none", "TB_GATEWAY_ACCESS"),
        ("TB_GATEWAY_PORT", "many", "TB_GATEWAY_PORT"),
        ("TB_GATEWAY_PROT", "1", "not a setting"),
        ("TB_GATEWAY_STALE_SECONDS", "-1", "TB_GATEWAY_STALE_SECONDS"),
    ],
)
def test_wrong_settings_are_named(name: str, value: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        Settings.from_env({name: value})


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
