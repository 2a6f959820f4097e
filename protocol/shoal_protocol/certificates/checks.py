"""Checks a release certificate offline, by one version of the manifest that the reader trusts.

The check cannot tell whether clients exist, whether their records are true, or whether the
posterior was computed well from the sums (which costs no privacy; `shoal_studies.replay` computes
it again). With the rosters, it also tells
whether clients that a round left out had left the consortium. Rounds
are checked in order, each against its job, its manifest and earlier rounds, and by the checks that
every party made while it ran.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyroaring import BitMap

from shoal_protocol.certificates.release_certificate import (
    CertifiedRound,
    JobReport,
    LostRound,
    ReleaseCertificate,
    read_certificate,
    sums_of,
)
from shoal_protocol.jobs.job_request import check_job, check_round_of_job
from shoal_protocol.jobs.totals import check_total, nodes_of
from shoal_protocol.privacy.job_costs import Participation
from shoal_protocol.rounds.batches import SPARE, check_batch, participations
from shoal_protocol.rounds.outcomes import (
    check_abandonment,
    check_partial_sums,
    check_result,
)
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec, check_holders, check_terms
from shoal_protocol.trust.manifest import (
    Consortium,
    ListedParty,
    Manifest,
    Parties,
)
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.succession import check_believed, check_successor
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    RefusedSpec,
    UnknownManifest,
)
from shoal_protocol.wire.service_errors import RefusedCertificate

_WHERE = "Each party, and the consortium's directory in history, keeps all versions"


class LinkedVersions:
    """Those of the versions at hand that link to the `trusted` one, `by_digest`, oldest first.

    The digests in them vouch for those before the trusted one. Of those after it the authority's
    signature is not enough: parties must believe them. Of several copies of a version, which may
    differ in signature and proof, one that holds is enough.
    """

    def __init__(self, trusted: Signed[Manifest], at_hand: Iterable[Signed[Manifest]]) -> None:
        """Link what is `at_hand`, of which nothing need be verified.

        Raises:
            WrongSigner, BadSignature: the authority did not sign the trusted version.
        """
        self._trusted = Parties.of(trusted, authority=trusted.body.authority)
        copies = sorted([*at_hand, trusted], key=lambda each: each.body.sequence)
        self._at_hand = {each.digest: each.body for each in copies}
        self._refused: dict[str, ProtocolError] = {}
        earlier = [self._trusted]
        for signed in reversed(copies):
            if signed.digest == earlier[0].manifest.previous:
                try:
                    before = Parties.of(signed, authority=signed.body.authority)
                    check_successor(before, earlier[0].signed_manifest)
                except ProtocolError as error:
                    self._refused[signed.digest] = error
                else:
                    earlier.insert(0, before)
        self._oldest = earlier[0].manifest
        self.by_digest = {each.digest: each for each in earlier}
        believed = {trusted.digest: self._trusted}
        for signed in copies:
            found = believed.get(signed.body.previous or "")
            if found is not None and signed.digest not in believed:
                try:
                    check_successor(found, signed)
                    check_believed(found, signed.body, signed.countersignatures)
                except ProtocolError as error:
                    self._refused[signed.digest] = error
                else:
                    believed[signed.digest] = Parties(signed)
        self.by_digest |= believed

    def line_of(self, digest: str) -> tuple[list[Parties], list[Parties]]:
        """Return what leads to the version of a digest, and then itself with what follows it.

        Both oldest first. A version of another branch than this one's is in neither.

        Raises:
            UnknownManifest: it does not link, for lack of a version; the detail says which.
            RefusedCertificate: it does not link; the detail names the version that is wrong.
        """
        if digest not in self.by_digest:
            raise self._unlinked(digest)
        later = {digest: self.by_digest[digest]}
        earlier: list[Parties] = []
        for each in reversed(self.by_digest.values()):
            if each.digest == (earlier[0] if earlier else later[digest]).manifest.previous:
                earlier.insert(0, each)
        for each in self.by_digest.values():
            if each.manifest.previous in later:
                later[each.digest] = each
        return earlier, list(later.values())

    def refuse_strangers(self, known: Sequence[Consortium]) -> None:
        """Refuse versions with rosters that are no part of the trusted version's history.

        Versions after the trusted one that are not believed yet may be among them.

        Raises:
            UnknownManifest: whether they are cannot be told, for lack of a version.
            ValueError: they are not.
        """
        trusted, oldest = self._trusted.manifest, self._oldest.sequence
        lost = [
            each.manifest.sequence
            for each in known
            if each.digest not in self.by_digest and each.manifest.sequence <= trusted.sequence
        ]
        if lost and max(lost) < oldest - 1:
            raise UnknownManifest(
                f"you trust {self._own}, and the consortium's versions that came with rosters end "
                f"with {max(lost)}: version {oldest - 1}, between them, is not at hand. {_WHERE}"
            )
        if lost:
            raise ValueError(
                "the versions of the manifest that came with rosters are of another consortium, or "
                f"of another history, than the one that you trust, {self._own}: their version "
                f"{max(lost)} does not link to it. Give the directory of that consortium"
            )

    @property
    def _own(self) -> str:
        return f"version {self._trusted.manifest.sequence}, {self._trusted.digest}"

    def _unlinked(self, digest: str) -> ProtocolError:
        sought, trusted = self._at_hand.get(digest), self._trusted.manifest
        if sought is None:
            numbers = sorted({each.sequence for each in self._at_hand.values()})
            return UnknownManifest(
                f"it is bound to the manifest {digest}, which is not at hand. You trust "
                f"{self._own}, and these versions are at hand: {', '.join(map(str, numbers))}. "
                f"{_WHERE}. If none of them has that digest, the certificate is of another "
                "consortium, or forged"
            )
        lowest, highest = sorted((sought.sequence, trusted.sequence))
        between = [each for each in self._at_hand.values() if lowest <= each.sequence <= highest]
        for each in between:
            if each.digest in self._refused and each.digest not in self.by_digest:
                why = self._refused[each.digest]
                return RefusedCertificate(f"version {each.sequence} of the manifest: {why}")
        missing = set(range(lowest + 1, highest)) - {each.sequence for each in between}
        if missing:
            return UnknownManifest(
                f"it is bound to version {sought.sequence} of the manifest, {digest}, and you "
                f"trust {self._own}, but version {max(missing)}, between them, is not at hand. "
                f"{_WHERE}"
            )
        return RefusedCertificate(
            f"version {sought.sequence} of the manifest: it does not link to the one that you trust"
        )


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
    released, due = len(certificate.rounds), certificate.request.body.terms.rounds
    if released < due - due // SPARE:
        raise RefusedCertificate(
            f"the rounds: {released} of the {due} of the job's terms are too few"
        )
    return follower.owned_by is not None


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
        self.owned_by = covering[0] if covering else None
        self._request = certificate.request.body
        self._versions = versions
        self._participation = Participation(population)
        self._before: RoundSpec | None = None
        self._gone = BitMap()  # clients who joined and left since

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
            check_round_of_job(
                spec, self._request, spent=self._participation.largest(spec.clients())
            )
        if isinstance(each, CertifiedRound):
            with about(f"the result of round {number}"):
                check_result(each.result, spec, parties)
            with about(f"the partial sums of round {number}"):
                check_partial_sums(each.partial_sums, each.result.body, spec, parties)
        elif each.abandonment is not None:
            with about(f"the abandonment of round {number}"):
                check_abandonment(each.abandonment, spec, parties)
        self._participation.add(spec.clients(), spec.cost)
        self._before = spec

    def _check_asked(self, spec: RoundSpec) -> None:
        """Refuse a round that asks clients out of turn, or opens before the one before it."""
        before, asked, everybody = self._before, spec.clients(), self._participation.population
        if before is not None and spec.opened_at < before.opened_at:
            # not after its deadline: a round is decided as soon as all have answered
            raise RefusedSpec("it opened before the round before")
        terms, roster = self._request.terms, self._rosters.get(spec.manifest)
        known = None if roster is None else roster.enrolled_set
        most = participations(terms.rounds, terms.batch, len(everybody))
        owned_by = self.owned_by
        if known is not None:
            self._gone = everybody - known
        if owned_by is not None:
            policy = self._versions[spec.manifest].manifest.policy
            check_holders(AskedHolders.of(asked, owned_by), policy, spec)
        if terms.batch is not None and owned_by is None:
            places = self._participation.places(asked)
            if len(asked) != terms.batch or (self._participation.rounds[places] >= most).any():
                raise RefusedSpec("it asks too many or too few, or somebody too often")
        elif terms.batch is not None and owned_by is not None:
            self._gone = check_batch(
                asked,
                self._participation,
                self._gone,
                owned_by.owners_of(np.asarray(everybody.to_array())),
                job=spec.job,
                size=terms.batch,
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


_TOLERANCE: Final = 1e-9  # relative, as for the price in a spec


@dataclass(frozen=True)
class Verified:
    """A certificate that holds: `parties` are those of the version that it is bound to.

    `trusted` is the version that the reader gave: the same, or one before or after it.
    """

    certificate: ReleaseCertificate
    parties: Parties
    trusted: Parties
    versions: Mapping[str, Parties]  # all that are in the certificate, by digest
    all_rosters: bool  # were at hand: who was left out of a round had left the consortium
    holders_known: bool  # the noise was checked against the largest data holders

    def signer(self, signed: Signed[Any]) -> ListedParty:
        """Return who signed a document in the certificate."""
        return self.versions[signed.body.manifest].party(signed.signer)


def verify_certificate(
    encoded: bytes,
    manifest: bytes,
    *,
    known: Sequence[Consortium] = (),
    history: Sequence[Signed[Manifest]] = (),
) -> Verified:
    """Check everything in a certificate that can be checked offline.

    `encoded` and `manifest` are files, byte for byte; `encoded` may be compressed. Whether
    `manifest` is the right one is for the reader to say, who compares its digest with one from
    another source. The certificate may be bound to a version before or after it, which is then
    looked for in `history` and among `known`, with all between the two: each must follow the one
    before it, and those after `manifest` must be believed as parties demand it. Every Compute node
    of these versions must have signed its total of the job with the digest of this very report, so
    that another certificate of the job holds only if all of them lie.

    `known` are versions of which the reader has the rosters: their rounds must ask all whose turn
    it was and who were enrolled; of another version's, who was left out may have left. Without any
    roster that has the clients whose slots are whose remains open, and so which batch was due,
    whether the colluders cover the largest data holders, and whether the smallest answer, priced
    by, is the smallest.

    Raises:
        RefusedCertificate: the detail names the part that is wrong, and why.
        UnknownManifest: a version that is needed to tell is not at hand; the detail says which.
        ValueError: `known` are of another consortium or another history than `manifest`.
    """
    with about("the certificate"):
        certificate = read_certificate(encoded)
    with about("the manifest"):
        trusted = decode(manifest, Manifest)
        rostered = [each.signed_manifest for each in known]
        at_hand = [*certificate.earlier_manifests, *history, *rostered]
        linked = LinkedVersions(trusted, at_hand)
    linked.refuse_strangers(known)
    earlier, [parties, *later] = linked.line_of(certificate.manifest)
    versions = _spanned([*earlier, parties], certificate)
    _check_request(certificate, versions)
    line = {each.digest for each in (*earlier, parties, *later)}
    rosters = {each.digest: each.roster for each in known if each.digest in line}
    holders_known = check_rounds(certificate, versions, rosters)
    _check_totals(certificate, versions)
    _check_report(certificate, versions)
    asked_under = {each.spec.body.manifest for each in certificate.all_rounds}
    all_rosters = asked_under <= rosters.keys()
    return Verified(
        certificate,
        parties,
        linked.by_digest[trusted.digest],
        versions,
        all_rosters,
        holders_known,
    )


def _spanned(line: Sequence[Parties], certificate: ReleaseCertificate) -> dict[str, Parties]:
    """Return the manifest versions that the job spans, oldest first, by digest.

    `line` leads to the version of the last round.

    Raises:
        RefusedCertificate: they are not those that the certificate has.
    """
    named = [*(each.digest for each in certificate.earlier_manifests), certificate.manifest]
    spanned = {each.digest: each for each in line[-len(named) :]}
    if [*spanned] != named or named[0] != certificate.request.body.manifest:
        raise RefusedCertificate("its manifest versions are not those of its documents")
    return spanned


def _check_request(certificate: ReleaseCertificate, versions: Mapping[str, Parties]) -> None:
    request = certificate.request
    with about("the job request"):
        parties = version_of(versions, request.body.manifest)
        parties.verify(request)
        check_job(request.body, parties.manifest)


def _check_totals(certificate: ReleaseCertificate, versions: Mapping[str, Parties]) -> None:
    """Refuse a certificate that lacks a round which a node charged, or a node's total of it."""
    rounds = [each.spec.digest for each in certificate.all_rounds]
    signed = {each.signer: each for each in certificate.totals}
    needed = nodes_of(list(versions.values()))
    for node in needed:
        if node not in signed:
            raise RefusedCertificate(
                f"the totals: {node} has not signed how many rounds of the job it charged"
            )
        with about(f"the total of {node}"):
            check_total(
                signed[node],
                version_of(versions, signed[node].body.manifest),
                job=certificate.job,
                rounds=rounds,
                report=certificate.report.digest,
                sums=sums_of(certificate.rounds, node),
            )
    if [each.signer for each in certificate.totals] != needed:
        raise RefusedCertificate("the totals: there is not one of each Compute node, in order")


def _check_report(certificate: ReleaseCertificate, versions: Mapping[str, Parties]) -> None:
    """Refuse a report that is not of exactly these rounds, or states another price for them."""
    request, signed = certificate.request.body, certificate.report
    with about("the report"):
        parties = version_of(versions, signed.body.manifest)
        parties.verify(signed)
        report = signed.body
        expected = JobReport.of(
            request,
            certificate.rounds,
            certificate.lost_rounds,
            population=decode_clients(certificate.population),
            posterior=report.posterior,
            entry=report.entry,
        )
        if report.model_copy(update={"privacy": expected.privacy}) != expected:
            raise MalformedDocument("it is not of these rounds, results and partial sums")
        stated, computed = ([*dict(each.privacy).values()] for each in (report, expected))
        # the mathematical functions of two machines may differ in their last bits
        if not np.allclose(stated, computed, rtol=_TOLERANCE, atol=0.0):
            raise MalformedDocument("the price that it states is not what the rounds cost")
        if not request.minimum_population <= report.population_size <= request.maximum_population:
            raise MalformedDocument("its population is smaller or larger than the job allows")
