"""Self-signed TLS certificates of parties, and what a client trusts.

There is no certificate authority: a certificate is listed in the manifest, and who connects to
its party trusts exactly that one. It therefore must pass as its own trust anchor under strict
X.509 checks (RFC 5280) with the host name checked, and it must not be able to sign another.
"""

import ipaddress
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

EXPIRES_SOON: Final = timedelta(days=60)
"""Who has so little time left is told every day to renew."""

_CLOCK_SKEW = timedelta(days=1)
_SIGNATURES_ONLY: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
_LABEL: Final = r"(?!-)(?=[_-]*[A-Za-z0-9])[A-Za-z0-9_-]{1,63}"
_HOST_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_OTHER: Final = "the peer's certificate is not the pinned one"


@dataclass(frozen=True)
class TlsIdentity:
    """A certificate and its private key, both in PEM."""

    certificate_pem: str
    private_key_pem: bytes = field(repr=False)


def self_signed(
    common_name: str, hosts: Sequence[str], *, now: datetime, valid_days: int
) -> TlsIdentity:
    """Make a P-256 key and a certificate for `hosts` (names or IP addresses), valid from now.

    Its validity begins a day early, for clocks that are behind.

    Raises:
        ValueError: a host is neither a host name nor an address.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    key_identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=valid_days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_SIGNATURES_ONLY, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)]),
            critical=False,
        )
        .add_extension(key_identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return TlsIdentity(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def hosts_of(certificate_pem: str) -> list[str]:
    """Return the names and addresses that a certificate is for.

    Raises:
        ValueError: it is not one certificate in PEM form.
    """
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    ]


def validity(certificate_pem: str) -> tuple[datetime, datetime]:
    """Return from when until when a certificate is valid, in UTC; raises as `hosts_of`."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def host_of(url: str) -> str:
    """Return the host of an https URL that has no path.

    Raises:
        ValueError: it is not one.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError("the URL has a malformed address or port") from error
    is_bare = url.lower() == f"https://{parts.netloc}".lower() and parts.username is None
    if not is_bare or not parts.hostname or port == 0:
        raise ValueError("the URL must be of the form https://host or https://host:port")
    return parts.hostname


def port_of(url: str) -> int:
    """Return the port of an https URL."""
    return urlsplit(url).port or 443


def pinned_tls(certificate_pem: str) -> ssl.SSLContext:
    """Return a client's TLS context that accepts exactly the certificate in `certificate_pem`.

    The host name, the validity period and the signature are checked as usual; beyond that the
    peer's certificate must be the pinned one byte for byte. Trust alone would not do: were the
    pinned certificate marked as an authority, any certificate signed with it would pass too.

    Raises:
        ValueError: `certificate_pem` is not one certificate in PEM form.
    """
    if certificate_pem.count("-----BEGIN CERTIFICATE-----") != 1:
        raise ValueError("pin exactly one certificate, in PEM form")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        pinned = ssl.PEM_cert_to_DER_cert(certificate_pem.strip())
        context.load_verify_locations(cadata=pinned)
    except (ValueError, ssl.SSLError):
        raise ValueError("the pinned certificate is not valid PEM") from None

    class PinnedConnection(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            if self.getpeercert(binary_form=True) != pinned:
                raise ssl.SSLCertVerificationError(_OTHER)

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            if self.getpeercert(binary_form=True) != pinned:
                raise ssl.SSLCertVerificationError(_OTHER)

    context.sslobject_class = PinnedConnection  # asyncio and anyio
    context.sslsocket_class = PinnedSocket  # blocking sockets
    return context


def unverified_tls() -> ssl.SSLContext:
    """Return a client's TLS context that accepts any certificate.

    For versions of the manifest alone, which are public and authenticate themselves.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if len(host) > 253 or not _HOST_NAME.fullmatch(host):
            raise ValueError(f"{host!r} is neither a host name nor an IP address") from None
        return x509.DNSName(host)
