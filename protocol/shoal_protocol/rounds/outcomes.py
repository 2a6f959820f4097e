"""Verifies a round's outcome from the aggregator: a result with its partial sums, or its end.

Shares of one client that come from different answers do not cancel: the total is then uniformly
random. So a total has to be possible by the query's bounds and the noise: nothing else in a round
would show it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries import Mechanism, Query
from shoal_protocol.rounds.attestations import (
    Abandonment,
    PartialSum,
    PartialSumReference,
    Result,
    check_nodes,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.trust.manifest import Parties
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import Int64Vector, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument, WrongSigner
from shoal_protocol.wire.service_errors import RefusedResult, WrongCohort, WrongRound, WrongShare
from shoal_protocol.wire.vectors import decode_uint64


@dataclass(frozen=True, kw_only=True)
class ReleasedSum:
    """A round's result: the noisy sum over the cohort, and what is public about its noise.

    `values` and `noise_sd`, both shape (query.dimension,), are in lattice units; `noise_sd` is the
    standard deviation of the noise that the whole cohort really added to each coordinate, by
    `mechanism`. `surplus` is how many times as many clients as the noise was calibrated for (N - D
    - C - 1) there are in the cohort: the shape of the sum of their Laplace shares.
    """

    query: Query
    values: NDArray[np.int64]
    cohort_size: int
    noise_sd: NDArray[np.float64]
    mechanism: Mechanism
    surplus: float = 1.0

    def __post_init__(self) -> None:
        shape = (self.query.dimension,)
        if self.values.shape != shape or self.noise_sd.shape != shape:
            raise ValueError("a released sum and its noise must have the dimension of the query")
        if self.cohort_size < 1 or not np.all(self.noise_sd > 0.0) or not self.surplus > 0.0:
            raise ValueError("cohort_size, noise_sd and surplus must be positive")

    @classmethod
    def of(cls, spec: RoundSpec, result: Result) -> Self:
        """Return what a round released, from its verified result."""
        return cls.of_values(spec, from_ring(decode_uint64(result.values)), result.cohort_size)

    @classmethod
    def of_values(cls, spec: RoundSpec, values: Int64Vector, cohort_size: int) -> Self:
        """Return a round's sum with these `values`, shape (d,), over so many clients."""
        coordinates, parts = zip(*spec.noise_blocks(), strict=True)
        variances = [part.variance(clients=cohort_size) for part in parts]
        return cls(
            query=spec.query,
            values=values,
            cohort_size=cohort_size,
            noise_sd=np.repeat(np.sqrt(variances), coordinates),
            mechanism=spec.noise.mechanism,
            surplus=cohort_size / spec.parties,
        )


FALSE_ALARM: Final = 2.0**-40
"""Largest probability that a total of honest parties is called impossible, for each round."""

IMPOSSIBLE: Final = (
    "the total is larger than the query allows: probably shares of one client came from different "
    "answers. Let each data holder's key be used on one machine only, and no restored backup; then "
    "submit the job again"
)
"""What to say of a total that is not possible; it names no client, for none is known."""


def is_possible(spec: RoundSpec, total: Int64Vector, *, cohort_size: int) -> bool:
    """Tell whether `total`, shape (d,), can be the noisy sum over `cohort_size` clients.

    Demanded of each coordinate is |value| <= cohort_size largest_value + the noise's tail, which a
    round of honest clients fails with probability at most `FALSE_ALARM`. A total that is uniformly
    random passes with probability at most 4^-d, since `fits_modulus` keeps two bits spare, and
    nearly always with far less. `spec` must have passed `check_spec`, and `cohort_size` be at
    most its population.

    Raises:
        ValueError: `total` does not have the spec's dimension, or `cohort_size` is not positive.
    """
    if total.shape != (spec.dimension,):
        raise ValueError(f"expected a vector of {spec.dimension} coordinates")
    largest, dimension = cohort_size * spec.query.largest_value, spec.dimension
    # tails are for all d coordinates in each block: the blocks' failures add up to FALSE_ALARM
    tails = (
        (coordinates, part.tail(clients=cohort_size, dimension=dimension, failure=FALSE_ALARM))
        for coordinates, part in spec.noise_blocks()
    )
    limits = np.concatenate(
        [np.full(coordinates, largest + math.ceil(tail), np.int64) for coordinates, tail in tails]
    )
    return bool(np.all((-limits <= total) & (total <= limits)))  # |-2^63| would overflow


