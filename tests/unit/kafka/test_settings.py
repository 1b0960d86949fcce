"""One row per mechanism and dialect: what each client is told, from one model and one Secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pydantic import SecretStr

from topicbinding.api import KafkaSpec
from topicbinding.kafka.settings import (
    Credentials,
    KafkaSettingsError,
    jvm,
    jvm_system_properties,
    librdkafka,
    read_credentials,
    refusal,
    reveal,
)

CA = "-----BEGIN CERTIFICATE-----\nY2E=\n-----END CERTIFICATE-----\n"
CERT = "-----BEGIN CERTIFICATE-----\nY2VydA==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n"
TOKEN_URL = "https://login.example/token"

FILES = {
    "username": "alice",
    "password": 'p"a\\ss word\n',
    "client-id": "svc-1",
    "client-secret": "s3cr=t",
    "ca.crt": CA,
}
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def jaas(module: str, options: str) -> str:
    return f"org.apache.kafka.common.security.{module} required {options};"


TLS_LIBRDKAFKA = {"ssl.ca.pem": CA, "ssl.endpoint.identification.algorithm": "https"}
TLS_JVM = {
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": CA,
    "ssl.endpoint.identification.algorithm": "https",
}
USER_PASSWORD = r'username="alice" password="p\"a\\ss word"'
LOGIN = {"sasl.username": "alice", "sasl.password": 'p"a\\ss word'}


def sasl(protocol: str, mechanism: str, **more: Any) -> dict[str, Any]:
    return {"protocol": protocol, "mechanism": mechanism, "secretRef": {"name": "kafka"}, **more}


OAUTH = {
    "tokenEndpointUrl": TOKEN_URL,
    "scope": "kafka:read",
    "subClaimName": "azp",
    "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-9"},
}

CASES: list[tuple[str, dict[str, Any], dict[str, str], dict[str, str]]] = [
    ("plaintext", {"protocol": "PLAINTEXT"}, {}, {}),
    ("ssl", {"protocol": "SSL", "secretRef": {"name": "kafka"}}, TLS_LIBRDKAFKA, TLS_JVM),
    (
        "ssl, any host name",
        {"protocol": "SSL", "secretRef": {"name": "kafka"}, "verifyHostname": False},
        TLS_LIBRDKAFKA | {"ssl.endpoint.identification.algorithm": "none"},
        TLS_JVM | {"ssl.endpoint.identification.algorithm": ""},
    ),
    (
        "plain over tls",
        sasl("SASL_SSL", "PLAIN"),
        {**TLS_LIBRDKAFKA, **LOGIN, "sasl.mechanism": "PLAIN"},
        {
            **TLS_JVM,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas("plain.PlainLoginModule", USER_PASSWORD),
        },
    ),
    *[
        (
            f"{mechanism} {protocol}",
            sasl(protocol, mechanism),
            {**(TLS_LIBRDKAFKA if protocol == "SASL_SSL" else {}), **LOGIN, "sasl.mechanism": mechanism},
            {
                **(TLS_JVM if protocol == "SASL_SSL" else {}),
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": jaas("scram.ScramLoginModule", USER_PASSWORD),
            },
        )
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT")
    ],
    (
        "oauth",
        sasl("SASL_SSL", "OAUTHBEARER", oauth=OAUTH),
        {
            **TLS_LIBRDKAFKA,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": TOKEN_URL,
            "sasl.oauthbearer.client.id": "svc-1",
            "sasl.oauthbearer.client.secret": "s3cr=t",
            "sasl.oauthbearer.scope": "kafka:read",
            "sasl.oauthbearer.sub.claim.name": "azp",
            "sasl.oauthbearer.extensions": "identityPoolId=pool-9,logicalCluster=lkc-1",
        },
        {
            **TLS_JVM,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": TOKEN_URL,
            "sasl.login.callback.handler.class": HANDLER,
            "sasl.oauthbearer.sub.claim.name": "azp",
            "sasl.jaas.config": jaas(
                "oauthbearer.OAuthBearerLoginModule",
                'clientId="svc-1" clientSecret="s3cr=t" scope="kafka:read" '
                'extension_identityPoolId="pool-9" extension_logicalCluster="lkc-1"',
            ),
        },
    ),
    (
        "oauth, nothing optional",
        sasl("SASL_PLAINTEXT", "OAUTHBEARER", oauth={"tokenEndpointUrl": TOKEN_URL}),
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": TOKEN_URL,
            "sasl.oauthbearer.client.id": "svc-1",
            "sasl.oauthbearer.client.secret": "s3cr=t",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": TOKEN_URL,
            "sasl.login.callback.handler.class": HANDLER,
            "sasl.jaas.config": jaas(
                "oauthbearer.OAuthBearerLoginModule", 'clientId="svc-1" clientSecret="s3cr=t"'
            ),
        },
    ),
]
IDS = [case[0] for case in CASES]


def spec(security: dict[str, Any], **properties: str) -> KafkaSpec:
    return KafkaSpec.read(
        {"bootstrapServers": "b1:9092,b2:9092", "security": security, "properties": properties}
    )


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("_name", "security", "expected", "_jvm"), CASES, ids=IDS)
def test_librdkafka(
    mounted: Path, _name: str, security: dict[str, Any], expected: dict[str, str], _jvm: dict[str, str]
) -> None:
    rendered = reveal(librdkafka(spec(security), read_credentials(mounted)))
    protocol = {"bootstrap.servers": "b1:9092,b2:9092", "security.protocol": security["protocol"]}
    assert rendered == protocol | expected


@pytest.mark.parametrize(("_name", "security", "_librdkafka", "expected"), CASES, ids=IDS)
def test_jvm(
    mounted: Path, _name: str, security: dict[str, Any], _librdkafka: dict[str, str], expected: dict[str, str]
) -> None:
    rendered = reveal(jvm(spec(security), read_credentials(mounted)))
    protocol = {"bootstrap.servers": "b1:9092,b2:9092", "security.protocol": security["protocol"]}
    assert rendered == protocol | expected


@pytest.mark.parametrize(("_name", "security", "_librdkafka", "_jvm"), CASES, ids=IDS)
def test_nothing_secret_is_plain_before_it_is_revealed(
    mounted: Path, _name: str, security: dict[str, Any], _librdkafka: object, _jvm: object
) -> None:
    credentials = read_credentials(mounted)
    for rendered in (librdkafka(spec(security), credentials), jvm(spec(security), credentials)):
        shown = repr(rendered) + str(rendered) + repr(credentials)
        for secret in ('p"a', "s3cr=t", "svc-1", "alice"):
            assert secret not in shown


@pytest.mark.parametrize(
    ("_name", "security", "_librdkafka", "_jvm"),
    [case for case in CASES if "ssl" not in case[1]["protocol"].lower()],
    ids=[case[0] for case in CASES if "ssl" not in case[1]["protocol"].lower()],
)
def test_librdkafka_knows_every_name_we_use(
    mounted: Path, _name: str, security: dict[str, Any], _librdkafka: object, _jvm: object
) -> None:
    """The installed library refuses a property it does not know, at construction and without a network."""
    settings = reveal(librdkafka(spec(security), read_credentials(mounted)))
    settings["bootstrap.servers"] = "127.0.0.1:1"
    Consumer({**settings, "group.id": "unused", "log_level": 0}, logger=None).close()


def test_client_certificate(mounted: Path) -> None:
    (mounted / "tls.crt").write_text(CERT)
    (mounted / "tls.key").write_text(KEY)
    credentials = read_credentials(mounted)
    security = {"protocol": "SSL", "secretRef": {"name": "kafka"}}
    ours = reveal(librdkafka(spec(security), credentials))
    assert (ours["ssl.certificate.pem"], ours["ssl.key.pem"]) == (CERT, KEY)
    theirs = reveal(jvm(spec(security), credentials))
    assert theirs["ssl.keystore.type"] == "PEM"
    assert (theirs["ssl.keystore.certificate.chain"], theirs["ssl.keystore.key"]) == (CERT, KEY)


def test_system_properties_name_the_token_endpoint() -> None:
    wanted = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": TOKEN_URL}
    assert jvm_system_properties(spec(sasl("SASL_SSL", "OAUTHBEARER", oauth=OAUTH))) == wanted
    assert jvm_system_properties(spec({"protocol": "PLAINTEXT"})) == {}


@pytest.mark.parametrize(
    ("security", "files", "says"),
    [
        (sasl("SASL_SSL", "PLAIN"), {"username": "a"}, "PLAIN needs the key 'password'"),
        (sasl("SASL_SSL", "SCRAM-SHA-512"), {}, "SCRAM-SHA-512 needs the key 'username'"),
        (sasl("SASL_SSL", "SCRAM-SHA-512"), {"username": " \n"}, "needs the key 'username'"),
        (
            sasl("SASL_SSL", "OAUTHBEARER", oauth=OAUTH),
            {"client-id": "x"},
            "OAUTHBEARER needs the key 'client-secret'",
        ),
        ({"protocol": "SSL"}, {"tls.crt": CERT}, "needs the key 'tls.key'"),
        ({"protocol": "SSL"}, {"tls.key": KEY}, "needs the key 'tls.crt'"),
        ({"protocol": "SASL_SSL"}, {}, "SASL_SSL needs a mechanism"),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, {}, "needs 'oauth'"),
        (sasl("SASL_SSL", "PLAIN"), {"username": "a", "password": "x\ny"}, "control character"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, security: dict[str, Any], files: dict[str, str], says: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for render in (librdkafka, jvm):
        with pytest.raises(KafkaSettingsError, match=says):
            render(spec(security), read_credentials(tmp_path))


def test_a_key_java_cannot_read_is_named_without_showing_it(tmp_path: Path) -> None:
    credentials = Credentials(
        tls_crt=SecretStr(CERT), tls_key=SecretStr("-----BEGIN RSA PRIVATE KEY-----\nU0VDUkVU\n")
    )
    with pytest.raises(KafkaSettingsError, match="PKCS#8") as caught:
        jvm(spec({"protocol": "SSL"}), credentials)
    assert "U0VDUkVU" not in str(caught.value)


def test_a_secret_that_is_not_text_is_named_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"hidden\xff\xfe")
    with pytest.raises(KafkaSettingsError, match="'password' cannot be read as text") as caught:
        read_credentials(tmp_path)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("extensions", "says"),
    [({"a-b": "x"}, "letters only"), ({"auth": "x"}, "letters only"), ({"a": "x,y"}, "comma")],
)
def test_extensions_that_no_client_could_send(extensions: dict[str, str], says: str) -> None:
    security = sasl(
        "SASL_SSL", "OAUTHBEARER", oauth={"tokenEndpointUrl": TOKEN_URL, "extensions": extensions}
    )
    credentials = Credentials(client_id=SecretStr("a"), client_secret=SecretStr("b"))
    for render in (librdkafka, jvm):
        with pytest.raises(KafkaSettingsError, match=says):
            render(spec(security), credentials)


def test_properties_pass_through_to_the_dialect_they_are_meant_for() -> None:
    given = spec(
        {"protocol": "PLAINTEXT"},
        **{
            "client.id": "me",
            "jvm.default.api.timeout.ms": "5000",
            "librdkafka.socket.keepalive.enable": "true",
            "fetch.max.bytes": "1",
            "jvm.fetch.max.bytes": "2",
        },
    )
    ours = reveal(librdkafka(given, Credentials()))
    assert ours["client.id"] == "me"
    assert ours["socket.keepalive.enable"] == "true"
    assert ours["fetch.max.bytes"] == "1"
    assert "default.api.timeout.ms" not in ours
    theirs = reveal(jvm(given, Credentials()))
    assert theirs["default.api.timeout.ms"] == "5000"
    assert theirs["fetch.max.bytes"] == "2"
    assert "socket.keepalive.enable" not in theirs


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.servers",
        "security.protocol",
        "group.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "sasl.jaas.config",
        "sasl.password",
        "SASL.Password",
        "jvm.sasl.jaas.config",
        "librdkafka.sasl.username",
        "ssl.key.pem",
        "ssl.keystore.password",
        "ssl.truststore.location",
        "plugin.library.paths",
        "interceptor.classes",
        "metric.reporters",
        "debug",
        "some.password",
        "a.b.class",
        "",
        "no spaces",
        "x\ny",
    ],
)
def test_what_would_break_us_is_refused(name: str) -> None:
    assert refusal(name)
    given = KafkaSpec.read({"bootstrapServers": "b:1", "properties": {name: "hidden-value"}})
    for render in (librdkafka, jvm):
        with pytest.raises(KafkaSettingsError, match="refused") as caught:
            render(given, Credentials())
        assert "hidden-value" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["client.id", "socket.timeout.ms", "fetch.min.bytes", "jvm.request.timeout.ms"]
)
def test_what_is_harmless_is_not_refused(name: str) -> None:
    assert refusal(name) is None
