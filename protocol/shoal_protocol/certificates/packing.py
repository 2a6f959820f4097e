"""Compresses release certificates: what rounds repeat takes most of one."""

import gzip
import zlib
from typing import Final

from shoal_protocol.certificates.release_certificate import ReleaseCertificate
from shoal_protocol.log.witnessed import LogProof, read_proof
from shoal_protocol.wire.beside import parted
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import MalformedDocument

LARGEST_BYTES: Final = 256 << 20
"""Of a certificate, when it is unpacked."""
_GZIP: Final = b"\x1f\x8b"
_WITH_GZIP_HEAD: Final = 31  # zlib's window bits


def pack(encoded: bytes) -> bytes:
    """Return a certificate compressed with gzip (RFC 1952)."""
    return gzip.compress(encoded, mtime=0)


def unpack(encoded: bytes) -> bytes:
    """Return a certificate's canonical JSON; one that is not compressed as it is.

    Raises:
        MalformedDocument: it is no whole gzip member, or larger than `LARGEST_BYTES`.
    """
    if not encoded.startswith(_GZIP):
        return encoded
    reader = zlib.decompressobj(_WITH_GZIP_HEAD)
    try:
        found = reader.decompress(encoded, LARGEST_BYTES + 1)
    except zlib.error:
        raise MalformedDocument("the certificate's compression is broken") from None
    if not reader.eof or reader.unused_data or len(found) > LARGEST_BYTES:
        raise MalformedDocument("the certificate is cut off, too large, or followed by more")
    return found


def read_certificate(encoded: bytes) -> Signed[ReleaseCertificate]:
    """Return a certificate, compressed or not; nothing of it is verified.

    Raises:
        MalformedDocument, UnsupportedVersion
    """
    return decode(parted(unpack(encoded))[0], ReleaseCertificate)


def log_proof_in(encoded: bytes) -> LogProof | None:
    """Return the proof in a certificate, compressed or not, unchecked; None if there is none.

    Raises:
        MalformedDocument
    """
    written = parted(unpack(encoded))[1]
    return None if written is None else read_proof(written)
