"""TLS to one party whose certificate is pinned, and to any for what is public anyway."""

import ssl


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


def unverified_tls() -> ssl.SSLContext:
    """Return a client's TLS context that accepts any certificate.

    For versions of the manifest alone, which are public and authenticate themselves.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
