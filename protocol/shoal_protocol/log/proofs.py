"""Checks that an entry is in a Merkle tree, and that one tree is the beginning of another.

Hashes: RFC 6962, section 2.1. Checks: RFC 9162, sections 2.1.3.2 and 2.1.4.2. A hash has 32 bytes.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from shoal_protocol.trust.succession import WrongProof as WrongProof
from shoal_protocol.trust.succession import check_inclusion as check_inclusion

EMPTY_ROOT: Final = sha256().digest()
HASH_BYTES: Final = 32
MOST_HASHES: Final = 63  # in a proof (tlog-witness)


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


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
