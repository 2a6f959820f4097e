"""The release certificate: all that was signed of one job, in one file, and its compression.

Anyone with the consortium's manifest can check it offline, by `certificates.checks`. The trainer's
report of the job determines everything else in the certificate, and the signed total of each
Compute node repeats the report's digest. A node signs one total of a job for ever, so two
certificates of one job exist only if every node of the job lies.
"""

import gzip
import heapq
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Final, Literal, Self, TypeVar

import pydantic
from pydantic import Field
from pyroaring import BitMap

from shoal_protocol import journal
from shoal_protocol.jobs.job_request import JobRequest, Undecoded
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.privacy.job_costs import (
    Participation,
    PrivacySpent,
    Statement,
    epsilon_at,
    statements,
)
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_audit import release_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust.manifest import Manifest, Parties
from shoal_protocol.wire.documents import (
    Embedded,
    Model,
    Signed,
    TrainerDocument,
    describe,
)
from shoal_protocol.wire.encoding import (
    MOST_VALUES,
    Base64,
    Clients,
    Count,
    Digest,
    canonical_json,
    encode_clients,
    parse_canonical_json,
    sha256,
)
from shoal_protocol.wire.errors import MalformedDocument

PartiesT = TypeVar("PartiesT", bound=Parties)


class Participations(Model):
    """In how many of a job's rounds the clients of its population were asked."""

    least: Count
    most: Count


class CertifiedRound(Model):
    """A round that released a sum, and all documents that its parties signed.

    `partial_sums` are those that the result adds up, in their nodes' order; each carries the
    node's charge.
    """

    spec: Embedded[RoundSpec]
    result: Embedded[Result]
    partial_sums: tuple[Embedded[PartialSum], ...]


class LostRound(Model):
    """A round that the trainer calls lost; with the aggregator's abandonment if any was asked."""

    spec: Embedded[RoundSpec]
    abandonment: Embedded[Abandonment] | None


class JobReport(journal.Statement, TrainerDocument):
    """Trainer -> analyst: the posterior, the rounds it came from and what they cost.

    A client pays for the rounds that asked it, lost ones included: its answer may have been sent.
    `privacy` is the cost of the client that pays most. `results` name their partial sums; `record`
    is the digest of what else the certificate has (`record_digest`).
    """

    most_values: ClassVar[int] = MOST_VALUES

    kind: Literal["posterior_report"] = "posterior_report"
    job: Digest
    rounds: tuple[Digest, ...]
    results: tuple[Digest, ...]
    lost_rounds: tuple[Digest, ...]  # by the word of the trainer
    record: Digest
    population_size: Annotated[Clients, Field(ge=2)]
    participations: Participations
    cohort_sizes: tuple[Annotated[Clients, Field(ge=1)], ...]
    sharing: Sharing
    compute_nodes: tuple[Annotated[int, Field(ge=2, le=255)], ...]  # of each round, and
    partial_sums: tuple[
        Annotated[int, Field(ge=2, le=255)], ...
    ]  # how many of them its result rests on
    privacy: PrivacySpent
    posterior: Undecoded

    @property
    def subject(self) -> str:
        """Return the job."""
        return self.job

    @pydantic.model_validator(mode="after")
    def _rounds_agree(self) -> Self:
        counts = (self.cohort_sizes, self.compute_nodes, self.partial_sums)
        if {len(each) for each in (self.results, *counts)} != {len(self.rounds)}:
            raise ValueError(
                "rounds, results, cohort_sizes, compute_nodes and partial_sums must have one entry "
                "per round"
            )
        return self

    @classmethod
    def of(
        cls,
        request: JobRequest,
        released: Sequence[CertifiedRound],
        lost: Sequence[LostRound],
        *,
        population: BitMap,
        posterior: object,
        entry: journal.Link,
    ) -> Self:
        """Return the report of a job that is done, with what its rounds really cost.

        Raises:
            ValueError: a round asks clients who are not of `population`, those who joined.
        """
        participation, delta = Participation(population), request.privacy.delta
        for each in in_order(released, lost):
            participation.add(each.spec.body.clients(), each.spec.body.cost)
        spent = participation.largest()
        return cls(
            manifest=request.manifest,
            entry=entry,
            job=request.digest,
            rounds=tuple(each.spec.digest for each in released),
            results=tuple(each.result.digest for each in released),
            lost_rounds=tuple(each.spec.digest for each in lost),
            record=record_digest(population, lost),
            population_size=len(population),
            participations=Participations(
                least=int(participation.rounds.min()), most=int(participation.rounds.max())
            ),
            cohort_sizes=tuple(each.result.body.cohort_size for each in released),
            sharing=request.sharing,
            compute_nodes=tuple(len(each.spec.body.compute_nodes) for each in released),
            partial_sums=tuple(len(each.result.body.partial_sums) for each in released),
            privacy=PrivacySpent(epsilon=epsilon_at(delta, spent), delta=delta, mu=spent.mu),
            posterior=posterior,
        )


def record_digest(population: BitMap, lost: Sequence[LostRound]) -> str:
    """Return the digest of what a certificate has that no other part of its report names.

    That is the population, and for each lost round the aggregator's abandonment or None.
    """
    words = [None if each.abandonment is None else each.abandonment.digest for each in lost]
    named = {"population": encode_clients(population), "abandonments": words}
    return sha256("job_record", canonical_json(named))


