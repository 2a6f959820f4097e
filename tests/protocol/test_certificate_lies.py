"""Lies that their own author signed: each is found in a certificate, and said in its own words."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import pydantic
import pytest
from pyroaring import BitMap

from shoal_command.certificate import OWNERS, certificate_facts
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import ReleaseCertificate
from shoal_protocol.queries import Query
from shoal_protocol.rounds import round_spec
from shoal_protocol.rounds.outcomes import IMPOSSIBLE
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Document
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.service_errors import RefusedCertificate, WrongCharge
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from shoal_studies.study_request import StudyRequest
from tests.world import examples
from tests.world.certified import (
    CHANGED,
    FIRST,
    MAKINGS,
    ONE_ROUND,
    THRESHOLDS,
    TWO_ROUNDS,
    Lie,
    Making,
    changed,
    of_threshold,
    under,
)
from tests.world.strategies import at_path, paths, replaced

OTHER_JOB = replace(
    TWO_ROUNDS, job=examples.JOB.model_copy(update={"nonce": examples.seed("other")[:16].hex()})
)
NOTHING = "0" * 64
MATRIX = examples.MATRIX
OTHER_QUERY = "the job's terms do not ask this query in this round"


SMALL = replace(TWO_ROUNDS, cohorts=(BitMap(range(9)), examples.COHORT))
CHARGE = WrongCharge.title
UNDER_CHANGED = examples.JOB.model_copy(update={"manifest": CHANGED.digest})


@dataclass(frozen=True)
class Case:
    """A lie, where it is told and what is said of it."""

    lies: Mapping[str, Lie]
    said: str
    making: Making = TWO_ROUNDS


def inside(part: str, **fields: Any) -> Lie:
    """Return the lie about `fields` of what is in the field `part`."""

    def lie(body: Any) -> Any:
        return body.model_copy(update={part: getattr(body, part).model_copy(update=fields)})

    return lie


def times(factor: float, name: str) -> Lie:
    """Return the lie that multiplies the number in the field `name`."""
    return lambda body: body.model_copy(update={name: getattr(body, name) * factor})


def without(index: int) -> Lie:
    """Return the lie that leaves one of several out."""
    return lambda several: tuple(each for place, each in enumerate(several) if place != index)


def in_place(index: int, part: Callable[[ReleaseCertificate], Any]) -> Lie:
    """Return the lie that puts something of another job's certificate in the place of one."""

    def lie(several: Any) -> Any:
        swapped = list(several)
        swapped[index] = part(OTHER_JOB.make())
        return tuple(swapped)

    return lie


def off_by_one(body: Any) -> Any:
    """Return the document with a vector that is off by one in its first coordinate."""
    values = decode_uint64(body.values)
    values[0] += np.uint64(1)
    return body.model_copy(update={"values": encode_uint64(values)})


def halved(spec: Any) -> Any:
    return spec.model_copy(
        update={"noise": spec.noise.model_copy(update={"scale": spec.noise.scale / 2})}
    )


def asked(**fields: Any) -> Query:
    """Return the query of the only round with other fields."""
    return MATRIX.model_copy(update=fields)


def first_column(**fields: Any) -> Query:
    """Return the query of the only round with other fields of its first column."""
    return asked(columns=(MATRIX.columns[0].model_copy(update=fields), *MATRIX.columns[1:]))


def of_the_target(query: Query) -> Query:
    return query.model_copy(update={"columns": query.columns[1:]})


def steeper(query: Query, factor: float) -> Query:
    """Return a query with another scale of its first column."""
    first, *others = query.columns
    return query.model_copy(
        update={"columns": (first.model_copy(update={"scale": first.scale * factor}), *others)}
    )


def earlier(spec: RoundSpec) -> RoundSpec:
    """Return a spec of a round that was a day before."""
    times = ("opened_at", "deadline", "proceed_at", "give_up_at")
    return changed(**{name: getattr(spec, name) - timedelta(days=1) for name in times})(spec)


