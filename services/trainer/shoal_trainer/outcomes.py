"""Verifies what the aggregator says became of a round: pure; trusts its key and nothing else."""

from shoal_protocol.attestations import Abandonment, Result
from shoal_protocol.documents import Signed, decode
from shoal_protocol.encoding import decode_uint64
from shoal_protocol.errors import WrongCohort, WrongLength, WrongRound, WrongSigner
from shoal_protocol.manifest import Consortium
from shoal_protocol.rounds import RoundSpec


def verified_result(encoded: bytes, spec: RoundSpec, consortium: Consortium) -> Signed[Result]:
    """Return the signed result of the round, under the manifest version of its spec.

    Raises:
        MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest, WrongRound,
        WrongCohort, WrongLength
    """
    signed = decode(encoded, Result)
    consortium.verify(signed)
    _check_result(signed.body, spec)
    return signed


def verified_abandonment(
    encoded: bytes, spec: RoundSpec, consortium: Consortium
) -> Signed[Abandonment]:
    """Return the aggregator's signed abandonment of the round.

    Raises:
        MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest, WrongRound
    """
    signed = decode(encoded, Abandonment)
    consortium.verify(signed)
    if signed.signer != consortium.manifest.aggregator.name:
        raise WrongSigner("only the aggregator's word ends a round")
    if signed.body.round != spec.digest:
        raise WrongRound
    return signed


def _check_result(result: Result, spec: RoundSpec) -> None:
    """Refuse a result that is not this round's."""
    if result.round != spec.digest:
        raise WrongRound
    if not spec.minimum_cohort <= result.cohort_size <= spec.population_size:
        raise WrongCohort(
            "the cohort is smaller than minimum_cohort, or larger than the population"
        )
    if tuple(sum_.node for sum_ in result.partial_sums) != spec.compute_nodes:
        raise WrongCohort("a result refers to one partial sum of each Compute node, in their order")
    if len(decode_uint64(result.values)) != spec.dimension:
        raise WrongLength("a result has one integer for each coordinate of the round's query")
