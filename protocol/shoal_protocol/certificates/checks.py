"""Checks a release certificate offline, by one version of the manifest that the reader trusts.

The check cannot tell whether clients exist, whether their records are true, or whether the
posterior was computed well from the sums (which costs no privacy). With the rosters, it also tells
whether clients that a round left out had left the consortium.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal_protocol.certificates.linked_versions import LinkedVersions
from shoal_protocol.certificates.packing import log_proof_in, read_certificate
from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.certificates.release_certificate import (
    ADVERSARIES,
    CertifiedRound,
    LostRound,
    ReleaseCertificate,
    counted,
    prices,
)
from shoal_protocol.certificates.round_checks import about, check_rounds, version_of
from shoal_protocol.certificates.study_request import check_study
from shoal_protocol.jobs.totals import check_total, nodes_of
from shoal_protocol.log.notes import Checkpoint
from shoal_protocol.log.witnessed import cosigners
from shoal_protocol.privacy.ledger_checks import contradictions
from shoal_protocol.trust.manifest import (
    Analyst,
    Consortium,
    Manifest,
    Parties,
    ServiceParty,
    decode_manifest,
)
from shoal_protocol.trust.succession import check_successor
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError
from shoal_protocol.wire.service_errors import RefusedCertificate

_TOLERANCE: Final = 1e-9  # relative, as for the price in a spec


@dataclass(frozen=True)
class Logged:
    """The place of a certificate in the consortium's log, and who signed a checkpoint with it."""

    place: int
    checkpoint: Checkpoint
    signed_by: tuple[str, ...]  # Compute nodes


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
    logged: Logged | None  # None: no proof came with it

    def signer(self, signed: Signed[Any]) -> ServiceParty | Analyst:
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
    before it, and those after `manifest` must be in the log as parties demand it. A proof that the
    log has the certificate counts by the keys of the version that it is bound to, or of a later one
    that links to both: keys of parties who were removed before prove nothing.

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
        signed = read_certificate(encoded)
    certificate = signed.body
    with about("the manifest"):
        trusted = decode_manifest(manifest)
        rostered = [each.signed_manifest for each in known]
        at_hand = [*certificate.earlier_manifests, *history, *rostered]
        linked = LinkedVersions(trusted, at_hand)
    linked.refuse_strangers(known)
    earlier, [parties, *later] = linked.line_of(certificate.manifest)
    versions = _versions(parties, certificate)
    with about("the certificate"):
        parties.verify(signed)
    _check_request(certificate, versions)
    line = {each.digest for each in (*earlier, parties, *later)}
    rosters = {each.digest: each.roster for each in known if each.digest in line}
    holders_known = check_rounds(certificate, versions, rosters)
    _check_totals(certificate, versions)
    _check_ledgers(certificate.all_rounds)
    _check_report(certificate, versions)
    _check_prices(certificate)
    asked_under = {each.spec.body.manifest for each in certificate.all_rounds}
    all_rosters = asked_under <= rosters.keys()
    with about("the log's proof"):
        logged = _logged(encoded, certificate, [parties, *reversed(later)])
    return Verified(
        certificate,
        parties,
        linked.by_digest[trusted.digest],
        versions,
        all_rosters,
        holders_known,
        logged,
    )


def _logged(
    encoded: bytes, certificate: ReleaseCertificate, versions: Sequence[Parties]
) -> Logged | None:
    """Return where the certificate is in the log, by the keys of any of these versions.

    Raises:
        ProtocolError: of the first of them, if the proof holds by none.
    """
    proof = log_proof_in(encoded)
    if proof is None:
        return None
    entry, wrong = certificate.log_entry.encode(), []
    for version in versions:
        try:
            checkpoint = proof.check(entry, version.manifest)
        except ProtocolError as error:
            wrong.append(error)
        else:
            signed = tuple(cosigners(proof.note, version.manifest))
            return Logged(proof.index, checkpoint, signed)
    raise wrong[0]


