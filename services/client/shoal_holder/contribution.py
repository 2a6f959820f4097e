"""A data holder's answer to one round, as bytes: pure, without input or output.

Order of work: encode, add noise, map to residues, split, seal. Only shares of the noisy vector
leave a data holder.
"""

import hashlib
import hmac
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from shoal_holder.noise import NoiseSampler
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.queries import GradientSum, Moments, Query, Tables
from shoal_protocol.queries.columns import in_levels
from shoal_protocol.queries.models import InstalledModel
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, EPOCH_BYTES, Header, seal
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import Int64Vector, domain

MOST_ENTRIES: Final = 1 << 18
"""Numbers in one array while records are chosen and encoded: what bounds the memory it takes.

So many are in a core's own memory, too."""


def box_keys(consortium: Consortium) -> list[bytes]:
    """Return the Compute nodes' X25519 keys, in the manifest's order."""
    return [bytes.fromhex(node.box_key) for node in consortium.manifest.compute_nodes]


def draw_noise(spec: RoundSpec, slots: int, noise: NoiseSampler, *, draws: int = 1) -> Int64Vector:
    """Return independent draws of the noise of so many slots, shape (draws, spec.dimension).

    Each has the variance of all their parts (docs/mathematics.md, lemma 1.10).

    Raises:
        ValueError: the sampler did not return as many 64-bit integers as asked for, or so much
            noise is too large to draw.
    """
    blocks = [
        drawn(noise, part.of(slots), (draws, coordinates))
        for coordinates, part in spec.noise_blocks()
    ]
    return np.concatenate(blocks, axis=1)


def drawn(noise: NoiseSampler, part: NoisePart, shape: tuple[int, int]) -> Int64Vector:
    """Return noise of this shape.

    Raises:
        ValueError: the sampler did not return as many 64-bit integers as asked for.
    """
    block = noise(part, math.prod(shape))
    # a float here would silently become an exact-looking integer further on
    if block.dtype != np.int64 or block.shape != (math.prod(shape),):
        raise ValueError("a noise sampler must return a vector of 64-bit integers")
    return block.reshape(shape)


def encoded_together(
    query: Query, values: NDArray[np.float64], present: NDArray[np.bool_]
) -> Int64Vector:
    """Return what slots contribute before noise, shape (dimension,).

    `values` are the slots' records, shape (slots, r, m), r the most that count of each, and
    `present`, shape (slots, r), tells which of these are there. The others are worked out, too, and
    left out then: each record has a place of its own in an array whose shape is public, so that
    neither the time nor a last bit of another record tells of it. So many are worked out at once
    that no array has more than `MOST_ENTRIES` numbers, if it has more than one record: whole slots,
    or parts of one.

    Raises:
        ValueError: the records do not fit the query, or its model is not installed here.
    """
    slots, most, columns = values.shape
    total = np.zeros(query.dimension, np.int64)
    if isinstance(query, GradientSum) and isinstance(query.model, InstalledModel):
        # a model is foreign code: it gets one slot at a time, so that one cannot fail for others
        from shoal_kit.installed_models import gradients_for  # the owner's policy names it

        gradients = gradients_for(query)
        for records, there in zip(values, present, strict=True):
            total += query.encode(records[there], gradients)
        return total
    size, together = records_at_once(query), slots_in_a_pass(query, most)
    whole = query.model_copy(update={"records_per_client": size})
    for first in range(0, slots, together):
        every = values[first : first + together].reshape(-1, columns)
        counted = present[first : first + together].ravel()
        owners, gathered = np.arange(len(every)) // most, np.zeros(1, np.int64)
        for start in range(0, len(every), size):
            records = every[start : start + size]
            counts = counted[start : start + size] & in_levels(query.columns, records)
            rows: NDArray[Any] = whole.rows(records)
            of_slots = owners[start : start + size][counts]
            gathered = gathered + query.by_client(rows[counts], of_slots, len(every) // most)
        total += query.released(gathered)
    return total


def slots_in_a_pass(query: Query, most: int) -> int:
    """Return of how many slots, with so many records at `most`, records are encoded at once.

    One, if even one slot's take several passes.
    """
    return max(1, records_at_once(query) // most)


def passes_for(query: Query, slots: int) -> int:
    """Return how often `encoded_together` encodes records of so many slots."""
    most = query.records_per_client
    of_slots = math.ceil(slots / slots_in_a_pass(query, most))
    return of_slots * math.ceil(most / records_at_once(query))


def records_at_once(query: Query) -> int:
    """Return how many records are encoded at once: one, if it takes more than `MOST_ENTRIES`."""
    match query:
        case Tables():
            width = query.entries
        case GradientSum():
            width = query.dimension
        case Moments():
            width = query.width
        case _:
            width = 1
    return max(1, MOST_ENTRIES // max(len(query.column_names), len(query.columns), width))


def seal_contribution(
    spec: RoundSpec,
    box_keys: Sequence[bytes],
    holder: int,
    key: SigningKey,
    values: Int64Vector,
    noise: Int64Vector,
    *,
    epoch: int = 0,
    random_bytes: RandomBytes,
) -> list[bytes]:
    """Return one sealed and signed envelope for each of the holder's nodes, in `members`' order.

    `box_keys` are those of all nodes, in the manifest's order. `values` are records that are
    encoded, `noise` was drawn for them alone, `holder` is the index of `key` on the roster, and
    `epoch` that of its machine. Seal once per round, and keep the bytes for retries.

    Raises:
        ValueError: one of the two does not have the spec's dimension.
    """
    if {values.shape, noise.shape} != {(spec.dimension,)}:
        raise ValueError("values and noise must have the spec's dimension")
    noisy = values + noise
    answer = answer_id(key, spec.digest, noisy, random_bytes(32), epoch=epoch)
    members = spec.sharing.members(holder=holder, nodes=len(box_keys))
    shares = spec.sharing.split(
        spec.sharing.encode(noisy), holder=holder, nodes=len(box_keys), random_bytes=random_bytes
    )
    return [
        seal(
            share,
            Header(
                kind=share.kind,
                node=node,
                holder=holder,
                manifest=spec.manifest,
                round_id=spec.digest,
                answer=answer,
            ),
            box_key=box_keys[node],
            key=key,
            random_bytes=random_bytes,
        )
        for node, share in zip(members, shares, strict=True)
    ]


def answer_id(
    key: SigningKey, round_id: str, noisy: Int64Vector, fresh: bytes, *, epoch: int = 0
) -> bytes:
    """Return what tells an answer from every other one of the same data holder, 16 bytes.

    The last four are the epoch of the machine that makes it.

    It also follows from the noisy vector, so two answers differ in it even where a machine was set
    back to a snapshot and draws the same `fresh` bytes again; only who has `key` can try vectors.
    """
    secret = hashlib.sha256(domain("answer-id-key") + bytes(key)).digest()
    content = bytes.fromhex(round_id) + noisy.astype("<i8").tobytes() + fresh
    digest = hmac.digest(secret, content, "sha256")[: ANSWER_BYTES - EPOCH_BYTES]
    return digest + epoch.to_bytes(EPOCH_BYTES, "little")
