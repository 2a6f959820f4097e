"""One client's answer to one round, as bytes: pure, without input or output.

Order of work: encode, add noise, map to residues, split, seal. Only shares of the noisy vector
leave a client.
"""

from collections.abc import Sequence

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from shoal_holder.noise import NoiseSampler
from shoal_protocol.queries import GradientSum, Query
from shoal_protocol.queries.models import InstalledModel
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, Header, seal
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import Int64Vector


def box_keys(consortium: Consortium) -> list[bytes]:
    """Return the Compute nodes' X25519 keys, in the manifest's order."""
    return [bytes.fromhex(node.box_key) for node in consortium.manifest.compute_nodes]


def draw_noise(spec: RoundSpec, clients: int, noise: NoiseSampler) -> Int64Vector:
    """Return the noise of so many clients, shape (clients, spec.dimension), block by block.

    One draw for many clients costs far less than many draws; each client's row is its own.

    Raises:
        ValueError: the sampler did not return as many 64-bit integers as asked for.
    """
    blocks = []
    for coordinates, part in spec.noise_blocks():
        block = noise(part, clients * coordinates)
        # a float here would silently become an exact-looking integer further on
        if block.dtype != np.int64 or block.shape != (clients * coordinates,):
            raise ValueError("a noise sampler must return a vector of 64-bit integers")
        blocks.append(block.reshape(clients, coordinates))
    return np.concatenate(blocks, axis=1)


def encoded(query: Query, records: NDArray[np.float64]) -> Int64Vector:
    """Return what a client contributes before noise, shape (dimension,), from (r, m) `records`.

    Raises:
        ValueError: the records do not fit the query, or its model is not installed here.
    """
    if isinstance(query, GradientSum) and isinstance(query.model, InstalledModel):
        from shoal_hosting.installed_models import gradients_for  # the owner's policy names it

        return query.encode(records, gradients_for(query))
    return query.encode(records)


def seal_contribution(
    spec: RoundSpec,
    box_keys: Sequence[bytes],
    client: int,
    key: SigningKey,
    values: Int64Vector,
    noise: Int64Vector,
    *,
    random_bytes: RandomBytes,
) -> list[bytes]:
    """Return one sealed and signed envelope for each Compute node, in the manifest's order.

    `values` are records that are `encoded`, `noise` was drawn for them alone, and `client` is the
    index of `key` on the roster. Seal once per client and round, and keep the bytes for retries.

    Raises:
        ValueError: one of the two does not have the spec's dimension.
    """
    if {values.shape, noise.shape} != {(spec.dimension,)}:
        raise ValueError("values and noise must have the spec's dimension")
    answer = random_bytes(ANSWER_BYTES)  # tells later which shares belong together
    shares = spec.sharing.split(
        spec.sharing.encode(values + noise),
        client=client,
        nodes=len(box_keys),
        random_bytes=random_bytes,
    )
    return [
        seal(
            share,
            Header(
                kind=share.kind,
                node=node,
                client=client,
                manifest=spec.manifest,
                round_id=spec.digest,
                answer=answer,
            ),
            box_key=box_keys[node],
            key=key,
            random_bytes=random_bytes,
        )
        for node, share in enumerate(shares)
    ]
