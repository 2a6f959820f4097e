"""Throwaway certificates for tests, valid for the loopback address."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

VALID_FROM = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def write(self, directory: Path) -> tuple[Path, Path]:
        """Write both into `directory` as a careful operator would, and return their paths."""
        certificate, key = directory / "tls.crt", directory / "tls.key"
        certificate.write_text(self.pem)
        key.write_bytes(self.key_pem)
        key.chmod(0o600)
        return certificate, key


def make_identity(
    *,
    address: str = "127.0.0.1",
    authority: bool = False,
    issuer: Identity | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
    days: int = 36500,
    valid_from: datetime = VALID_FROM,
) -> Identity:
    """Make a certificate for `address`, signed by itself unless an `issuer` is given,
    over a new key unless one is given."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"party {serial}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(valid_from)
        .not_valid_after(valid_from + timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign((issuer.key if issuer else key), SHA256())
    )
    return Identity(certificate, key)