def _versions(bound_to: Parties, certificate: ReleaseCertificate) -> dict[str, Parties]:
    """Return the manifest versions that the job spans, oldest first, by digest.

    Raises:
        RefusedCertificate: one does not follow the one before it, or is no document's.
    """
    chain: list[Parties] = []
    for signed in (*certificate.earlier_manifests, bound_to.signed_manifest):
        with about(f"version {signed.body.sequence} of the manifest"):
            found = Parties.of(signed, authority=signed.body.authority)
            if chain:
                check_successor(chain[-1], signed)
            chain.append(found)
    bound = [certificate.request.body, *(each.spec.body for each in certificate.all_rounds)]
    if (bound[0].manifest, bound[-1].manifest) != (chain[0].digest, certificate.manifest):
        raise RefusedCertificate("its manifest versions are not those of its documents")
    return {each.digest: each for each in chain}


def _check_request(certificate: ReleaseCertificate, versions: Mapping[str, Parties]) -> None:
    request = certificate.request
    with about("the job request"):
        parties = version_of(versions, request.body.manifest)
        parties.verify(request)
        check_study(request.body, parties.manifest)
        if request.digest != certificate.job:
            raise MalformedDocument("it is another job's than the certificate's")


def _check_totals(certificate: ReleaseCertificate, versions: Mapping[str, Parties]) -> None:
    """Refuse a certificate that lacks a round which a Compute node charged, or a node's total."""
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
                counted=counted(certificate.rounds, node),
            )
    if [each.signer for each in certificate.totals] != needed:
        raise RefusedCertificate("the totals: there is not one of each Compute node, in order")


def _check_ledgers(rounds: Sequence[CertifiedRound | LostRound]) -> None:
    """Refuse ledger entries that cannot all be of chains in which the rounds follow one another."""
    last: dict[str, int] = {}
    for number, certified in enumerate(rounds):
        for entry in certified.ledger_entries:
            if entry.number <= last.get(entry.ledger, 0):
                raise RefusedCertificate(
                    f"{entry.ledger}'s ledger entry of round {number} is not after that of the "
                    "round before"
                )
            last[entry.ledger] = entry.number
    entries = [entry for each in rounds for entry in each.ledger_entries]
    for contradiction in contradictions(entries):
        raise RefusedCertificate(f"ledgers: {contradiction}")


def _check_report(certificate: ReleaseCertificate, versions: Mapping[str, Parties]) -> None:
    """Refuse a report that is not of exactly these rounds, or states another price for them."""
    request, signed = certificate.request.body, certificate.report
    released = [(each.spec.body, each.result.body) for each in certificate.rounds]
    with about("the report"):
        parties = version_of(versions, signed.body.manifest)
        parties.verify(signed)
        report, task = signed.body, request.task
        expected = PosteriorReport.of(
            request,
            released,
            lost=[each.spec.body for each in certificate.lost_rounds],
            population=decode_clients(certificate.population),
            posterior=report.posterior,
        )
        computed = {"privacy": expected.privacy, "breakdown": expected.breakdown}
        if report.model_copy(update=computed) != expected:
            raise MalformedDocument("it is not of these rounds, results and partial sums")
        told, true = (each.model_dump(include=set(computed)) for each in (report, expected))
        if not alike(told, true):
            raise MalformedDocument("the price that it states is not what the rounds cost")
        if not request.minimum_population <= report.population_size <= request.maximum_population:
            raise MalformedDocument("its population is smaller or larger than the job allows")
        posterior = report.posterior
        named = tuple(bounds.name for bounds in task.columns)
        if posterior.name not in task.posterior_names or posterior.columns != named:
            raise MalformedDocument("its posterior is not of the job's task")


def _check_prices(certificate: ReleaseCertificate) -> None:
    """Refuse prices that are not what the noise of the rounds buys."""
    expected = prices(certificate.request.body, certificate.rounds, certificate.lost_rounds)
    if [each.adversary for each in certificate.prices] != list(ADVERSARIES):
        raise RefusedCertificate("it does not state its price against every adversary")
    for stated, computed in zip(certificate.prices, expected, strict=True):
        if not alike(stated.model_dump(), computed.model_dump()):
            raise RefusedCertificate(
                f"the price stated against {stated.adversary.replace('_', ' ')} is not what the "
                "noise of its rounds buys"
            )


def alike(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are the same, numbers with a point to a relative 1e-9.

    The mathematical functions of two machines may differ in their last bits.
    """
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)
