"""Verifies what the aggregator says became of a round: pure; takes no sum on its word alone."""

import numpy as np

from shoal_protocol.attestations import Abandonment, PartialSum, PartialSumReference, Result
from shoal_protocol.documents import Signed, decode, from_json
from shoal_protocol.encoding import decode_uint64, parse_canonical_json
from shoal_protocol.errors import (
    MalformedDocument,
    RefusedResult,
    WrongCohort,
    WrongLength,
    WrongRound,
    WrongSigner,
)
from shoal_protocol.manifest import Consortium
from shoal_protocol.ring import from_ring
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.sums import IMPOSSIBLE, is_possible


def verified_result(encoded: bytes, spec: RoundSpec, consortium: Consortium) -> Signed[Result]:
    """Return the signed result of the round, under the manifest version of its spec.

    Raises:
        MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest, WrongRound,
        WrongCohort, WrongLength
        RefusedResult: no clients' answers add up to that.
    """
    signed = decode(encoded, Result)
    consortium.verify(signed)
    _check_result(signed.body, spec)
    return signed


def verified_partial_sums(
    encoded: bytes, result: Result, spec: RoundSpec, consortium: Consortium
) -> list[Signed[PartialSum]]:
    """Return the signed partial sums that a verified result names, in their nodes' order.

    They are added up again: exactly these must give the result, and not contradict each other.

    Raises:
        MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest, WrongRound,
        WrongCohort, WrongLength, WrongResidue
        RefusedResult: they are not those that the result names, or do not add up to it.
    """
    value = parse_canonical_json(encoded)
    documents = value.get("documents") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(documents, list):
        raise MalformedDocument("partial sums come as one list of documents")
    by_node = {}
    for document in documents:
        signed = from_json(document, PartialSum)
        consortium.verify(signed)
        _check_partial_sum(signed.body, result, spec)
        by_node[signed.body.node] = signed
    named = [each.node for each in result.partial_sums]
    if len(documents) != len(by_node) or by_node.keys() != set(named):
        raise RefusedResult("the aggregator does not show the partial sums that the result names")
    sums = [by_node[node] for node in named]
    shown = tuple(PartialSumReference(node=each.body.node, digest=each.digest) for each in sums)
    if shown != result.partial_sums:
        raise RefusedResult("the result names other partial sums than the Compute nodes signed")
    residues = {
        spec.compute_nodes.index(each.body.node): decode_uint64(each.body.values) for each in sums
    }
    combined = spec.sharing.combine(residues, nodes=len(spec.compute_nodes))
    if combined is None or combined.wrong:
        raise RefusedResult("the Compute nodes' partial sums contradict each other")
    claimed = from_ring(decode_uint64(result.values))
    if not np.array_equal(spec.sharing.decode(combined.total), claimed):
        raise RefusedResult("the result is not the total of the Compute nodes' partial sums")
    return sums


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
    named = [each.node for each in result.partial_sums]
    if named != [node for node in spec.compute_nodes if node in named]:
        raise WrongCohort("a result refers to partial sums of Compute nodes, in their order")
    if len(named) < spec.threshold:
        raise WrongCohort(f"a result rests on the partial sums of {spec.threshold} Compute nodes")
    total = from_ring(decode_uint64(result.values))
    if len(total) != spec.dimension:
        raise WrongLength("a result has one integer for each coordinate of the round's query")
    if not is_possible(spec, total, cohort_size=result.cohort_size):
        raise RefusedResult(IMPOSSIBLE)


def _check_partial_sum(body: PartialSum, result: Result, spec: RoundSpec) -> None:
    if body.round != spec.digest:
        raise WrongRound
    if (body.cohort, body.cohort_size) != (result.cohort, result.cohort_size):
        raise WrongCohort("a partial sum is over another cohort than the result")
    residues = decode_uint64(body.values)
    if len(residues) != spec.dimension:
        raise WrongLength("a partial sum has one residue for each coordinate of the round's query")
    spec.sharing.check_residues(residues)
