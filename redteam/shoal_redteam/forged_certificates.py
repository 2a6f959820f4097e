"""Forges certificates of what never happened, signed by all parties."""

from collections.abc import Callable, Mapping
from typing import Any

from shoal_protocol.certificates.release_certificate import CertifiedRound, ReleaseCertificate
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.rounds.attestations import Charge, PartialSum, PartialSumReference
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import decode_clients
from shoal_redteam.target import Target
from shoal_studies.posterior_report import PosteriorReport

Charges = Callable[[int, str, Charge], Charge]
"""(round, node, its charge of the round) -> the charge that is shown instead."""
Totals = Callable[[JobTotal], JobTotal | None]
"""A node's total -> the one that is shown instead, or None."""


def forged_certificate(
    target: Target,
    told: ReleaseCertificate,
    *,
    request: Mapping[str, Any] | None = None,
    specs: Mapping[int, Mapping[str, Any]] | None = None,
    charges: Charges = lambda number, node, charge: charge,
    totals: Totals = lambda total: total,
    report: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the certificate of a job with another request, rounds, charges or report.

    Everything else follows from these, and whoever has to sign it does: without any change, it is
    a certificate that holds. `told` must be of a single version of the manifest, and no round lost.
    """
    asked = told.request.body.model_copy(update=dict(request or {}))
    rounds: list[CertifiedRound] = []
    for number, each in enumerate(told.rounds):
        changes = {"job": asked.digest} | dict((specs or {}).get(number, {}))
        spec = each.spec.body.model_copy(update=changes)
        sums: list[Signed[PartialSum]] = []
        for signed in each.partial_sums:
            charge = charges(number, signed.body.node, signed.body.charge)
            body = {"round": spec.digest, "charge": charge}
            sums.append(target.sign(signed.body.model_copy(update=body), signed.body.node))
        named = tuple(PartialSumReference(node=one.body.node, digest=one.digest) for one in sums)
        result = each.result.body.model_copy(update={"round": spec.digest, "partial_sums": named})
        rounds.append(
            CertifiedRound(
                spec=target.sign(spec, target.trainer),
                result=target.sign(result, target.aggregator),
                partial_sums=tuple(sums),
            )
        )
    population = decode_clients(told.population)
    honest_report = PosteriorReport.of(
        asked,
        rounds,
        [],
        population=population,
        posterior=told.report.body.posterior,
        entry=told.report.body.entry,
    )
    shown_report = honest_report.model_copy(update=dict(report or {}))
    whole = ReleaseCertificate.of(
        target.sign(asked, asked.analyst),
        rounds,
        [],
        [
            target.sign(shown, shown.node)
            for each in told.totals
            if (shown := totals(_total(each.body, shown_report, rounds))) is not None
        ],
        target.sign(shown_report, target.trainer),
        population=population,
        version=lambda digest: target.consortium,
    )
    return whole.encode()


def _total(was: JobTotal, report: PosteriorReport, rounds: list[CertifiedRound]) -> JobTotal:
    """Return the total that a node would have signed of these rounds and this report."""
    charged = tuple(
        each.spec.digest
        for each in rounds
        if was.node in [signed.body.node for signed in each.partial_sums]
    )
    return was.model_copy(update={"job": report.job, "rounds": charged, "report": report.digest})
