"""HTTPS to one party whose certificate is pinned; knows no certificate authority and no service."""

import ssl
from typing import Final

import httpx

CONNECT_TIMEOUT_SECONDS: Final = 10.0
READ_TIMEOUT_SECONDS: Final = 75.0  # longer than a server holds a long poll
WRITE_TIMEOUT_SECONDS: Final = 60.0


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
                raise ssl.SSLCertVerificationError("the peer's certificate is not the pinned one")

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            if self.getpeercert(binary_form=True) != pinned:
                raise ssl.SSLCertVerificationError("the peer's certificate is not the pinned one")

    context.sslobject_class = PinnedConnection  # asyncio and anyio
    context.sslsocket_class = PinnedSocket  # blocking sockets
    return context


def pinned_client(
    certificate_pem: str,
    *,
    base_url: str = "",
    transport: httpx.AsyncBaseTransport | None = None,
    proxy: str | None = None,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
    connections: int = 100,
) -> httpx.AsyncClient:
    """Return an HTTP client for the party whose certificate is `certificate_pem`.

    It follows no redirect and takes nothing from the environment: a proxy is used only where
    `proxy` names it, and then sees ciphertext. `transport` stands in for the network in tests.

    Raises:
        ValueError: `certificate_pem` is not one certificate in PEM form.
    """
    return httpx.AsyncClient(
        verify=pinned_tls(certificate_pem),
        base_url=base_url,
        transport=transport,
        proxy=proxy,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(
            connect=CONNECT_TIMEOUT_SECONDS,
            read=read_timeout_seconds,
            write=WRITE_TIMEOUT_SECONDS,
            pool=read_timeout_seconds,
        ),
        limits=httpx.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=60.0,  # less than the server's: a request never meets a closing line
        ),
    )