LIES = {
    # told by the analyst
    "the analyst asks more than the policy allows": Case(
        {"request": inside("privacy", epsilon=4.5)}, "the job request: epsilon 4.5"
    ),
    "the analyst is content with fewer than the policy": Case(
        {"request": changed(minimum_population=9)},
        "the job request: minimum_population less dropouts must be at least 8",
    ),
    "the request is in the name of another analyst": Case(
        {"request": changed(analyst="trainer")},
        "the job request: the document speaks for another party",
    ),
    # told by the trainer, of a round
    "a spec is another job's": Case(
        {"spec 1": changed(job=NOTHING)},
        "the spec of round 1: the spec is for another job or round",
    ),
    "a round is left out, and its number too": Case(
        {"spec 1": changed(number=2)},
        "the spec of round 1: the spec is for another job or round",
    ),
    "a spec says that it costs less": Case(
        {"spec 0": times(0.5, "mu")}, "the spec of round 0: mu is not what"
    ),
    "a spec has half the noise that its price needs": Case(
        {"spec 0": halved}, "the spec of round 0: mu is not what"
    ),
    "a spec is content with a smaller cohort": Case(
        {"spec 0": changed(minimum_cohort=8)},
        "the spec of round 0: minimum_cohort must be population_size less dropouts",
    ),
    "a spec asks a query of another dimension": Case(
        {"spec 0": changed(query=examples.MATRIX)}, "the spec of round 0: dimension is not"
    ),
    "a spec leaves a Compute node out": Case(
        {"spec 0": lambda spec: changed(compute_nodes=spec.compute_nodes[:2])(spec)},
        "the spec of round 0: compute_nodes must be the manifest's",
    ),
    "a spec miscounts its population": Case(
        {"spec 0": changed(population=encode_clients(BitMap(range(11))))},
        "the spec of round 0: population_size is not",
    ),
    "a spec's population is larger than the job allows": Case(
        {
            "request": changed(maximum_population=12, minimum_population=12),
            "population": lambda clients: BitMap(range(13)),
        },
        "the spec of round 0: the population is smaller or larger than the job allows",
    ),
    "a later round is under an earlier manifest": Case(
        {},
        "the spec of round 0: it is bound to a manifest that the certificate lacks",
        replace(TWO_ROUNDS, consortia=(CHANGED, examples.CONSORTIUM)),
    ),
    # told by the Compute nodes
    "a partial sum is off by one": Case(
        {"sum 0 compute-1": off_by_one},
        "the partial sums of round 0: the result is not the total",
    ),
    "a partial sum is over a smaller cohort than the result": Case(
        {"sum 0 compute-1": changed(cohort_size=10)},
        "the partial sums of round 0: a partial sum is over another cohort",
    ),
    "a partial sum is over another cohort of the same size": Case(
        {"sum 0 compute-1": changed(cohort=NOTHING)},
        "the partial sums of round 0: a partial sum is over another cohort",
    ),
    "a partial sum is of another round": Case(
        {"sum 1 compute-1": changed(round=NOTHING)},
        "the partial sums of round 1: The message belongs to another round",
    ),
    "one of threshold sums too many is off by one": Case(
        {"sum 0 compute-1": off_by_one},
        "the partial sums of round 0: the Compute nodes' partial sums contradict each other",
        of_threshold(),
    ),
    "a node charged the round after its sum": Case(
        {"charge 0 compute-1": changed(entry=examples.PLACE)},
        "the partial sums of round 0: " + CHARGE,
    ),
    "a node's journal was set back between the rounds": Case(
        {"charge 1 compute-1": changed(entry=examples.PLACE.model_copy(update={"number": 4}))},
        "the total of compute-1: the journal of compute-1 charges round 1 before what the node "
        "signed of an earlier one",
    ),
    "a node's journal was set back between its last sum and its total": Case(
        {"total of compute-1": changed(entry=examples.PLACE.model_copy(update={"number": 8}))},
        "the total of compute-1: the journal of compute-1 has the total before what the node "
        "signed of a round",
    ),
    # told by the aggregator
    "a result is of other sums": Case(
        {"result 0": off_by_one}, "the partial sums of round 0: the result is not the total"
    ),
    "a result that no clients could give": Case(
        {"total 0": lambda total: total + 2**60}, "the result of round 0: " + IMPOSSIBLE
    ),
    "a result is over fewer clients than must be": Case(
        {"certificate": lambda body: changed(rounds=SMALL.rounds(body.request))(body)},
        "the result of round 0: the cohort is smaller than minimum_cohort",
    ),
    "a result claims more clients than its sums": Case(
        {"result 0": changed(cohort_size=12)},
        "the partial sums of round 0: a partial sum is over another cohort",
    ),
    "a result rests on the sums of two of three nodes": Case(
        {},
        "the result of round 0: a result rests on the partial sums of 3 Compute nodes",
        replace(TWO_ROUNDS, nodes=(0, 1)),
    ),
    "a threshold result rests on too few sums": Case(
        {},
        "the result of round 0: a result rests on the partial sums of 3 Compute nodes",
        of_threshold(threshold=3, nodes=(0, 1)),
    ),
    "a result names another partial sum": Case(
        {
            "result 0": lambda result: changed(
                partial_sums=(
                    result.partial_sums[0].model_copy(update={"digest": NOTHING}),
                    *result.partial_sums[1:],
                )
            )(result)
        },
        "the partial sums of round 0: the result names other partial sums",
    ),
    "a result is of another round": Case(
        {"result 1": changed(round=NOTHING)},
        "the result of round 1: The message belongs to another round",
    ),
    # told by the trainer, at the end
    "a partial sum is missing": Case(
        {"sums 0": without(1)}, "the partial sums of round 0: the result names other partial sums"
    ),
    "partial sums are out of order": Case(
        {"sums 0": lambda sums: sums[::-1]},
        "the partial sums of round 0: the result names other partial sums",
    ),
    "a partial sum of another job is in place of one": Case(
        {"sums 0": in_place(1, lambda other: other.rounds[0].partial_sums[1])},
        "the partial sums of round 0: The message belongs to another round",
    ),
    "a round of another job is in place of one": Case(
        {"rounds": in_place(0, lambda other: other.rounds[0])},
        "the spec of round 0: the spec is for another job or round",
    ),
    "the last round is left out": Case(
        {"rounds": without(1)}, "the rounds: 1 of the 2 of the job's terms are too few"
    ),
    "the first round is left out": Case(
        {"rounds": without(0)}, "the spec of round 0: the spec is for another job or round"
    ),
    "the report states a lower epsilon": Case(
        {"report": inside("privacy", epsilon=0.5)},
        "the report: the price that it states is not what the rounds cost",
    ),
    "the report states a lower delta": Case(
        {"report": inside("privacy", delta=1e-9)},
        "the report: the price that it states is not what the rounds cost",
    ),
    "the report states a lower mu": Case(
        {"report": inside("privacy", mu=0.01)},
        "the report: the price that it states is not what the rounds cost",
    ),
    "the report names other results": Case(
        {"report": changed(results=(NOTHING, NOTHING))}, "the report: it is not of these rounds"
    ),
    "the report claims larger cohorts": Case(
        {"report": changed(cohort_sizes=(12, 12))}, "the report: it is not of these rounds"
    ),
    "the report claims more Compute nodes": Case(
        {"report": changed(compute_nodes=(5, 5))}, "the report: it is not of these rounds"
    ),
    "the report claims a larger population": Case(
        {"report": changed(population_size=21)}, "the report: it is not of these rounds"
    ),
    "the report claims a smaller population": Case(
        {"report": changed(population_size=11)}, "the report: it is not of these rounds"
    ),
    "the report claims that clients were asked less often": Case(
        {"report": inside("participations", most=1)}, "the report: it is not of these rounds"
    ),
    "the report claims a lost round": Case(
        {"report": changed(lost_rounds=(NOTHING,))}, "the report: it is not of these rounds"
    ),
    "more joined than the job allows": Case(
        {"joined": lambda clients: clients | BitMap(range(100, 200))},
        "the report: its population is smaller or larger than the job allows",
    ),
    "a client was asked who did not join": Case(
        {"certificate": changed(population=encode_clients(range(1, 12)))},
        "the spec of round 0: its population holds clients who did not join",
    ),
    "the rounds are in the wrong order": Case(
        {}, "the spec of round 0: " + OTHER_QUERY, replace(TWO_ROUNDS, queries=(MATRIX, FIRST))
    ),
    "a round is asked twice": Case(
        {}, "the spec of round 1: " + OTHER_QUERY, replace(TWO_ROUNDS, queries=(FIRST, FIRST))
    ),
    "both rounds ask only for the target": Case(
        {},
        "the spec of round 0: the query's columns are not those of the job",
        replace(TWO_ROUNDS, queries=(of_the_target(FIRST), of_the_target(MATRIX))),
    ),
    "the only round asks only for the target": Case(
        {},
        "the spec of round 0: the query's columns are not those of the job",
        replace(ONE_ROUND, queries=(of_the_target(MATRIX),)),
    ),
    "the columns are in another order": Case(
        {},
        "the spec of round 0: the query's columns are not those of the job",
        replace(ONE_ROUND, queries=(asked(columns=MATRIX.columns[::-1]),)),
    ),
    "a query asks whether a value is above a threshold": Case(
        {},
        "the spec of round 0: the query's columns are not centred",
        replace(ONE_ROUND, queries=(first_column(centre=64.5, scale=1e-30),)),
    ),
    "a query asks whether a value is above the middle": Case(
        {},
        "the spec of round 0: the query's scales are not in the range of the job's terms",
        replace(ONE_ROUND, queries=(first_column(scale=1e-30),)),
    ),
    "a query asks with another intercept": Case(
        {},
        "the spec of round 0: the query's intercept is not that of the job's terms",
        replace(ONE_ROUND, queries=(asked(intercept=0.5),)),
    ),
    "a query asks on another grid": Case(
        {},
        "the spec of round 0: the query's grid_bits is not that of the job's terms",
        replace(ONE_ROUND, queries=(asked(grid_bits=15),)),
    ),
    "a query asks with another radius than the task's": Case(
        {},
        "the spec of round 0: the query's radius is not in the range of the job's terms",
        replace(ONE_ROUND, queries=(asked(radius=1.2501),)),
    ),
    "a query asks with another radius than the rule's": Case(
        {},
        "the spec of round 0: the query's radius is not in the range of the job's terms",
        replace(TWO_ROUNDS, queries=(examples.MOMENTS, THRESHOLDS)),
    ),
    "a second round asks whether a value is above the middle": Case(
        {"spec 1": lambda spec: changed(query=steeper(spec.query, 1e-30))(spec)},
        "the spec of round 1: the query's scales are not in the range of the job's terms",
    ),
    "a second round is of other clients than the first": Case(
        {"spec 1": changed(population=encode_clients(BitMap(range(1, 13))))},
        "the spec of round 1: its population holds clients that the round before did not",
    ),
    "a second round opened before the first": Case(
        {"spec 1": earlier},
        "the spec of round 1: it opened before the round before",
    ),
    "a round that the task asks for is missing": Case(
        {},
        "the rounds: 1 of the 2 of the job's terms are too few",
        replace(TWO_ROUNDS, queries=(FIRST,)),
    ),
    "a lost round is left out that a node charged": Case(
        {"total of compute-1": lambda body: changed(rounds=(*body.rounds, NOTHING))(body)},
        "the total of compute-1: compute-1 charged 3 rounds of the job, of which 1 are not shown",
    ),
    "rounds of another telling are in a total": Case(
        {
            "total of compute-1": changed(
                rounds=tuple(each.spec.digest for each in TWO_ROUNDS.make().rounds)
            )
        },
        "the total of compute-1: compute-1 charged 2 rounds of the job, of which 2 are not shown",
        ONE_ROUND,
    ),
    "a node's total is smaller than what it summed": Case(
        {"total of compute-2": lambda body: changed(rounds=body.rounds[:1])(body)},
        "the total of compute-2: compute-2 charged round 1 as another of the job's",
    ),
    "a node's total is empty": Case(
        {"total of compute-0": changed(rounds=())},
        "the total of compute-0: compute-0 charged round 0 as another of the job's",
    ),
    "a node's total names a round twice": Case(
        {"total of compute-0": lambda body: changed(rounds=(*body.rounds, body.rounds[0]))(body)},
        "the total of compute-0: it names a round twice, or not in order",
    ),
    "a node's total is of another job": Case(
        {"total of compute-0": changed(job=NOTHING)},
        "the total of compute-0: it is another job's",
    ),
    "another job's totals are in place of its own": Case(
        {"totals": lambda _: OTHER_JOB.make().totals},
        "the total of compute-0: it is another job's",
    ),
    "a node's total is left out": Case(
        {"totals": without(1)},
        "the totals: compute-1 has not signed how many rounds of the job it charged",
    ),
    "all totals are left out": Case(
        {"totals": lambda _: ()},
        "the totals: compute-0 has not signed how many rounds of the job it charged",
    ),
    "a node's total is signed by another": Case(
        {
            "totals": lambda totals: (
                replace(totals[0], signature=totals[1].signature),
                *totals[1:],
            )
        },
        "the total of compute-0: The signature does not verify",
    ),
    "the totals are in another order": Case(
        {"totals": lambda totals: totals[::-1]},
        "the totals: there is not one of each Compute node, in order",
    ),
    "a node's total is there twice": Case(
        {"totals": lambda totals: (*totals, totals[0])},
        "the totals: there is not one of each Compute node, in order",
    ),
    "a node's entry counts fewer rounds of the job": Case(
        {"charge 1 compute-1": changed(job_rounds=1)},
        "the total of compute-1: compute-1 charged round 1 as another of the job's",
    ),
    "a node's entry counts a round more than there were": Case(
        {"charge 1 compute-1": changed(job_rounds=3)}, f"the partial sums of round 1: {CHARGE}"
    ),
    "a node that summed nothing has no total": Case(
        {"totals": without(1)},
        "the totals: compute-1 has not signed how many rounds of the job it charged",
        MAKINGS["threshold, two of three sums"],
    ),
    "another job's request is in place of its own": Case(
        {"certificate": lambda body: changed(request=OTHER_JOB.make().request)(body)},
        "the spec of round 0: the spec is for another job or round",
    ),
    "another job's report is in place of its own": Case(
        {"certificate": lambda body: changed(report=OTHER_JOB.make().report)(body)},
        "the total of compute-0: compute-0 signed its total for another report of the job",
    ),
    "the trainer signs another report after a node's total": Case(
        {"total of compute-1": changed(report=NOTHING)},
        "the total of compute-1: compute-1 signed its total for another report of the job",
    ),
    "the report states another record": Case(
        {"report": changed(record=NOTHING)}, "the report: it is not of these rounds"
    ),
    "a manifest version is left out": Case(
        {"certificate": changed(earlier_manifests=())},
        "its manifest versions are not those of its documents",
        MAKINGS["manifest changed between the rounds"],
    ),
    "a manifest version in between is left out": Case(
        {"certificate": lambda body: changed(earlier_manifests=body.earlier_manifests[:1])(body)},
        "its manifest versions are not those of its documents",
        MAKINGS["manifest changed twice"],
    ),
    "a manifest version that nothing needs is put in": Case(
        {"certificate": changed(earlier_manifests=(examples.CONSORTIUM.signed_manifest,))},
        "its manifest versions are not those of its documents",
        replace(TWO_ROUNDS, consortia=(CHANGED,), job=UNDER_CHANGED),
    ),
}


