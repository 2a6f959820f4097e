"""Shares as they are written down, whatever the scheme, and which Compute nodes get them.

A share is a full vector modulo 2**64, or a seed that stands for one. A seed's stream is uniformly
random under the assumption that ChaCha20 (RFC 8439) is a pseudo-random generator.

All nodes get shares, or a committee of a few. The nodes stand in a ring, in the manifest's order,
and a data holder's committee begins at node `holder mod nodes`: it is the same in all rounds,
committees overlap, and the load is even. Heikkilä et al. 2017, arXiv:1703.01106, section 5: clients
that talk to a subset of the nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from pydantic import Field

from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector


def to_ring(values: Int64Vector) -> Uint64Vector:
    """Map integers in [-2**63, 2**63), shape (d,), to their residues."""
    return values.astype(np.int64).view(np.uint64)


def from_ring(residues: Uint64Vector) -> Int64Vector:
    """Map residues, shape (d,), to the integers in [-2**63, 2**63) that they stand for."""
    return residues.astype(np.uint64).view(np.int64)


RandomBytes = Callable[[int], bytes]

SEED_BYTES: Final = 32


class ShareKind(IntEnum):
    """The encoding of a share."""

    SEED = 0
    VECTOR = 1


@dataclass(frozen=True)
class Share:
    """One Compute node's share: a seed of 32 bytes, or d little-endian 64-bit residues."""

    kind: ShareKind
    payload: bytes

    def __repr__(self) -> str:
        return f"Share({self.kind.name}, {len(self.payload)} bytes)"


def key_stream(seed: bytes, name: bytes) -> CipherContext:
    """Return the ChaCha20 key stream of `seed`; updating it with zeros reads on.

    RFC 8439 state words 12 to 15 are block counter 0 and a nonce, `name`, 12 bytes, which keeps
    the streams of different schemes apart. A seed is used for one stream only, so it can be fixed.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    return Cipher(algorithms.ChaCha20(seed, bytes(4) + name), mode=None).encryptor()


def read_words(stream: CipherContext, count: int) -> Uint64Vector:
    """Return the stream's next `count` words of 64 bits, little-endian."""
    return np.frombuffer(stream.update(bytes(8 * count)), "<u8")


LARGEST_COMMITTEE: Final = 10


class Committees(Model):
    """What sharing schemes have in common; without `committee` each answer goes to all nodes."""

    committee: int | None = Field(
        default=None, ge=2, le=LARGEST_COMMITTEE, exclude_if=lambda value: value is None
    )

    def shares(self, nodes: int) -> int:
        """Return into how many shares an answer is split where there are so many `nodes`."""
        return self.committee or nodes

    def members(self, *, holder: int, nodes: int) -> list[int]:
        """Return the nodes, by index, that get the shares of a data holder, in their order."""
        first = 0 if self.committee is None else holder
        return [(first + place) % nodes for place in range(self.shares(nodes))]

    def opening(self, nodes: int) -> int:
        """Return how many shares of one answer open it."""
        raise NotImplementedError

    def needed(self, nodes: int) -> int:
        """Return how many of `nodes` must be there for a total: of all the part that opens one."""
        return -(-nodes * self.opening(nodes) // self.shares(nodes))

    def kind_for(self, *, holder: int, node: int, nodes: int) -> ShareKind:
        """Return the kind of share that `node` (of `nodes`) is due from a data holder.

        Of an answer's shares one fewer than open it are seeds, the others are full vectors. Which
        ones are vectors rotates with the data holder, so that the load is even.

        Raises:
            ValueError: none, for it is not of the data holder's committee.
        """
        shares = self.shares(nodes)
        place, first = node, holder
        if self.committee is not None:
            place, first = (node - holder) % nodes, holder // nodes
        if place >= shares:
            raise ValueError("the node is not of the data holder's committee")
        is_vector = (place - first) % shares <= shares - self.opening(nodes)
        return ShareKind.VECTOR if is_vector else ShareKind.SEED

    def _committee_refusal(self, *, nodes: int, minimum_committee: int | None) -> str | None:
        if self.committee is None:
            return None
        if minimum_committee is None:
            return "the policy allows no committees: each answer goes to all Compute nodes"
        if self.committee < minimum_committee:
            return f"the policy demands committees of at least {minimum_committee} Compute nodes"
        if self.committee >= nodes:
            return "a committee must have fewer nodes than there are Compute nodes"
        return None
