"""A certificate authority of a test's own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Issued:
    key: str
    certificate: str


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
    )


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    self_signed: x509.Certificate

    @classmethod
    def make(cls) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder("test authority", _name("test authority"), key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def certificate(self) -> str:
        return self.self_signed.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, subject: str) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(subject), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            _builder(subject, self.self_signed.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        plain = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Issued(plain.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode())