def told(case: Case) -> tuple[bytes, bytes]:
    making = replace(case.making, lies=case.lies)
    return making.encode(), making.manifest


@pytest.mark.parametrize("name", LIES)
def test_a_lie_that_its_author_signed_is_found(name: str) -> None:
    encoded, manifest = told(LIES[name])
    with pytest.raises(RefusedCertificate) as refused:
        verify_certificate(encoded, manifest)
    assert str(refused.value).startswith(LIES[name].said)


TOO_FEW_COLLUDERS = under(
    examples.consortium(policy=examples.POLICY.model_copy(update={"colluding_holders": 4}))
)
LIES_ABOUT_HOLDERS = {
    "fewer colluders than the largest data holders have slots": (
        TOO_FEW_COLLUDERS,
        "the spec of round 0: colluders must be at least 4",
    ),
    "a smallest answer that is larger than the smallest": (
        replace(ONE_ROUND, lies={"spec 0": changed(smallest_answer=2)}),
        "the spec of round 0: smallest_answer is not the fewest slots",
    ),
}


@pytest.mark.parametrize("name", LIES_ABOUT_HOLDERS)
def test_a_lie_about_data_holders_is_found_by_whoever_has_the_roster(name: str) -> None:
    making, said = LIES_ABOUT_HOLDERS[name]
    with patch.object(round_spec, "check_holders"):  # whoever made the spec did not check it
        encoded = making.encode()
    with pytest.raises(RefusedCertificate) as refused:
        verify_certificate(encoded, making.manifest, known=making.consortia)
    assert str(refused.value).startswith(said)
    verified = verify_certificate(encoded, making.manifest)
    assert not verified.holders_known
    assert OWNERS in certificate_facts(verified)["not_shown"]


