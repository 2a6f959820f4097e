"""Opens many envelopes under sessions at once, as a Compute node takes them in bulk.

What these return is what `SessionEnvelope.open` and `share_digest` do of each; one by one, objects
and calls around the cryptography took longer than the cryptography.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from shoal_protocol.sharing.envelope import ANSWER_BYTES, MAGIC
from shoal_protocol.sharing.many_streams import first_blocks
from shoal_protocol.sharing.session_envelope import (
    HEADER_BYTES,
    SessionWrapping,
)
from shoal_protocol.sharing.sessions import KEY_BYTES
from shoal_protocol.sharing.shares import SEED_BYTES, ShareKind
from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.versions import WIRE

_HEADER: Final = np.dtype(
    [
        ("begins", f"V{len(MAGIC) + 3}"),  # magic, version, wrapping, node
        ("holder", "<u4"),
        ("number", "<u4"),
        ("round", "V32"),
        ("answer", f"V{ANSWER_BYTES}"),
    ]
)
_ANSWER_AT: Final = HEADER_BYTES - ANSWER_BYTES
_HASH_BLOCK: Final = 64  # bytes of SHA-256
_INNER: Final = bytes(each ^ 0x36 for each in range(256))
_OUTER: Final = bytes(each ^ 0x5C for each in range(256))
_INNER_REST: Final = bytes([0x36]) * (_HASH_BLOCK - KEY_BYTES)
_OUTER_REST: Final = bytes([0x5C]) * (_HASH_BLOCK - KEY_BYTES)
_NO_KEY: Final = bytes(KEY_BYTES)
_BLOCK_BYTES: Final = 64  # of ChaCha20
_NONCE: Final = bytes(12)
_ABOUT_NOTICE: Final = domain("session_notice")
_ABOUT_SEAL: Final = domain("session_seal")


def headers(
    encoded: Sequence[bytes], wrapping: SessionWrapping, *, node: int, round_id: str
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Return holders, session numbers, and which of `encoded` have a header of this kind.

    Each is at least as long as a header; shape (n,) each. What is not of this version, wrapping,
    node and round is told by the last.
    """
    read = np.frombuffer(b"".join([each[:HEADER_BYTES] for each in encoded]), _HEADER)
    begins = np.void(MAGIC + bytes([WIRE, wrapping, node]))
    due = (read["begins"] == begins) & (read["round"] == np.void(bytes.fromhex(round_id)))
    return read["holder"], read["number"], due


def open_notices(
    encoded: Sequence[bytes], chain_keys: Sequence[bytes | None], *, manifest: str
) -> list[bytes | None]:
    """Return the seeds for which notices stand; None without a key, or if it is not authentic.

    They have the right headers; `chain_keys` are of the round's hour.
    """
    if not encoded:
        return []
    end = bytes.fromhex(manifest) + b"\x01"
    about = [_ABOUT_NOTICE + each[:_ANSWER_AT] + end for each in encoded]
    ends = b"".join([each[_ANSWER_AT:] for each in encoded])
    answers_and_tags = np.frombuffer(ends, "<u8").reshape(-1, 4)
    keys = b"".join(_derived(chain_keys, about))
    blocks = first_blocks(keys, answers_and_tags[:, :2].tobytes())
    differences = np.frombuffer(blocks, "<u8").reshape(-1, 8)[:, 4:6] ^ answers_and_tags[:, 2:]
    good = (differences[:, 0] | differences[:, 1]) == 0  # at once: no time tells where they differ
    starts = range(0, len(blocks), _BLOCK_BYTES)
    return [
        blocks[start : start + SEED_BYTES] if is_good and chain_key else None
        for start, is_good, chain_key in zip(starts, good.tolist(), chain_keys, strict=True)
    ]


def open_vectors(
    encoded: Sequence[bytes], chain_keys: Sequence[bytes | None], *, manifest: str
) -> list[bytes | None]:
    """Return the vectors that envelopes hold, as `open_notices` does the seeds."""
    bound_to, sha256 = bytes.fromhex(manifest), hashlib.sha256
    heads = [each[:HEADER_BYTES] for each in encoded]
    about = [_ABOUT_SEAL + sha256(head).digest() + b"\x01" for head in heads]
    found: list[bytes | None] = []
    for envelope, head, key in zip(encoded, heads, _derived(chain_keys, about), strict=True):
        try:
            cipher = ChaCha20Poly1305(key)
            found.append(cipher.decrypt(_NONCE, envelope[HEADER_BYTES:], head + bound_to))
        except InvalidTag:
            found.append(None)
    return [each if key else None for each, key in zip(found, chain_keys, strict=True)]


def _derived(keys: Sequence[bytes | None], about: Sequence[bytes]) -> list[bytes]:
    """Return HMAC-SHA-256 (RFC 2104), written out: `hmac.digest` takes nearly twice as long.

    Of no key it is that of zeros, which nobody uses.
    """
    sha256, derived = hashlib.sha256, []
    for key, content in zip(keys, about, strict=True):
        own = key or _NO_KEY
        inner = sha256(own.translate(_INNER) + _INNER_REST + content).digest()
        derived.append(sha256(own.translate(_OUTER) + _OUTER_REST + inner).digest())
    return derived


def share_digests(
    encoded: Sequence[bytes], payloads: Sequence[bytes], kind: ShareKind, *, round_id: str
) -> list[bytes]:
    """Return the `share_digest` of the share that each envelope holds."""
    about, code = domain("stored_share") + bytes.fromhex(round_id), bytes([kind])
    sha256 = hashlib.sha256
    return [
        sha256(about + envelope[_ANSWER_AT:HEADER_BYTES] + code + payload).digest()
        for envelope, payload in zip(encoded, payloads, strict=True)
    ]
