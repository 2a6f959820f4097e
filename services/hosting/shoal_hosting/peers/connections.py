"""TLS to one party whose certificate is pinned, or to any; what it means if that fails."""

import os
import socket
import ssl
from typing import Final

from shoal_hosting.clock import system_clock
from shoal_hosting.tls_certificates import validity

_ANOTHER: Final = "the peer's certificate is not the pinned one"
_NOT_YET_VALID, _EXPIRED = 9, 10  # verify codes of OpenSSL
_OF_ANOTHER_HOST: Final = frozenset({62, 64})
_PROXY: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def shows_another_certificate(failure: BaseException | None) -> bool:
    """Tell whether a connection failed because who answers has another certificate."""
    if not isinstance(failure, ssl.SSLCertVerificationError):
        return False
    code = getattr(failure, "verify_code", None)  # ours has none
    return code not in {_NOT_YET_VALID, _EXPIRED, *_OF_ANOTHER_HOST}


def failure_in_words(failure: BaseException | None, certificate_pem: str | None) -> str | None:
    """Say why there is no connection to the holder of a certificate, and what to do about it.

    None if it is not known.
    """
    if shows_another_certificate(failure):
        return (
            "it shows another certificate than the one listed for it: it was renewed and the "
            "newest manifest is missing on one side, or something in between inspects TLS, which "
            "must let this host pass"
        )
    if isinstance(failure, ssl.SSLCertVerificationError):
        return _certificate_in_words(failure, certificate_pem)
    if isinstance(failure, ssl.SSLError | ConnectionResetError):
        return (
            "what listens there does not speak TLS as a party does, or ends the connection: see "
            "whether the port is the party's, and whether a proxy or firewall is in between"
        ) + _ignored_proxy()
    if isinstance(failure, socket.gaierror):
        said = "its host name has no address here: see that it is right and that DNS knows it"
    elif isinstance(failure, ConnectionRefusedError):
        said = "it refuses connections: nobody listens on its port, so see that the party runs"
    elif isinstance(failure, TimeoutError):
        said = "no connection in time: see that it runs and that no firewall drops what is sent"
    elif isinstance(failure, OSError) and failure.strerror:
        said = f"no connection: {failure.strerror}"
    else:
        return None
    return said + _ignored_proxy()


def _certificate_in_words(
    failure: ssl.SSLCertVerificationError, certificate_pem: str | None
) -> str:
    if failure.verify_code in _OF_ANOTHER_HOST:
        return (
            "its certificate is for another host name than its URL has: its operator makes one "
            "for this host by `shoal party rotate --tls`, or corrects the URL by `shoal "
            "consortium change`"
        )
    begin, end = validity(certificate_pem or "")
    clock = f"this machine's clock says {system_clock():%Y-%m-%d %H:%M} UTC"
    if failure.verify_code == _NOT_YET_VALID:
        return f"its certificate begins at {begin:%Y-%m-%d %H:%M} UTC, and {clock}: set it right"
    return (
        f"its certificate ended at {end:%Y-%m-%d %H:%M} UTC, and {clock}: if that is right, its "
        "operator renews the certificate by `shoal party rotate --tls`"
    )


def _ignored_proxy() -> str:
    """Say that a proxy of the environment is not used, where there is one."""
    named = next((name for name in _PROXY if os.environ.get(name)), None)
    if named is None or os.environ.get("SHOAL_HTTPS_PROXY"):
        return ""
    return (
        f". {named} is set and not used: let the firewall pass what goes to the party's host and "
        "port, or name the proxy in SHOAL_HTTPS_PROXY"
    )


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
                raise ssl.SSLCertVerificationError(_ANOTHER)

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            if self.getpeercert(binary_form=True) != pinned:
                raise ssl.SSLCertVerificationError(_ANOTHER)

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
