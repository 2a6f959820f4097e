"""Made-up jobs with everything that is signed of them; each part can be made a lie before signing.

What comes after a lie is made from it, and signed by the right party: so only the check that is
meant for the lie can find it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_protocol.certificates.release_certificate import CertifiedRound, ReleaseCertificate
from shoal_protocol.jobs.totals import JobTotal, nodes_of
from shoal_protocol.queries import Query
from shoal_protocol.rounds.attestations import (
    PartialSum,
    PartialSumReference,
    Result,
    cohort_digest,
)
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.sharing.shares import to_ring
from shoal_protocol.trust.manifest import AUTHORITY_NAME, AuthorityMove, Consortium, Manifest
from shoal_protocol.trust.succession import following_version, move_message
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.vectors import encode_uint64
from shoal_studies.catalogue.linear_regression import (
    LinearRegressionTask,
    Thresholds,
    query_for,
    thresholds_for,
)
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import StudyRequest
from tests.world import examples
from tests.world.adding import added
from tests.world.examples import PLACE

FIRST = query_for(examples.TASK, len(examples.POPULATION), ())
_SHARES = {1: (1.0,), 2: (0.2, 0.8), 3: (0.1, 0.2, 0.7)}
THRESHOLDS = next(thresholds_for(examples.TASK))
PLAIN_TASK = examples.TASK.model_copy(update={"method": "plain", "radius": 1.25})
Lie = Callable[[Any], Any]
"""Takes what is about to be signed in the place that it is planted at, and returns another."""


@dataclass(frozen=True)
class Making:
    """How a certificate is made. `lies` are planted by place, such as "sum 0 compute-1"."""

    consortia: Sequence[Consortium] = (examples.CONSORTIUM,)  # of request, then of each round
    job: StudyRequest = examples.JOB
    queries: Sequence[Any] = (FIRST, THRESHOLDS)  # None or thresholds: on what was released before
    cohorts: Sequence[BitMap] = (examples.COHORT, examples.COHORT)
    between: Sequence[Consortium] = ()  # versions that no document is bound to
    nodes: Sequence[int] | None = None  # whose sums the results rest on; None: all
    lies: Mapping[str, Lie] = field(default_factory=dict)
    _made: list[RoundSpec] = field(default_factory=list, init=False, compare=False)
    _released: list[ReleasedSum] = field(default_factory=list, init=False, compare=False)

    def of_round(self, number: int) -> Consortium:
        return self.consortia[min(number, len(self.consortia) - 1)]

    @property
    def manifest(self) -> bytes:
        """Return the manifest.json by which the certificate is to be checked."""
        return self.of_round(len(self.queries) - 1).signed_manifest.encode()

    def said(self, place: str, body: Any) -> Any:
        return self.lies.get(place, lambda honest: honest)(body)

    def signed(self, place: str, name: str, body: Any) -> Signed[Any]:
        return examples.named(name, self.said(place, body))

    def make(self) -> ReleaseCertificate:
        """Return the certificate."""
        request = self.signed("request", "analyst", self.job)
        rounds = self.rounds(request)
        joined = self.said("joined", BitMap.union(*(each.spec.body.clients() for each in rounds)))
        report = self.signed("report", "trainer", _report(request, rounds, joined))
        versions = {each.digest: each for each in (*self.consortia, *self.between)}
        body = ReleaseCertificate.of(
            request,
            self.said("rounds", rounds),
            [],
            self.said("totals", self.totals(request, rounds, report.digest)),
            report,
            population=joined,
            version=versions.__getitem__,
        )
        made: ReleaseCertificate = self.said("certificate", body)
        return made

    def totals(
        self, request: Signed[StudyRequest], rounds: Sequence[CertifiedRound], report: str
    ) -> tuple[Signed[JobTotal], ...]:
        """Return what each node signed of these rounds: those that it summed."""
        versions = [*self.consortia, *self.between]
        versions.sort(key=lambda each: each.manifest.sequence)
        return tuple(
            self.signed(
                f"total of {node}",
                node,
                JobTotal(
                    manifest=next(
                        each.digest
                        for each in reversed(versions)
                        if node in [one.name for one in each.manifest.compute_nodes]
                    ),
                    entry=examples.LINK,
                    job=request.digest,
                    node=node,
                    rounds=tuple(
                        each.spec.digest
                        for each in rounds
                        if node in [one.body.node for one in each.partial_sums]
                    ),
                    report=report,
                ),
            )
            for node in nodes_of(versions)
        )

    def rounds(self, request: Signed[StudyRequest]) -> tuple[CertifiedRound, ...]:
        """Return the job's rounds as they are certified."""
        for each in (self._made, self._released):
            each.clear()
        return tuple(self._round(number, request) for number in range(len(self.queries)))

    def encode(self) -> bytes:
        """Return the certificate's file."""
        return self.make().encode()

    def _round(self, number: int, request: Signed[StudyRequest]) -> CertifiedRound:
        self._made.append(self._spec(number, request))
        spec = self.signed(f"spec {number}", "trainer", self._made[number])
        cohort = {
            "cohort": cohort_digest(spec.digest, examples.held(self.cohorts[number])),
            "cohort_size": len(self.cohorts[number]),
        }
        total = self.said(f"total {number}", made_up_total(spec.body))
        sums = self._sums(number, spec.body, total, cohort)
        result = Result(
            manifest=spec.body.manifest,
            round=spec.digest,
            values=encode_uint64(to_ring(total)),
            partial_sums=tuple(
                PartialSumReference(node=each.body.node, digest=each.digest) for each in sums
            ),
            **cohort,
            entry=PLACE,
        )
        self._released.append(ReleasedSum.of(self._made[number], result))
        return CertifiedRound(
            spec=spec,
            result=self.signed(f"result {number}", "aggregator", result),
            partial_sums=self.said(f"sums {number}", tuple(sums)),
        )

    def _spec(self, number: int, request: Signed[StudyRequest]) -> RoundSpec:
        body = request.body
        shares = _SHARES[len(self.queries)]
        opened_at = examples.OPENED_AT + timedelta(minutes=5 * number)
        deadline = opened_at + timedelta(seconds=body.round_seconds)
        return make_spec(
            manifest=self.of_round(number),
            job=request.digest,
            number=number,
            query=self._query(number, body.task),
            mechanism=body.privacy.mechanism,
            cost=body.privacy.cap.part(shares[number]),
            population=self.said("population", examples.POPULATION),
            dropouts=body.privacy.dropouts,
            colluders=body.privacy.colluders,
            opened_at=opened_at,
            deadline=deadline,
            give_up_at=deadline + timedelta(seconds=body.grace_seconds),
            sharing=body.sharing,
        )

    def _query(self, number: int, task: LinearRegressionTask) -> Query:
        planned = self.queries[number]
        if planned is not None and not isinstance(planned, Thresholds):
            return planned
        return query_for(task, len(examples.POPULATION), self._released, planned)

    def _sums(
        self, number: int, spec: RoundSpec, total: np.ndarray, cohort: Mapping[str, Any]
    ) -> list[Signed[PartialSum]]:
        count = len(spec.compute_nodes)
        shares = spec.sharing.split(
            spec.sharing.encode(total),
            holder=number,
            nodes=count,
            random_bytes=examples.random_bytes(f"blinding of round {number}"),
        )
        sums = []
        for node in range(count) if self.nodes is None else self.nodes:
            name = spec.compute_nodes[node]
            body = PartialSum(
                manifest=spec.manifest,
                round=spec.digest,
                node=name,
                values=encode_uint64(added(spec.sharing, [shares[node]], spec.dimension)),
                charge=self.said(
                    f"charge {number} {name}", examples.charge(spec, name, number=4 * number + 1)
                ),
                **cohort,
                entry=PLACE.model_copy(update={"number": 4 * number + 4}),
            )
            sums.append(self.signed(f"sum {number} {name}", name, body))
        return sums


