"""A Compute node's partial sum where data holders share in committees: weighted, and masked.

With weights the plain sum of the partial sums is the total, whichever nodes were lost. With masks,
one between every two nodes, it is all that they tell: Bonawitz et al. 2017, Practical secure
aggregation, doi:10.1145/3133956.3133982, section 4.
"""

import hmac
from collections.abc import Collection, Mapping
from functools import reduce
from itertools import islice

import numpy as np
from nacl import bindings
from nacl.exceptions import CryptoError

from shoal_protocol.sharing import schemes, shamir, summation
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.wire.encoding import Uint64Vector, domain


def starts(sharing: Sharing, *, node: int, nodes: int) -> list[int]:
    """Return the first nodes of the committees that `node` is in."""
    return sharing.members(holder=node - sharing.shares(nodes) + 1, nodes=nodes)


def weight(sharing: Sharing, *, start: int, node: int, among: Collection[int], nodes: int) -> int:
    """Return what the shares at `node` of the committee from `start` on are multiplied by.

    The partial sums are those of the nodes in `among`. By threshold the first ones of the committee
    in it are used, as many as are needed, each with Lagrange's weight at 0 of its place in the
    committee; 0 is that of the others, and of a committee that has too few.
    """
    members = sharing.members(holder=start, nodes=nodes)
    there = (place for place, member in enumerate(members, 1) if member in among)
    used = list(islice(there, sharing.opening(nodes)))
    place = members.index(node) + 1
    if len(used) < sharing.opening(nodes) or place not in used:
        return 0
    if sharing.scheme == "additive":
        return 1
    return shamir.weights_at(0, used)[used.index(place)]


def weighted(
    sharing: Sharing,
    sums: Mapping[int, Uint64Vector],
    *,
    node: int,
    among: Collection[int],
    nodes: int,
) -> Uint64Vector:
    """Return the weighted total, shape (d,), of a node's sums by threshold, by their `starts`."""
    parts = (
        shamir.times(vector, weight(sharing, start=start, node=node, among=among, nodes=nodes))
        for start, vector in sums.items()
    )
    return reduce(shamir.plus, parts)


def mask(
    sharing: Sharing,
    box_keys: Mapping[int, bytes],
    *,
    node: int,
    box_private_key: bytes,
    cohort: str,
    dimension: int,
) -> Uint64Vector:
    """Return what `node` adds to its partial sum, shape (d,); those of all nodes add up to 0.

    `box_keys` are the other nodes' X25519 keys by index. Every two nodes expand one seed, which
    follows from the key that they share and the digest of the `cohort`, which binds round and
    nodes: the first of them adds what the second subtracts.

    Raises:
        ValueError: a key is a weak one.
    """
    expand = shamir.expand if sharing.scheme == "threshold" else schemes.expand
    total = np.zeros(dimension, np.uint64)
    for other, box_key in box_keys.items():
        try:
            shared = bindings.crypto_box_beforenm(box_key, box_private_key)
        except CryptoError as error:
            raise ValueError("a node's box key is not a usable X25519 key") from error
        content = domain("partial_sum_mask") + bytes.fromhex(cohort)
        stream = expand(hmac.digest(shared, content, "sha256"), dimension)
        change = summation.plus if node < other else summation.minus
        total = change(sharing, total, stream)
    return total
