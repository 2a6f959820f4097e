"""What Shoal logs: one small entry for each document, and what the entries say of a consortium.

An entry is canonical JSON and names its document by the digest. It may be of a document that only
the parties have.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import pydantic
from pydantic import Field

from shoal_protocol.log.checkpoints import (
    Checkpoint,
    Entry,
    Hashes,
    ManifestEntry,
    Witnessed,
    Written,
)
from shoal_protocol.trust.manifest import Parties
from shoal_protocol.wire.documents import Embedded, TrainerDocument, describe
from shoal_protocol.wire.encoding import Count, Digest, Name, Place, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError


class RoundEntry(Entry):
    """A round spec, which is the round's name."""

    kind: Literal["round"] = "round"
    job: Digest
    number: Count


class EndEntry(Entry):
    """A round's end: the aggregator's result, or its abandonment.

    `ledgers` has the newest entry of each Compute node's ledger that the result rests on.
    """

    kind: Literal["result", "abandonment"]
    round: Digest
    ledgers: dict[Name, Digest]


class CertificateEntry(Entry):
    """A job's certificate, of so many rounds, lost ones included.

    `ledger` is the newest entry of the trainer's ledger in it.
    """

    kind: Literal["certificate"] = "certificate"
    job: Digest
    rounds: Place
    ledger: Digest


AnyEntry = Annotated[
    ManifestEntry | RoundEntry | EndEntry | CertificateEntry,
    Field(discriminator="kind"),
]
_READER: Final[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(AnyEntry)


def decode_entry(encoded: bytes) -> Entry:
    """Decode an entry.

    Raises:
        MalformedDocument
    """
    value = parse_canonical_json(encoded)
    try:
        entry: Entry = _READER.validate_python(value)
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error)) from None
    if entry.encode() != encoded:
        raise MalformedDocument("an entry of the log is not written in its one form")
    return entry


class LogRequest(TrainerDocument):
    """Trainer -> aggregator: log a certificate, which the trainer signed."""

    kind: Literal["log_request"] = "log_request"
    entry: CertificateEntry


CHECKPOINTS: Final = "/v1/log/checkpoint"
"""Where a Compute node takes checkpoints to sign, and everybody serves the newest."""


class Submission(Written):
    """Aggregator -> Compute node: a checkpoint to sign, and what came after the node's last one.

    `after` has the hashes of all entries since then.
    """

    after: Hashes
    checkpoint: Embedded[Checkpoint]


class UnknownLog(ProtocolError):
    title = "Nothing of this aggregator's log was signed here yet"
    status = 404
    remedy = "Send a checkpoint of the log."


class WrongStart(ProtocolError):
    title = "The entries must begin after the last checkpoint that was signed here"
    status = 409
    remedy = "Ask for that checkpoint, and send the entries that come after it."


class ForkedLog(ProtocolError):
    title = "The log shows two histories"
    status = 409
    remedy = "Keep both checkpoints: together they are evidence. Tell the other parties."

    def __init__(
        self, one: Witnessed, other: Witnessed, *, witnesses: tuple[str, ...] = ()
    ) -> None:
        """Keep the two checkpoints, and name the `witnesses` that signed both."""
        names = f"; {', '.join(witnesses)} signed both" if witnesses else ""
        super().__init__(f"the log was shown with two histories{names}")
        self.one = one
        self.other = other
        self.witnesses = witnesses


def check_same(one: Witnessed, other: Witnessed, *versions: Parties) -> None:
    """Refuse two checkpoints of one log and size, which its aggregator signed, with other heads.

    `versions` are those of the manifest under which `one` and `other` were signed.

    Raises:
        ForkedLog
        MalformedDocument: they are of two aggregators' logs; and as `Witnessed.checked`.
        UnknownSigner, WrongSigner, BadSignature: as `Witnessed.checked`.
    """
    both = [*zip((one, other), versions, strict=True)]
    first, second = (each.checked(version) for each, version in both)
    if first.aggregator != second.aggregator:
        raise MalformedDocument(
            f"the checkpoints are of the logs of {first.aggregator} and {second.aggregator}: keep "
            "one copy of each"
        )
    if first.size == second.size and first.head != second.head:
        signed = [each.cosigners(version).keys() for each, version in both]
        raise ForkedLog(one, other, witnesses=tuple(sorted(signed[0] & signed[1])))


@dataclass(frozen=True)
class Finding:
    """An entry that contradicts others."""

    place: int
    what: str


class Monitor:
    """Follows a log entry by entry."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self.size = 0
        self.findings: list[Finding] = []
        self._versions: list[ManifestEntry] = []
        self._rounds: dict[tuple[str, int], str] = {}
        self._job_of: dict[str, str] = {}  # by round
        self._ends: dict[str, str] = {}
        self._certificates: dict[str, str] = {}
        self._counts = Counter[str]()

    def follow(self, entry: Entry) -> None:
        """Take the next entry."""
        for what in self._contradictions(entry):
            self.findings.append(Finding(self.size, what))
        self.size += 1

    def _contradictions(self, entry: Entry) -> list[str]:
        if isinstance(entry, ManifestEntry):
            return self._manifest(entry)
        if isinstance(entry, RoundEntry):
            return self._round(entry)
        if isinstance(entry, EndEntry):
            return self._end(entry)
        return self._certificate(entry) if isinstance(entry, CertificateEntry) else []

    def _manifest(self, entry: ManifestEntry) -> list[str]:
        last = self._versions[-1] if self._versions else None
        self._versions.append(entry)
        if last is None or (entry.sequence, entry.previous) == (last.sequence + 1, last.digest):
            return []
        return [f"version {entry.sequence} of the manifest does not follow the one before it"]

    def _round(self, entry: RoundEntry) -> list[str]:
        self._counts[entry.job] += 1
        self._job_of[entry.digest] = entry.job
        found = []
        first = self._rounds.setdefault((entry.job, entry.number), entry.digest)
        if first != entry.digest:
            found.append(f"job {entry.job} has two rounds of number {entry.number}")
        if entry.job in self._certificates:
            found.append(f"job {entry.job} has a further round after its certificate")
        return found

    def _end(self, entry: EndEntry) -> list[str]:
        first = self._ends.setdefault(entry.round, entry.digest)
        found = [f"round {entry.round} ended twice"] if first != entry.digest else []
        if entry.round not in self._job_of:
            found.append(f"round {entry.round} ended without having been logged")
        return found

    def _certificate(self, entry: CertificateEntry) -> list[str]:
        first = self._certificates.setdefault(entry.job, entry.digest)
        found = [f"job {entry.job} has two certificates"] if first != entry.digest else []
        logged = self._counts[entry.job]
        if logged > entry.rounds:
            found.append(
                f"the certificate of job {entry.job} has {entry.rounds} rounds, the log {logged}"
            )
        return found
