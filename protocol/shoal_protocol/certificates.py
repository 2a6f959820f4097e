"""The release certificate: all that was signed of one job, in one document; it checks nothing.

Whoever has it and the consortium's manifest can check it offline: `certificate_checks`.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator

from shoal_protocol.attestations import PartialSum, Result
from shoal_protocol.documents import (
    BoundDocument,
    Document,
    DocumentT,
    Model,
    Role,
    Signed,
    from_json,
)
from shoal_protocol.encoding import Digest
from shoal_protocol.jobs import JobRequest, PosteriorReport
from shoal_protocol.ledger import LedgerEntry
from shoal_protocol.manifest import Manifest, Parties
from shoal_protocol.rounds import RoundSpec


def _reader(kind: type[DocumentT]) -> PlainValidator:
    def read(value: object) -> Signed[DocumentT]:
        if isinstance(value, Signed) and isinstance(value.body, kind):
            return value
        return from_json(value, kind)

    return PlainValidator(read)


def _to_json(signed: Signed[Document]) -> dict[str, Any]:
    return signed.to_json()


_WRITER = PlainSerializer(_to_json)

SignedManifest = Annotated[Signed[Manifest], _reader(Manifest), _WRITER]
SignedRequest = Annotated[Signed[JobRequest], _reader(JobRequest), _WRITER]
SignedSpec = Annotated[Signed[RoundSpec], _reader(RoundSpec), _WRITER]
SignedResult = Annotated[Signed[Result], _reader(Result), _WRITER]
SignedSum = Annotated[Signed[PartialSum], _reader(PartialSum), _WRITER]
SignedReport = Annotated[Signed[PosteriorReport], _reader(PosteriorReport), _WRITER]


class CertifiedRound(Model):
    """A round that released a sum, and all that its parties signed of it.

    `partial_sums` are those that the result rests on, in their nodes' order; each carries the
    node's own ledger entry. `charge` is the trainer's.
    """

    spec: SignedSpec
    result: SignedResult
    partial_sums: tuple[SignedSum, ...]
    charge: LedgerEntry

    @property
    def ledger_entries(self) -> tuple[LedgerEntry, ...]:
        """Return the trainer's entry, then each Compute node's."""
        return (self.charge, *(each.body.charge for each in self.partial_sums))


class ReleaseCertificate(BoundDocument):
    """Trainer -> whoever doubts: what a job released, to whom, from how many, at what price.

    Request and report are bound to one version of the manifest, later rounds perhaps to later ones.
    `manifest` is the last round's; the versions before it, back to the request's, are in
    `earlier_manifests`, in order.
    """

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["release_certificate"] = "release_certificate"
    job: Digest
    earlier_manifests: tuple[SignedManifest, ...]
    request: SignedRequest
    rounds: tuple[CertifiedRound, ...] = Field(min_length=1)
    report: SignedReport

    @classmethod
    def of(
        cls,
        request: Signed[JobRequest],
        rounds: Sequence[CertifiedRound],
        report: Signed[PosteriorReport],
        *,
        version: Callable[[str], Parties],
    ) -> Self:
        """Return the certificate of a job that is done; `version` knows manifests by digest."""
        chain = [version(rounds[-1].spec.body.manifest)]
        while chain[0].digest != request.body.manifest:
            chain.insert(0, version(chain[0].manifest.previous or ""))
        return cls(
            manifest=chain[-1].digest,
            job=request.digest,
            earlier_manifests=tuple(each.signed_manifest for each in chain[:-1]),
            request=request,
            rounds=tuple(rounds),
            report=report,
        )
