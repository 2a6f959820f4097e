"""Vectors of 64-bit integers in a document: base64 of little-endian words."""

import base64

import numpy as np

from shoal_protocol.wire.encoding import Uint64Vector, decode_base64
from shoal_protocol.wire.errors import MalformedDocument


def encode_uint64(vector: Uint64Vector) -> str:
    """Encode a ring vector, shape (d,), as base64 of little-endian 64-bit integers."""
    return base64.b64encode(vector.astype("<u8").tobytes()).decode()


def decode_uint64(encoded: str) -> Uint64Vector:
    """Decode `encode_uint64`.

    Raises:
        MalformedDocument: not canonical base64, or the length is not a multiple of 8 bytes.
    """
    try:
        content = decode_base64(encoded)
    except ValueError as error:
        raise MalformedDocument(f"a vector is {error}") from None
    if len(content) % 8:
        raise MalformedDocument("a vector's bytes are not a multiple of 8")
    return np.frombuffer(content, "<u8").astype(np.uint64)