def _report(
    request: Signed[StudyRequest], rounds: Sequence[CertifiedRound], joined: BitMap
) -> PosteriorReport:
    return PosteriorReport.of(
        request.body, rounds, [], population=joined, posterior=examples.POSTERIOR, entry=PLACE
    )


def made_up_total(spec: RoundSpec) -> np.ndarray:
    """Return a sum that a round may well have, shape (d,)."""
    return np.arange(spec.dimension, dtype=np.int64) * 1000 - 77


def under(consortium: Consortium) -> Making:
    """Return how a job of one round is certified under another manifest."""
    job = ONE_ROUND.job.model_copy(update={"manifest": consortium.digest})
    return replace(ONE_ROUND, consortia=(consortium,), job=job)


def changed(**fields: Any) -> Lie:
    """Return the lie that is the truth but for these fields."""
    return lambda body: body.model_copy(update=fields)


def successor(before: Consortium, **changes: Any) -> Consortium:
    """Return the next manifest version, with `changes`."""
    links = {"sequence": before.manifest.sequence + 1, "previous": before.digest}
    body = Manifest.model_validate(before.manifest.model_dump() | links | changes)
    signed = sign(body, AUTHORITY_NAME, examples.AUTHORITY)
    return following_version(before, signed.encode(), before.roster.encode())


