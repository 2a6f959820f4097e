"""Start-up checks of key files and TLS certificates; knows files, never what the keys are for."""

import os
import ssl
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

CONFIGURATION_ERROR: Final = 78  # EX_CONFIG of sysexits.h; supervisors do not restart on it


class StartupRefused(Exception):
    """The process must not start; the message says why and what to do, and holds no secret."""


@contextmanager
def startup_of(program: str) -> Iterator[None]:
    """Turn a `StartupRefused` into one line on standard error and exit status 78.

    A traceback here would hide the one sentence an operator needs, and could show values.
    Whatever files the program makes, nobody but its owner can reach.
    """
    umask = os.umask(0o077)
    try:
        yield
    except StartupRefused as refusal:
        print(f"{program}: will not start: {' '.join(str(refusal).split())}", file=sys.stderr)
        raise SystemExit(CONFIGURATION_ERROR) from None
    finally:
        os.umask(umask)


def read_private_file(path: Path) -> bytes:
    """Return the content of a file that nobody but its owner can reach.

    The permissions are read from the opened file, so they are those of the bytes returned.

    Raises:
        StartupRefused: the file is missing, unreadable, not a regular file, or its mode lets
            group or others in.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StartupRefused(f"{path} does not exist; create it, or correct its path") from None
    except OSError as error:
        raise StartupRefused(f"{path} cannot be opened: {error.strerror}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise StartupRefused(f"{path} is not a regular file; name the file itself")
        if mode & 0o077:
            raise StartupRefused(
                f"{path} is private but has mode {stat.S_IMODE(mode):04o}; run: chmod 600 {path}"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


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