class ReleaseCertificate(Model):
    """Trainer -> any auditor: what a job released, to whom, from how many, at what price.

    Nobody signs it as a whole: its report determines the rest. `population` are the clients who
    joined, a bitmap in base64. Request and report are bound to one version of the manifest, later
    rounds perhaps to later ones. `earlier_manifests` are the versions before the last round's, back
    to the request's, in order; `totals` are those of all their
    Compute nodes, as `nodes_of` orders them.
    """

    earlier_manifests: tuple[Embedded[Manifest], ...]
    request: Embedded[JobRequest]
    population: Base64
    rounds: tuple[CertifiedRound, ...] = Field(min_length=1)
    lost_rounds: tuple[LostRound, ...]
    totals: tuple[Embedded[JobTotal], ...]
    report: Embedded[JobReport]

    @classmethod
    def of(
        cls,
        request: Signed[JobRequest],
        rounds: Sequence[CertifiedRound],
        lost: Sequence[LostRound],
        totals: Sequence[Signed[JobTotal]],
        report: Signed[JobReport],
        *,
        population: BitMap,
        version: Callable[[str], Parties],
    ) -> Self:
        """Return the certificate of a job that is done; `version` knows manifests by digest."""
        last = in_order(rounds, lost)[-1].spec.body.manifest
        chain = spanned(request.body.manifest, last, version)
        return cls(
            earlier_manifests=tuple(each.signed_manifest for each in chain[:-1]),
            request=request,
            population=encode_clients(population),
            rounds=tuple(rounds),
            lost_rounds=tuple(lost),
            totals=tuple(totals),
            report=report,
        )

    def encode(self) -> bytes:
        """Return the certificate's file: canonical JSON, not compressed."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def job(self) -> str:
        """Return the job's id, the digest of its request."""
        return self.request.digest

    @property
    def manifest(self) -> str:
        """Return the digest of the last round's manifest version, which the reader has to know."""
        return self.all_rounds[-1].spec.body.manifest

    @property
    def all_rounds(self) -> list[CertifiedRound | LostRound]:
        """Return released and lost rounds, by number."""
        return in_order(self.rounds, self.lost_rounds)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Return what the rounds cost a client at most, against each adversary.

        Nothing shows that nobody summed a lost round, unless the aggregator's abandonment is there.
        """
        rounds, lost = self.rounds, self.lost_rounds
        specs = [*(each.spec.body for each in rounds), *(each.spec.body for each in lost)]
        weakest = min(specs, key=lambda spec: spec.opening)
        summed = [
            release_of(each.spec.body, cohort_size=each.result.body.cohort_size) for each in rounds
        ]
        unsummed = [
            replace(
                release_of(each.spec.body), is_lost=True, is_abandoned=each.abandonment is not None
            )
            for each in lost
        ]
        return statements(
            [*summed, *unsummed],
            delta=self.request.body.privacy.delta,
            nodes=len(weakest.compute_nodes),
            needed=weakest.opening,
            committee=weakest.sharing.committee,
            asked=[spec.clients() for spec in specs],
        )


def spanned(first: str, last: str, version: Callable[[str], PartiesT]) -> list[PartiesT]:
    """Return the manifest versions from the `first` to the `last`, which `version` knows."""
    chain = [version(last)]
    while chain[0].digest != first:
        chain.insert(0, version(chain[0].manifest.previous or ""))
    return chain


def sums_of(rounds: Iterable[CertifiedRound], node: str) -> list[PartialSum]:
    """Return a node's partial sums of these rounds, in order."""
    sums = (signed.body for each in rounds for signed in each.partial_sums)
    return [each for each in sums if each.node == node]


def in_order(
    rounds: Iterable[CertifiedRound | LostRound], lost: Iterable[CertifiedRound | LostRound]
) -> list[CertifiedRound | LostRound]:
    """Return released and lost rounds of a job by number; both come in order already."""
    return list(heapq.merge(rounds, lost, key=lambda each: each.spec.body.number))


LARGEST_BYTES: Final = 256 << 20
"""Of a certificate, when it is unpacked."""
_GZIP: Final = b"\x1f\x8b"
_WITH_GZIP_HEAD: Final = 31  # zlib's window bits


def pack(encoded: bytes) -> bytes:
    """Return a certificate compressed with gzip (RFC 1952)."""
    return gzip.compress(encoded, mtime=0)


def unpack(encoded: bytes) -> bytes:
    """Return a certificate's canonical JSON; one that is not compressed as it is.

    Raises:
        MalformedDocument: it is no whole gzip member, or larger than `LARGEST_BYTES`.
    """
    if not encoded.startswith(_GZIP):
        return encoded
    reader = zlib.decompressobj(_WITH_GZIP_HEAD)
    try:
        found = reader.decompress(encoded, LARGEST_BYTES + 1)
    except zlib.error:
        raise MalformedDocument("the certificate's compression is broken") from None
    if not reader.eof or reader.unused_data or len(found) > LARGEST_BYTES:
        raise MalformedDocument("the certificate is cut off, too large, or followed by more")
    return found


def read_certificate(encoded: bytes) -> ReleaseCertificate:
    """Return a certificate, compressed or not; nothing of it is verified.

    Raises:
        MalformedDocument, UnsupportedVersion
    """
    unpacked = unpack(encoded)
    value = parse_canonical_json(unpacked, most_values=MOST_VALUES)
    try:
        certificate = ReleaseCertificate.model_validate(value)
        written = certificate.encode()
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, ReleaseCertificate)) from None
    except ValueError:  # without the cause, which may quote what the file has
        raise MalformedDocument("the certificate is nested too deep") from None
    if written != unpacked:
        raise MalformedDocument("the certificate is not written in its canonical form")
    return certificate