def test_with_a_roster_nothing_remains_open_about_data_holders() -> None:
    verified = verify_certificate(ONE_ROUND.encode(), ONE_ROUND.manifest, known=ONE_ROUND.consortia)
    assert verified.holders_known
    assert OWNERS not in certificate_facts(verified)["not_shown"]


EXTREMES = (0, 1, -1, 2, 2**53 - 1, 0.5, 5e-324, 1e-300, 1e300, 1.7e308)


def with_extremes(wire: Any, kind: type[Document]) -> Iterator[Any]:
    """Yield bodies that differ in one number, as far as they can be read at all."""
    for path in paths(wire):
        value = at_path(wire, path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            for extreme in EXTREMES:
                try:
                    yield kind.model_validate(replaced(wire, path, extreme))
                except pydantic.ValidationError:
                    continue


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two rounds", "pure epsilon", "threshold, all sums"])
def test_a_spec_with_a_number_beyond_reason_is_refused_and_nothing_worse(name: str) -> None:
    making = MAKINGS[name]
    honest = making.make()
    first, *others = honest.rounds
    tried = 0
    for spec in with_extremes(first.spec.body.model_dump(mode="json"), RoundSpec):
        if spec == first.spec.body:
            continue
        rounds = (changed(spec=examples.named("trainer", spec))(first), *others)
        forged = changed(rounds=rounds)(honest)
        with pytest.raises(RefusedCertificate):
            verify_certificate(forged.encode(), making.manifest)
        tried += 1
    assert tried > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two rounds", "pure epsilon", "threshold, all sums"])
def test_a_request_with_a_number_beyond_reason_is_refused_and_nothing_worse(name: str) -> None:
    making = MAKINGS[name]
    honest = making.make()
    tried = 0
    for request in with_extremes(honest.request.body.model_dump(mode="json"), StudyRequest):
        if request == honest.request.body:
            continue
        lie = changed(request=examples.named("analyst", request))
        with pytest.raises(RefusedCertificate):
            verify_certificate(lie(honest).encode(), making.manifest)
        tried += 1
    assert tried > 30
