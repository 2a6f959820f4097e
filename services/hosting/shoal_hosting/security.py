"""Builds a server's TLS context from files, after checking that key and certificate belong here."""

import ssl
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from shoal_hosting.programs import read_private_file
from shoal_hosting.startup import StartupRefused


def server_tls(
    certificate_path: Path, key_path: Path, expected_certificate_pem: str
) -> ssl.SSLContext:
    """Return a server's TLS context (1.2 or newer) for the certificate that the manifest pins.

    Raises:
        StartupRefused: a file cannot be used, the key belongs to another certificate, or the
            certificate is not `expected_certificate_pem`, so no peer would accept it.
    """
    certificate = _read_certificate(certificate_path)
    try:
        pinned = x509.load_pem_x509_certificate(expected_certificate_pem.encode())
    except ValueError:
        raise StartupRefused("the certificate pinned in the manifest is not valid PEM") from None
    try:
        key = load_pem_private_key(read_private_file(key_path), password=None)
    except TypeError:
        raise StartupRefused(f"{key_path} is encrypted; provide the key without a password") from (
            None
        )
    except (ValueError, UnsupportedAlgorithm):
        raise StartupRefused(f"{key_path} does not hold a private key in PEM form") from None

    public = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*public) != certificate.public_key().public_bytes(*public):
        raise StartupRefused(
            f"the key in {key_path} does not belong to the certificate in {certificate_path}; "
            "provide the two that were made together"
        )
    if certificate.public_bytes(Encoding.DER) != pinned.public_bytes(Encoding.DER):
        raise StartupRefused(
            f"the certificate in {certificate_path} is not the one that the manifest pins for "
            "this party; provide that one, or have the authority publish a manifest with this one"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate_path, key_path)
    except ssl.SSLError as error:
        raise StartupRefused(f"{certificate_path} cannot serve TLS: {error.reason}") from None
    return context


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise StartupRefused(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise StartupRefused(f"{path} does not hold a certificate in PEM form") from None
