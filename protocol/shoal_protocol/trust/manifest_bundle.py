"""A manifest version on its way: the signed manifest behind its length, then the roster file.

From the manifest the recipient knows, before any of the roster arrives, whether to accept it, how
long it is, and what its digest must be.
"""

from typing import Final

from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.errors import MalformedDocument

LENGTH_BYTES: Final = 4
LARGEST_MANIFEST_BYTES: Final = 1 << 20


def bundle(consortium: Consortium) -> bytes:
    """Return the body that hands a manifest version with its roster to another party."""
    return framed(consortium.signed_manifest.encode(), consortium.roster.encode())


def framed(signed_manifest: bytes, roster: bytes) -> bytes:
    """Return a body that begins with the manifest's length in `LENGTH_BYTES`, little-endian."""
    length = len(signed_manifest).to_bytes(LENGTH_BYTES, "little")
    return b"".join((length, signed_manifest, roster))


def manifest_length(prefix: bytes) -> int:
    """Return the length of the signed manifest that follows the first `LENGTH_BYTES` of a body.

    Raises:
        MalformedDocument: no manifest is that long.
    """
    length = int.from_bytes(prefix, "little")
    if not 0 < length <= LARGEST_MANIFEST_BYTES:
        raise MalformedDocument("the body does not begin with the length of a signed manifest")
    return length