def verified_outcome(
    encoded: bytes, spec: RoundSpec, parties: Parties
) -> tuple[Signed[Any], list[Signed[PartialSum]]]:
    """Return the aggregator's signed `Result` or `Abandonment` of the round, as it shows them.

    With a result come the signed partial sums that it names, in their nodes' order.

    Raises:
        MalformedDocument: not one list of these documents.
        ProtocolError: as `check_result`, `check_partial_sums` and `check_abandonment`.
    """
    value = parse_canonical_json(encoded)
    documents = value.get("documents") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(documents, list) or not documents:
        raise MalformedDocument("a round's outcome comes as one list of documents")
    signed: Signed[Any] = from_json(documents[0], Result, Abandonment)
    sums = [from_json(each, PartialSum) for each in documents[1:]]
    if isinstance(signed.body, Abandonment):
        check_abandonment(signed, spec, parties)
        return signed, []
    check_result(signed, spec, parties)
    named = [each.node for each in signed.body.partial_sums]
    sums.sort(key=lambda each: named.index(each.body.node) if each.body.node in named else -1)
    check_partial_sums(sums, signed.body, spec, parties)
    return signed, sums


def check_result(signed: Signed[Result], spec: RoundSpec, parties: Parties) -> None:
    """Refuse a result that the aggregator did not sign, or that cannot be this round's.

    `parties` are those of the manifest version of the spec, which was checked.

    Raises:
        UnknownSigner, WrongSigner, BadSignature, WrongManifest, WrongRound, WrongCohort,
        WrongShare
        RefusedResult: no clients' answers add up to that.
    """
    parties.verify(signed)
    result = signed.body
    if result.round != spec.digest:
        raise WrongRound
    if not spec.minimum_cohort <= result.cohort_size <= spec.population_size:
        raise WrongCohort(
            "the cohort is smaller than minimum_cohort, or larger than the population"
        )
    named = [each.node for each in result.partial_sums]
    if named != [node for node in spec.compute_nodes if node in named]:
        raise WrongCohort("a result refers to partial sums of Compute nodes, in their order")
    if len(named) < spec.threshold:
        raise WrongCohort(f"a result rests on the partial sums of {spec.threshold} Compute nodes")
    total = from_ring(decode_uint64(result.values))
    if len(total) != spec.dimension:
        raise WrongShare("a result has one integer for each coordinate of the round's query")
    if not is_possible(spec, total, cohort_size=result.cohort_size):
        raise RefusedResult(IMPOSSIBLE)


def check_partial_sums(
    sums: Sequence[Signed[PartialSum]], result: Result, spec: RoundSpec, parties: Parties
) -> None:
    """Refuse partial sums that are not, in order, those which a checked result names.

    They are added up again: exactly these must give the result, and not contradict each other.

    Raises:
        UnknownSigner, WrongSigner, BadSignature, WrongManifest, WrongRound, WrongCharge,
        WrongCohort, WrongShare
        RefusedResult: they are not those that the result names, or do not add up to it.
    """
    for each in sums:
        parties.verify(each)
        if each.body.round != spec.digest:
            raise WrongRound
        if (each.body.cohort, each.body.cohort_size) != (result.cohort, result.cohort_size):
            raise WrongCohort("a partial sum is over another cohort than the result")
        check_partial_sum(each.body, spec)
    shown = tuple(PartialSumReference(node=each.body.node, digest=each.digest) for each in sums)
    if shown != result.partial_sums:
        raise RefusedResult("the result names other partial sums than those that are shown")
    residues = {
        spec.compute_nodes.index(each.body.node): decode_uint64(each.body.values) for each in sums
    }
    if any(each.body.nodes not in (None, tuple(by.node for by in shown)) for each in sums):
        raise RefusedResult("the result is not of the partial sums that are added to each other")
    combined = summation.combine(spec.sharing, residues, nodes=len(spec.compute_nodes))
    if combined is None or combined.wrong:
        raise RefusedResult("the Compute nodes' partial sums contradict each other")
    claimed = from_ring(decode_uint64(result.values))
    if not np.array_equal(summation.decode(spec.sharing, combined.total), claimed):
        raise RefusedResult("the result is not the total of the Compute nodes' partial sums")


def check_abandonment(signed: Signed[Abandonment], spec: RoundSpec, parties: Parties) -> None:
    """Refuse an abandonment of the round that is not the aggregator's.

    Raises:
        UnknownSigner, WrongSigner, BadSignature, WrongManifest, WrongRound
    """
    parties.verify(signed)
    if signed.signer != parties.manifest.aggregator.name:
        raise WrongSigner("only the aggregator's word ends a round")
    if signed.body.round != spec.digest:
        raise WrongRound


def check_partial_sum(body: PartialSum, spec: RoundSpec) -> None:
    """Refuse a partial sum of this round that cannot be part of any result of it.

    Raises:
        WrongCharge, WrongCohort, WrongShare
        MalformedDocument: the values are not whole residues.
    """
    body.check_charge(spec)
    if not spec.minimum_cohort <= body.cohort_size <= spec.population_size:
        raise WrongCohort(
            "the cohort is smaller than minimum_cohort, or larger than the population"
        )
    check_nodes(spec, body.node, body.nodes)
    residues = decode_uint64(body.values)
    if len(residues) != spec.dimension:
        raise WrongShare("a partial sum has one residue for each coordinate of the round's query")
    summation.check_residues(spec.sharing, residues)
