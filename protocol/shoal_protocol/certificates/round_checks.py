"""Checks a certificate's rounds in order: each against its job, its manifest and earlier rounds.

Each round also passes the checks that every party made while the round ran.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from pyroaring import BitMap

from shoal_protocol.certificates.release_certificate import (
    CertifiedRound,
    LostRound,
    ReleaseCertificate,
)
from shoal_protocol.certificates.study_request import check_round_of_study
from shoal_protocol.privacy.ledger_checks import check_charge
from shoal_protocol.privacy.participation import Participation
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.rounds.batches import check_batch
from shoal_protocol.rounds.outcomes import check_abandonment, check_partial_sums, check_result
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.rounds.spec_checks import check_holders, check_terms
from shoal_protocol.trust.manifest import Parties
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.errors import ProtocolError, RefusedSpec, UnknownManifest
from shoal_protocol.wire.service_errors import RefusedCertificate, WrongCharge


@contextmanager
def about(part: str) -> Iterator[None]:
    """Name the part of the certificate in which something is wrong."""
    try:
        yield
    except ProtocolError as error:
        raise RefusedCertificate(f"{part}: {error}") from error


def version_of(versions: Mapping[str, Parties], digest: str) -> Parties:
    """Return the parties of a manifest version that the certificate holds.

    Raises:
        UnknownManifest
    """
    try:
        return versions[digest]
    except KeyError:
        raise UnknownManifest("it is bound to a manifest that the certificate lacks") from None


def check_rounds(
    certificate: ReleaseCertificate,
    versions: Mapping[str, Parties],
    rosters: Mapping[str, Roster],
) -> bool:
    """Refuse rounds that are not those of the job, from number 0 on without gaps.

    `rosters` are those of manifest versions, by digest, as far as known. Tell whether one had all
    slots, so that the noise against the largest data holders was checked, too.

    Raises:
        RefusedCertificate: the detail names the round.
    """
    with about("the population"):
        population = decode_clients(certificate.population)
    follower = _Follower(certificate, population, versions, rosters)
    for number, each in enumerate(certificate.all_rounds):
        follower.take(number, each)
    released, task = len(certificate.rounds), certificate.request.body.task
    if released < task.rounds - certificate.request.body.spare_rounds:
        raise RefusedCertificate(
            f"the rounds: {released} of the {task.rounds} that the job's task asks are too few"
        )
    return follower.knows_owners


class _Follower:
    """State of the rounds checked so far, against which the next one is checked."""

    def __init__(
        self,
        certificate: ReleaseCertificate,
        population: BitMap,
        versions: Mapping[str, Parties],
        rosters: Mapping[str, Roster],
    ) -> None:
        self._rosters = rosters
        # a slot keeps its data holder for ever, so that any roster that has the slots will do
        covering = [each for each in rosters.values() if population.max() < len(each)]
        self._owned_by = covering[0] if covering else None
        self._request = certificate.request.body
        self._versions = versions
        self._participation = Participation(population)
        self._sums: list[ReleasedSum] = []
        self._before: RoundSpec | None = None
        self._gone = BitMap()  # clients who joined and left since

    @property
    def knows_owners(self) -> bool:
        """Tell whether a roster says whose slots the population's are."""
        return self._owned_by is not None

    def take(self, number: int, each: CertifiedRound | LostRound) -> None:
        """Check the next round.

        Raises:
            RefusedCertificate
        """
        spec = each.spec.body
        with about(f"the spec of round {number}"):
            parties = version_of(self._versions, spec.manifest)
            parties.verify(each.spec)
            check_terms(spec, parties.manifest)
            if spec.number != number:
                raise RefusedSpec("the spec is for another job or round")
            self._check_asked(spec)
            check_round_of_study(
                spec,
                self._request,
                spent=self._participation.largest(spec.clients()),
                earlier=self._sums,
            )
        if isinstance(each, CertifiedRound):
            with about(f"the result of round {number}"):
                check_result(each.result, spec, parties)
            with about(f"the partial sums of round {number}"):
                check_partial_sums(each.partial_sums, each.result.body, spec, parties)
            self._sums.append(ReleasedSum.of(spec, each.result.body))
        elif each.abandonment is not None:
            with about(f"the abandonment of round {number}"):
                check_abandonment(each.abandonment, spec, parties)
        with about(f"the trainer's ledger entry of round {number}"):
            check_charge(each.charge, spec, node=parties.manifest.trainer.name)
            if each.charge.job_rounds != number + 1:
                raise WrongCharge("it is not the trainer's charge of the job's next round")
        self._participation.add(spec.clients(), spec.cost)
        self._before = spec

    def _check_asked(self, spec: RoundSpec) -> None:
        """Refuse a round that asks clients out of turn, or opens before the one before it."""
        before, asked, everybody = self._before, spec.clients(), self._participation.population
        if before is not None and spec.opened_at < before.opened_at:
            # not after its deadline: a round is decided as soon as all have answered
            raise RefusedSpec("it opened before the round before")
        task, roster = self._request.task, self._rosters.get(spec.manifest)
        known = None if roster is None else roster.enrolled_set
        most, owned_by = task.participations(len(everybody)), self._owned_by
        if known is not None:
            self._gone = everybody - known
        if owned_by is not None:
            policy = self._versions[spec.manifest].manifest.policy
            check_holders(AskedHolders.of(asked, owned_by), policy, spec)
        if task.batch is not None and owned_by is None:
            places = self._participation.places(asked)
            if len(asked) != task.batch or (self._participation.rounds[places] >= most).any():
                raise RefusedSpec("it asks too many or too few, or somebody too often")
        elif task.batch is not None and owned_by is not None:
            self._gone = check_batch(
                asked,
                self._participation,
                self._gone,
                owned_by.owners_of(np.asarray(everybody.to_array())),
                job=spec.job,
                size=task.batch,
                most=most,
                # without a roster: who left with an earlier version shows only when its turn comes
                may_leave=known is None and spec.manifest != self._request.manifest,
            )
        elif known is not None and asked != everybody - self._gone:
            raise RefusedSpec("it does not ask all who joined and are enrolled")
        elif before is None and not asked.issubset(everybody):
            raise RefusedSpec("its population holds clients who did not join")
        elif before is not None and not asked.issubset(before.clients()):
            raise RefusedSpec("its population holds clients that the round before did not")
