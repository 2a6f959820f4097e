"""The public rule by which each round of a job with mini-batches asks its clients.

The trainer follows the rule when it makes a round's spec, and readers of a certificate check it. It
depends only on who joined, who is still enrolled, who was asked before, and a hash. As long as
nobody leaves, each data holder is asked its part of every batch, rounded up or down: `largest_part`
is what a job has to count on. Proof: docs/mathematics.md, proposition 1.8.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cost, price
from shoal_protocol.privacy.job_costs import Participation, noise_for
from shoal_protocol.queries import Mechanism, Query
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec, check_spec
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import domain, encode_clients
from shoal_protocol.wire.errors import RefusedSpec, UnknownHolder

Owners = NDArray[np.uint32]
"""The data holder of each client of a job's population, ascending, shape (population,)."""

SPARE: Final = 10
"""A job may lose one in so many of its rounds, and still give a posterior."""
_KEPT_ORDERS: Final = 8  # of jobs that run at the same time; a million clients take seconds


def largest_part(slots: Iterable[int], *, holders: int, size: int, population: int) -> int:
    """Return the most that a batch of `size` asks so many data holders together, by the rule.

    `slots` are how many of each could be in the job's population, of which only the least size is
    known: the smaller the `population`, the larger a data holder's part of it.
    """
    parts = sorted((-(-each * size // max(each, population)) for each in slots), reverse=True)
    return min(size, sum(parts[:holders]))


def participations(rounds: int, batch: int | None, population: int) -> int:
    """Return in how many rounds one client of so many is asked at most: ceil(T B / N)."""
    size = population if batch is None else min(batch, population)
    return -(-rounds * size // population)


def choose_batch(
    participation: Participation,
    enrolled: BitMap,
    owners: Owners,
    *,
    job: str,
    size: int,
    most: int,
) -> BitMap | None:
    """Return the `size` clients whom the job's next round asks; None if there are too few.

    Those are asked who joined the job, are in `enrolled` and were asked in the fewest of its
    rounds so far, fewer than `most`; of those with equally many, in the job's order (`_ranks`). In
    T rounds over N clients who all stay nobody is asked more than ceil(T size / N) times.

    Raises:
        ValueError: `size` is not positive.
    """
    if size < 1:
        raise ValueError("a batch has at least one client")
    candidates = participation.places(participation.population & enrolled)
    candidates = candidates[participation.rounds[candidates] < most]
    if len(candidates) < size:
        return None
    before = participation.rounds[candidates]
    lap = int(np.partition(before, size - 1)[size - 1])  # of whom only some are asked
    chosen, tied = candidates[before < lap], candidates[before == lap]
    population = participation.population.serialize()
    order = tied[np.argsort(_ranks(job, size, population, owners.tobytes())[tied])]
    clients = np.asarray(participation.population.to_array())
    return BitMap(clients[np.concatenate([chosen, order[: size - len(chosen)]])])


def check_batch(
    batch: BitMap,
    participation: Participation,
    gone: BitMap,
    owners: Owners,
    *,
    job: str,
    size: int,
    most: int,
    may_leave: bool,
) -> BitMap:
    """Refuse a batch that is not the rule's; return which of the population have left by now.

    Clients whom the rule would have asked and the trainer did not must have left, which is possible
    only if `may_leave`. Clients in `gone` are not asked again.

    Raises:
        RefusedSpec
    """
    left = gone
    while True:
        stayed = participation.population - left
        expected = choose_batch(participation, stayed, owners, job=job, size=size, most=most)
        if expected == batch:
            return left
        missing = BitMap() if expected is None else expected - batch
        if not may_leave or not missing:
            raise RefusedSpec("its population is not the batch that the public rule chooses")
        left = left | missing


@lru_cache(_KEPT_ORDERS)
def _ranks(job: str, size: int, population: bytes, owners: bytes) -> NDArray[np.int64]:
    """Return each client's rank in the order in which a job asks, shape (population,).

    Clients stand in a line, by the SHA-256 digest of the job and their index; those of one data
    holder together, at the place of its first. The p-th of N from 0 has the rank p size mod N,
    equal ones in the order of the line. While nobody leaves, round t asks those with
    (p - t) size mod N < size: where floor((p - t) size / N) rises from p - 1 to p. So of n clients
    in a row it asks n size / N, rounded up or down, whatever n, t and the digests are.
    """
    prefix = domain("batch-order") + bytes.fromhex(job)
    clients = np.asarray(BitMap.deserialize(population).to_array(), dtype="<u4")
    digests = np.array(
        [hashlib.sha256(prefix + client.tobytes()).digest() for client in clients], "S32"
    )
    by_digest = np.empty(len(clients), np.int64)
    by_digest[np.argsort(digests)] = np.arange(len(clients))
    _, holder = np.unique(np.frombuffer(owners, np.uint32), return_inverse=True)
    first = np.full(holder.max() + 1, len(clients))
    np.minimum.at(first, holder, by_digest)
    line = np.lexsort((by_digest, first[holder]))
    place = np.arange(len(clients), dtype=np.int64)
    ranks = np.empty(len(clients), np.int64)
    ranks[line[np.lexsort((place, place * size % len(clients)))]] = place
    return ranks


def make_spec(
    *,
    manifest: Consortium,
    job: str,
    number: int,
    query: Query,
    mechanism: Mechanism,
    cost: Cost,
    population: BitMap,
    dropouts: int,
    colluders: int,
    opened_at: datetime,
    deadline: datetime,
    give_up_at: datetime,
    sharing: Sharing,
) -> RoundSpec:
    """Make the spec of a round that costs each client at most `cost`, noise by Theorem 1.

    With threshold sharing the Compute nodes beyond the threshold are waited for until midway
    between `deadline` and `give_up_at`.

    Raises:
        ValueError: too few clients for the tolerances, too little noise, or an overflow.
    """
    size = len(population)
    sensitivity = query.design(mechanism).sensitivity
    federation = {"population": size, "dropouts": dropouts, "colluders": colluders}
    noise = noise_for(mechanism, sensitivity=sensitivity, cost=cost, **federation)
    exact = price(noise, sensitivity=sensitivity, **federation)
    try:
        asked = AskedHolders.of(population, manifest.roster)
    except UnknownHolder as error:
        raise ValueError("the population holds a client that is not enrolled") from error
    midway = deadline + (give_up_at - deadline) / 2
    spec = RoundSpec(
        manifest=manifest.digest,
        job=job,
        number=number,
        query=query,
        dimension=query.dimension,
        sharing=sharing,
        noise=noise,
        population=encode_clients(population),
        population_size=size,
        dropouts=dropouts,
        colluders=colluders,
        minimum_cohort=size - dropouts,
        smallest_answer=asked.smallest,
        compute_nodes=tuple(node.name for node in manifest.manifest.compute_nodes),
        opened_at=opened_at,
        deadline=deadline,
        proceed_at=give_up_at if sharing.scheme == "additive" else midway,
        give_up_at=give_up_at,
        mu=exact.mu,
        epsilon=exact.stated_epsilon,
    )
    try:
        check_spec(spec, manifest, now=opened_at)
    except RefusedSpec as error:
        raise ValueError(str(error)) from error
    return spec
