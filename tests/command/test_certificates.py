"""A party's certificate carries a real TLS handshake, and only to the host that it names."""

import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from shoal_hosting.tls_certificates import TlsIdentity, host_of, pinned_tls, self_signed

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


@pytest.mark.parametrize("trust", [strict, pinned_tls])
@pytest.mark.parametrize("host", ["127.0.0.2", "elsewhere.example"])
def test_a_host_that_the_certificate_does_not_name_is_refused(tmp_path, trust, host) -> None:
    made = identity("127.0.0.1", "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, made, trust(made.certificate_pem), host=host)


@pytest.mark.parametrize("trust", [strict, pinned_tls])
def test_another_certificate_for_the_same_host_is_refused(tmp_path, trust) -> None:
    pinned, impostor = identity("127.0.0.1"), identity("127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, impostor, trust(pinned.certificate_pem), host="127.0.0.1")


def test_an_expired_certificate_is_refused(tmp_path) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    made = self_signed("compute-0", ["127.0.0.1"], now=past, valid_days=30)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(tmp_path, made, strict(made.certificate_pem), host="127.0.0.1")


def test_a_certificate_cannot_sign_another() -> None:
    certificate = x509.load_pem_x509_certificate(identity("localhost").certificate_pem.encode())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign


def test_the_private_key_is_not_in_the_representation() -> None:
    assert "PRIVATE" not in repr(identity("localhost"))


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
