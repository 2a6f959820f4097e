"""Compresses a trainer's signed documents on disk, without loss.

The text that all documents of a job share is stored once, as the dictionary of the compression.
Each keeps its own nonce, digests and signature, which do not compress.
"""

import zlib
from typing import Final

from shoal_protocol.wire.errors import MalformedDocument

# The spelling of draws and receipts. Never change it: stored documents refer to it.
_SPELLING: Final = (
    b'{"body":{"entry":{"instance":,"job":"","nonce":"","previous":"","revision":,"weights":""},'
    b'"kind":"submission_receipt","manifest":""},"signature":"","signer":"trainer"}'
    b'{"body":{"expires_at":"2026-01-01T00:00:00.000Z","instance":,"job":"","kind":"draw",'
    b'"manifest":"","nonce":"","revision":,"version":1,"weights":[]},"signature":"","signer":"'
)
_LARGEST: Final = 1 << 24  # bytes, of a document


def packed(document: bytes, near: bytes) -> bytes:
    """Compress `document` with the dictionary `near`, of up to 32 KB."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zdict=_SPELLING + near)
    return deflate.compress(document) + deflate.flush()


def unpacked(stored: bytes, near: bytes) -> bytes:
    """Return the document that was `packed` with the same `near`.

    Raises:
        MalformedDocument: it was packed with another, or changed on file.
    """
    inflate = zlib.decompressobj(zlib.MAX_WBITS, zdict=_SPELLING + near)
    try:
        document = inflate.decompress(stored, _LARGEST)
    except zlib.error:
        raise MalformedDocument("a document on file is damaged") from None
    if not inflate.eof:
        raise MalformedDocument("a document on file is cut short")
    return document
