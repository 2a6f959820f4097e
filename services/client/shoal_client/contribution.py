"""One client's answer to one round, as bytes; pure: it sends nothing, stores nothing, asks nobody.

Order of work: encode, toss the coin if participation is hidden, add noise, map to residues, split,
seal. What leaves a client is the noisy vector's shares and nothing else.
"""

from collections.abc import Sequence

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from shoal_client.noise import NoiseSampler
from shoal_hosting.installed_models import gradients_for
from shoal_protocol.encoding import Int64Vector
from shoal_protocol.envelope import ANSWER_BYTES, Header, seal
from shoal_protocol.manifest import Consortium
from shoal_protocol.queries import GradientSum, Query
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.sharing import RandomBytes


def make_contribution(
    spec: RoundSpec,
    consortium: Consortium,
    client: int,
    key: SigningKey,
    records: NDArray[np.float64],
    *,
    random_bytes: RandomBytes,
    noise: NoiseSampler,
) -> list[bytes]:
    """Return one sealed and signed envelope for each Compute node, in the manifest's order.

    `records` has shape (r, columns of spec.query), `client` is the index of `key` on the roster.
    Each call draws fresh noise: call it once per client and round, and keep the bytes for retries.

    Raises:
        ValueError: the records do not fit the query, the spec is bound to another manifest, or a
            sampler returned something else than it should.
    """
    if spec.manifest != consortium.digest:
        raise ValueError("the spec is bound to another manifest")
    values, [drawn] = encoded(spec.query, records), draw_noise(spec, 1, noise)
    return seal_contribution(
        spec, box_keys(consortium), client, key, values, drawn, random_bytes=random_bytes
    )


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
    if isinstance(query, GradientSum):
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
    """Do as `make_contribution`, with records that are `encoded` and noise drawn for them alone.

    Raises:
        ValueError: one of the two does not have the spec's dimension.
    """
    if {values.shape, noise.shape} != {(spec.dimension,)}:
        raise ValueError("values and noise must have the spec's dimension")
    if spec.hidden is not None:  # the same work whatever it says, and nothing keeps what it said
        values = values * spec.hidden.toss(random_bytes)
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
