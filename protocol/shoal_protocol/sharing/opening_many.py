"""Opens many envelopes under sessions at once, as a Compute node takes them in bulk.

What it returns is what `SessionEnvelope.open` and `share_digest` do one by one; objects and calls
around the cryptography took longer than the cryptography.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from shoal_protocol.sharing.envelope import ANSWER_BYTES, MAGIC
from shoal_protocol.sharing.session_envelope import HEADER_BYTES, SessionWrapping
from shoal_protocol.sharing.sessions import KEY_BYTES
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.wire.encoding import VERSION, domain

_HEADER: Final = np.dtype(
    [
        ("begins", f"V{len(MAGIC) + 3}"),  # magic, version, wrapping, node
        ("holder", "<u4"),
        ("number", "<u4"),
        ("round", "V32"),
        ("answer", f"V{ANSWER_BYTES}"),
    ]
)
_HASH_BLOCK: Final = 64  # bytes of SHA-256
_INNER: Final = bytes(each ^ 0x36 for each in range(256))
_OUTER: Final = bytes(each ^ 0x5C for each in range(256))
_INNER_REST: Final = bytes([0x36]) * (_HASH_BLOCK - KEY_BYTES)
_OUTER_REST: Final = bytes([0x5C]) * (_HASH_BLOCK - KEY_BYTES)
_SEED: Final = bytes([ShareKind.SEED])
_VECTOR: Final = bytes([ShareKind.VECTOR])
_NONCE: Final = bytes(12)


def headers(
    encoded: Sequence[bytes], wrapping: SessionWrapping, *, node: int, round_id: str
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Return holders, session numbers, and which of `encoded` have a header of this kind.

    Each is at least as long as a header; shape (n,) each. What is not of this version, wrapping,
    node and round is told by the last.
    """
    read = np.frombuffer(b"".join([each[:HEADER_BYTES] for each in encoded]), _HEADER)
    begins = np.void(MAGIC + bytes([VERSION, wrapping, node]))
    due = (read["begins"] == begins) & (read["round"] == np.void(bytes.fromhex(round_id)))
    return read["holder"], read["number"], due


def open_all(
    encoded: Sequence[bytes], chain_keys: Sequence[bytes | None], *, round_id: str, manifest: str
) -> list[tuple[bytes, bytes] | None]:
    """Return each one's payload and share digest; None without a key, or if it is not authentic.

    They are vectors, or notices, whose payload is the seed that they stand for, with headers of
    this round; `chain_keys` are those of its hour.
    """
    about_round = domain("session_round") + bytes.fromhex(round_id) + b"\x01"
    about_seal, about_stream = domain("session_seal"), domain("session_stream")
    about_share, bound_to = (
        domain("stored_share") + bytes.fromhex(round_id),
        bytes.fromhex(manifest),
    )
    sha256 = hashlib.sha256
    found: list[tuple[bytes, bytes] | None] = []
    for envelope, chain_key in zip(encoded, chain_keys, strict=True):
        if chain_key is None:
            found.append(None)
            continue
        # HMAC-SHA-256 (RFC 2104) written out: `hmac.digest` takes nearly twice as long
        inner, outer = (
            chain_key.translate(_INNER) + _INNER_REST,
            chain_key.translate(_OUTER) + _OUTER_REST,
        )
        key = sha256(outer + sha256(inner + about_round).digest()).digest()
        inner, outer = key.translate(_INNER) + _INNER_REST, key.translate(_OUTER) + _OUTER_REST
        head = envelope[:HEADER_BYTES]
        about = sha256(head).digest() + b"\x01"
        seal = sha256(outer + sha256(inner + about_seal + about).digest()).digest()
        box = envelope[HEADER_BYTES:]
        try:
            payload = ChaCha20Poly1305(seal).decrypt(_NONCE, box, head + bound_to)
        except InvalidTag:
            found.append(None)
            continue
        kind = _VECTOR
        if not payload:
            kind = _SEED
            payload = sha256(outer + sha256(inner + about_stream + about).digest()).digest()
        content = about_share + head[-ANSWER_BYTES:] + kind + payload
        found.append((payload, sha256(content).digest()))
    return found
