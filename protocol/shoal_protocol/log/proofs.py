"""Checks that an entry is in a Merkle tree, and that one tree is the beginning of another.

Hashes: RFC 6962, section 2.1. Checks: RFC 9162, sections 2.1.3.2 and 2.1.4.2. A hash has 32 bytes.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from shoal_protocol.wire.errors import ProtocolError

EMPTY_ROOT: Final = sha256().digest()
HASH_BYTES: Final = 32
MOST_HASHES: Final = 63  # in a proof (tlog-witness)


class WrongProof(ProtocolError):
    code = "wrong-log-proof"
    title = "The proof does not hold for this log"
    status = 422
    remedy = "Ask for a new proof; if it fails again, keep both checkpoints: the log may be forked."


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


def check_inclusion(
    index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes
) -> None:
    """Check that the tree of `size` entries with this `root` has `leaf` at `index`.

    Raises:
        WrongProof
    """
    if not 0 <= index < size:
        raise WrongProof("the entry lies outside the tree")
    here, last, found = index, size - 1, leaf
    for each in proof:
        if last == 0:
            raise WrongProof("the proof of inclusion is too long")
        if here % 2 or here == last:
            found = node_hash(each, found)
            while not here % 2 and here:
                here, last = here >> 1, last >> 1
        else:
            found = node_hash(found, each)
        here, last = here >> 1, last >> 1
    if last or found != root:
        raise WrongProof("the proof does not lead from the entry to the tree's root")


def check_consistency(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Check that the tree of the first `old` entries of the `new` ones has the root `old_root`.

    Raises:
        WrongProof
    """
    if not 0 <= old <= new:
        raise WrongProof("the log has become shorter")
    if old in (0, new):
        if proof or old_root != (EMPTY_ROOT if old == 0 else new_root):
            raise WrongProof("one size, other roots")
        return
    hashes = [*([old_root] if old & (old - 1) == 0 else []), *proof]
    if not hashes:
        raise WrongProof("the proof of consistency is empty")
    here, last = old - 1, new - 1
    while here % 2:
        here, last = here >> 1, last >> 1
    before = after = hashes[0]
    for each in hashes[1:]:
        if last == 0:
            raise WrongProof("the proof of consistency is too long")
        if here % 2 or here == last:
            before, after = node_hash(each, before), node_hash(each, after)
            while not here % 2 and here:
                here, last = here >> 1, last >> 1
        else:
            after = node_hash(after, each)
        here, last = here >> 1, last >> 1
    if last or before != old_root or after != new_root:
        raise WrongProof("the older tree is not the beginning of the newer one")