def handed_over(before: Consortium, heir: SigningKey) -> Consortium:
    """Return the next manifest version, by which the authority hands over to the key of an heir."""
    links = {"sequence": before.manifest.sequence + 1, "previous": before.digest}
    keys = {"founder": before.manifest.identity, "authority": bytes(heir.verify_key).hex()}
    draft = Manifest.model_validate(before.manifest.model_dump() | links | keys)
    consent = examples.AUTHORITY.sign(move_message(draft)).signature.hex()
    body = draft.model_copy(update={"move": AuthorityMove(by="authority", signature=consent)})
    return following_version(
        before, sign(body, AUTHORITY_NAME, heir).encode(), before.roster.encode()
    )


def of_threshold(*, threshold: int = 2, **changes: Any) -> Making:
    """Return a job of one round, of which `threshold` nodes' sums are enough."""
    sharing = ThresholdSharing(threshold=threshold)
    return Making(
        consortia=(examples.THRESHOLD_CONSORTIUM,),
        job=examples.asking(examples.THRESHOLD_JOB, task=PLAIN_TASK, sharing=sharing),
        queries=(examples.MATRIX,),
        **changes,
    )


TWO_ROUNDS = Making()
ONE_ROUND = Making(job=examples.asking(task=PLAIN_TASK), queries=(examples.MATRIX,))
CHANGED = successor(
    examples.CONSORTIUM, policy=examples.POLICY.model_copy(update={"minimum_cohort": 9})
)
PURE = examples.consortium(
    policy=examples.POLICY.model_copy(update={"mechanisms": ("discrete_laplace",), "delta": 0.0})
)
OF_PURE_EPSILON = Making(
    consortia=(PURE,),
    job=examples.JOB.model_copy(
        update={
            "manifest": PURE.digest,
            "privacy": examples.JOB.privacy.model_copy(update={"delta": 0.0}),
        }
    ),
)
MAKINGS = {
    "pure epsilon": OF_PURE_EPSILON,
    "one round": ONE_ROUND,
    "two rounds": TWO_ROUNDS,
    "threshold, all sums": of_threshold(),
    "threshold, two of three sums": of_threshold(nodes=(0, 2)),
    "manifest changed between the rounds": Making(consortia=(examples.CONSORTIUM, CHANGED)),
    "manifest changed twice": Making(
        consortia=(examples.CONSORTIUM, successor(CHANGED)), between=(CHANGED,)
    ),
}
