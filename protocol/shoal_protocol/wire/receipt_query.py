"""Encodes a receipt query: which of a sender's envelopes does a Compute node have?

An envelope ends in a sealed box and a signature, so only those who have seen the envelope know its
digest. To others the answer says nothing.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final

from shoal_protocol.wire.errors import MalformedDocument

MOST_ENTRIES: Final = 10_000
_CLIENT_BYTES: Final = 4
ENTRY_BYTES: Final = _CLIENT_BYTES + 32

Entry = tuple[int, bytes]
"""A client's index and the digest of its envelope for the node that is asked."""


def encode_query(entries: Iterable[Entry]) -> bytes:
    """Return the body of a receipt query: each entry's client, little-endian, and digest."""
    return b"".join(client.to_bytes(_CLIENT_BYTES, "little") + digest for client, digest in entries)


def decode_query(body: bytes) -> list[Entry]:
    """Return the entries of a receipt query.

    Raises:
        MalformedDocument: cut short, or more than `MOST_ENTRIES` entries.
    """
    if len(body) % ENTRY_BYTES or len(body) > MOST_ENTRIES * ENTRY_BYTES:
        raise MalformedDocument(
            f"the body is not up to {MOST_ENTRIES} entries of {ENTRY_BYTES} bytes each"
        )
    starts = range(0, len(body), ENTRY_BYTES)
    entries = (body[start : start + ENTRY_BYTES] for start in starts)
    return [
        (int.from_bytes(entry[:_CLIENT_BYTES], "little"), entry[_CLIENT_BYTES:])
        for entry in entries
    ]


def encode_answer(held: Sequence[bool]) -> str:
    """Return one bit for each entry, in order, least significant bit of each byte first."""
    bits = bytearray((len(held) + 7) // 8)
    for position, each in enumerate(held):
        bits[position // 8] |= each << position % 8
    return base64.b64encode(bits).decode("ascii")


def decode_answer(encoded: object, count: int) -> list[bool]:
    """Return for each of `count` entries whether the node holds it.

    Raises:
        MalformedDocument: not base64, or not one bit for each entry and zeros behind them.
    """
    try:
        bits = base64.b64decode(encoded if isinstance(encoded, str) else "*", validate=True)
    except (binascii.Error, ValueError):
        raise MalformedDocument("the held envelopes are not in base64") from None
    if len(bits) != (count + 7) // 8 or int.from_bytes(bits, "little") >> count:
        raise MalformedDocument("the answer must have one bit for each entry")
    return [bool(bits[position // 8] >> position % 8 & 1) for position in range(count)]
