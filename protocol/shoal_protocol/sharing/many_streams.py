"""Adds up many ChaCha20 key streams, one for each seed: RFC 8439's block function on vectors.

A library computes one stream at a time, and setting it up takes as long as a thousand words of it.
For short streams every operation here is on all seeds together. It is for Compute nodes.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from shoal_protocol.sharing.shares import SEED_BYTES, key_stream, read_words
from shoal_protocol.wire.encoding import Uint64Vector

Words = npt.NDArray[np.uint32]

SHORT: Final = 96  # words of 64 bits, up to which this is quicker than a library
_CONSTANTS: Final = np.frombuffer(b"expand 32-byte k", "<u4")
_DOUBLE_ROUNDS: Final = 10
_BLOCK_WORDS: Final = 8  # of 64 bits
_LANES: Final = 4096  # blocks worked on at once: the state stays in a processor's caches


def streams(seeds: bytes, name: bytes, count: int) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the first `count` words of each seed's key stream, shape (some seeds, count), in order.

    `seeds` has 32 bytes for each; `name` is as in `key_stream`.

    Raises:
        ValueError: a seed is cut short.
    """
    if len(seeds) % SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes")
    if count > SHORT:
        for start in range(0, len(seeds), SEED_BYTES):
            yield read_words(key_stream(seeds[start : start + SEED_BYTES], name), count)[None]
        return
    keys = np.frombuffer(seeds, "<u4").reshape(-1, 8)
    blocks = -(-count // _BLOCK_WORDS)
    together = _LANES // blocks
    for start in range(0, len(keys), together):
        yield _blocks(keys[start : start + together], name, blocks)[:, :count]


def total(seeds: bytes, name: bytes, count: int) -> Uint64Vector:
    """Return the sum modulo 2**64, shape (count,), of the `streams` of these seeds."""
    added = np.zeros(count, np.uint64)
    for some in streams(seeds, name, count):
        added += some[0] if len(some) == 1 else some.sum(axis=0, dtype=np.uint64)
    return added


def _blocks(keys: Words, name: bytes, blocks: int) -> npt.NDArray[np.uint64]:
    """Return the first blocks of the streams of `keys`, (n, 8): shape (n, 8 * blocks)."""
    last = np.empty((4, 1, blocks), np.uint32)
    last[0] = np.arange(blocks, dtype=np.uint32)
    last[1:] = np.frombuffer(name, "<u4")[:, None, None]
    return _mixed(keys, last).view("<u8").reshape(len(keys), -1)


def _mixed(keys: Words, last: Words) -> Words:
    """Return blocks of 16 words, shape (n, blocks, 16), of `keys`, (n, 8).

    `last`, of a shape that fits (4, n, blocks), are words 12 to 15 of the states (2.3).
    """
    state = np.empty((4, 4, len(keys), last.shape[-1]), np.uint32)
    state[0] = _CONSTANTS[:, None, None]
    state[1:3] = keys.T.reshape(2, 4, -1, 1)
    state[3] = last
    a, b, c, d = (row.reshape(4, -1).copy() for row in state)
    spare = np.empty_like(a)
    for _ in range(_DOUBLE_ROUNDS):
        _quarter_rounds(a, b, c, d, spare)
        b, c, d = b[[1, 2, 3, 0]], c[[2, 3, 0, 1]], d[[3, 0, 1, 2]]  # diagonals become columns
        _quarter_rounds(a, b, c, d, spare)
        b, c, d = b[[3, 0, 1, 2]], c[[2, 3, 0, 1]], d[[1, 2, 3, 0]]
    mixed = np.stack([a, b, c, d]).reshape(state.shape) + state
    return mixed.reshape(16, *state.shape[2:]).transpose(1, 2, 0).astype("<u4", order="C")


def _quarter_rounds(a: Words, b: Words, c: Words, d: Words, spare: Words) -> None:
    """Do the quarter round, 2.1, on every column of these rows, (4, lanes) each, in place."""
    for one, two, three, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        one += two
        three ^= one
        np.right_shift(three, np.uint32(32 - bits), out=spare)
        three <<= np.uint32(bits)
        three |= spare
