"""A party's certificate carries a real TLS handshake, and only to the host that it names."""

import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from shoal_kit.tls_certificates import TlsIdentity, host_of, pinned_tls, self_signed

NOW = datetime.now(UTC)


def identity(*hosts: str, valid_days: int = 30) -> TlsIdentity:
    return self_signed("compute-0", hosts, now=NOW, valid_days=valid_days)


def strict(certificate_pem: str) -> ssl.SSLContext:
    """Return what Python 3.13 makes by default, on any version."""
    context = ssl.create_default_context(cadata=certificate_pem)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def handshake(
    directory: Path, server: TlsIdentity, client: ssl.SSLContext, *, host: str
) -> str | None:
    """Connect over loopback, expecting `host`; return the TLS version."""
    (directory / "crt").write_text(server.certificate_pem)
    (directory / "key").write_bytes(server.private_key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "crt", directory / "key")

    def answer(listener: socket.socket) -> None:
        raw, _ = listener.accept()
        with raw:
            try:
                with context.wrap_socket(raw, server_side=True) as secure:
                    secure.recv(1)
            except (ssl.SSLError, ConnectionError):
                return  # the client refused, which is the client's to report

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), timeout=20) as raw,
                client.wrap_socket(raw, server_hostname=host) as secure,
            ):
                return secure.version()
        finally:
            thread.join()


@pytest.mark.parametrize("trust", [strict, pinned_tls])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "compute-0.hospital.example"])
def test_a_certificate_is_its_own_trust_anchor_for_each_of_its_hosts(tmp_path, trust, host) -> None:
    made = identity("compute-0.hospital.example", "127.0.0.1", "::1", "localhost")
    assert handshake(tmp_path, made, trust(made.certificate_pem), host=host) == "TLSv1.3"


def test_a_certificate_cannot_sign_another() -> None:
    certificate = x509.load_pem_x509_certificate(identity("localhost").certificate_pem.encode())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign


@pytest.mark.parametrize(
    "url",
    [
        *("http://a.example", "a.example:80", "https://", "https://a.example/x", "https://a?b"),
        *("https://u@a.example", "https://a.example:0", "https://a:99999", "https://[::1"),
    ],
)
def test_a_url_that_is_not_only_https_host_and_port_is_refused(url) -> None:
    with pytest.raises(ValueError, match="URL"):
        host_of(url)
