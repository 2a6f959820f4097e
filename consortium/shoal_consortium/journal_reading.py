"""Reads the journals of a consortium's Compute nodes, checks them, and compares them with copies.

A copy is a directory with one file for each node, which has one entry a line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final, TypeVar

import httpx
import pydantic

from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import Endpoint, Refused
from shoal_kit.private_files import put
from shoal_kit.startup import PUBLIC_FILE, replace
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import Chain, EntryPlace, Shown
from shoal_protocol.keeping import Loss
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.succession import ManifestStatement, statements, subject_of
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import Count, canonical_json, format_time, sha256
from shoal_protocol.wire.errors import ProtocolError, WrongSigner

EVIDENCE: Final = "evidence"
_KINDS: Final = (JobTotal, ManifestStatement, Loss)
_PAGE: Final = 100  # entries
MOST_ENTRIES: Final = 10_000_000
MOST_STATEMENTS: Final = 100_000
"""How much of one node's journal is read, and held in memory: a node could show one without end."""
_HASH_BYTES: Final = 32
_VERSION: Final = "version"
StatementT = TypeVar("StatementT", JobTotal, ManifestStatement)

Read = Callable[[ServiceParty], Iterable[Shown]]
"""Returns the entries that a Compute node shows; raises `Unavailable` or `Refused`."""
Found = Signed[Any]
"""A statement whose signature was checked."""


class _Entries(pydantic.BaseModel):
    entries: list[Shown]
    next: Count | None


def from_nodes(transport: httpx.AsyncBaseTransport | None = None) -> Read:
    """Read by HTTPS."""

    def read(node: ServiceParty) -> Iterator[Shown]:
        for page in Endpoint.of(node, transport).pages(_Entries, "/v1/journal", count=_PAGE):
            yield from page.entries

    return read


@dataclass(frozen=True)
class Finding:
    """A contradiction, and the documents that show it.

    It is none if `loss` explains it, which the node states that it accepted.
    """

    what: str
    documents: tuple[Mapping[str, Any], ...]
    loss: Loss | None = None

    @property
    def told(self) -> str:
        """Return what it is, and what explains it."""
        if self.loss is None:
            return self.what
        return f"{self.what}: a loss was accepted at {format_time(self.loss.at)}"


@dataclass
class NodeJournal:
    """A node's journal, as far as it was read and holds.

    `broken` says why it ends before its end, if it does, and `silent` that the node did not answer.
    `seen` is how many of its entries were in the copy. `unread` is how many of its statements are
    bound to versions of the manifest that the reader does not have.
    """

    node: str
    hashes: bytearray = field(default_factory=bytearray)  # of its entries, 32 bytes each
    signed: list[Found] = field(default_factory=list)
    broken: str | None = None
    silent: bool = False
    seen: int = 0
    unread: int = 0

    @property
    def entries(self) -> int:
        """Return how many entries were read and hold."""
        return len(self.hashes) // _HASH_BYTES

    def hash_of(self, number: int) -> str | None:
        """Return the hash of an entry, by its number from 1; None if there is none."""
        return self.hashes[(number - 1) * _HASH_BYTES : number * _HASH_BYTES].hex() or None

    def loss_of(self, place: EntryPlace) -> Loss | None:
        """Return the accepted loss that replaced the entry which was at a place, or None."""
        losses = (each.body for each in self.signed if isinstance(each.body, Loss))
        return next(
            (
                each
                for each in losses
                if place.order <= each.lost.order and place.number >= each.entry.number
            ),
            None,
        )


@dataclass(frozen=True)
class Reading:
    """The journals of all Compute nodes, and what contradicts itself in them and in copies."""

    journals: Sequence[NodeJournal]
    findings: Sequence[Finding]

    def of_kind(self, kind: type[StatementT]) -> Iterator[Signed[StatementT]]:
        """Yield the nodes' statements of a kind."""
        for journal in self.journals:
            yield from (each for each in journal.signed if isinstance(each.body, kind))


def read_journals(
    read: Read,
    chain: Sequence[Consortium],
    *,
    copy: Path | None = None,
    against: Sequence[Path] = (),
) -> Reading:
    """Read the journals of the newest version's nodes, and check each from its first entry.

    `chain` are the versions of the manifest, oldest first. A journal must begin with what `copy`
    has of it from before, and with what `against` have, copies of other readers. Then `copy` is
    brought up to date, but for nodes whose journals contradict it. Entries that an accepted loss
    replaced stay in a file of their own, and are read too.

    Raises:
        ValueError, OSError: a copy cannot be read.
    """
    versions = {each.digest: each for each in chain}
    journals: list[NodeJournal] = []
    findings: list[Finding] = []
    signed = [*_countersignatures(chain)]
    if copy is not None:
        copy.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=copy) as scratch:
        for node in chain[-1].manifest.compute_nodes:
            draft = Path(scratch) / f"{node.name}.jsonl"
            with draft.open("wb") as file:
                journal = _followed(node, read, versions, file)
            journals.append(journal)
            signed += journal.signed
            for directory in filter(None, (*against, copy)):
                kept = directory / draft.name
                for path in (kept, *directory.glob(f"{kept.name}.before-*")):
                    for shown in _entries_in(path):
                        with suppress(ProtocolError):
                            signed += filter(None, [_opened(shown, node.name, versions)])
                seen, difference = _compared(kept, draft, journal)
                loss = None if difference is None else difference.loss
                findings += filter(None, [difference])
                if directory == copy and (difference is None or loss is not None):
                    journal.seen = seen
                    if loss is not None:
                        kept.rename(f"{kept}.before-{loss.entry.epoch}")
                    if journal.entries > seen or loss is not None:
                        put(draft, kept, mode=PUBLIC_FILE)
    return Reading(journals, [*findings, *contradictions(signed, chain)])


def keep_evidence(copy: Path, finding: Finding) -> Path:
    """Write a finding with its documents below the copy; return where it is."""
    content = canonical_json({"what": finding.what, "documents": [*finding.documents]})
    path = copy / EVIDENCE / f"{sha256('evidence', content)[:16]}.json"
    replace(path, content)
    return path


def contradictions(signed: Iterable[Found], chain: Sequence[Consortium]) -> Iterator[Finding]:
    """Yield statements that differ though there is to be one, and versions that `chain` lacks.

    What a node signed before an emergency took that version's place contradicts nothing.
    """
    first: dict[tuple[object, ...], tuple[str, Found]] = {}
    for version in chain:
        now = version.manifest
        for emergency in {True, now.emergency is not None}:
            subject = subject_of(now.identity, now.sequence, emergency=emergency)
            first[_VERSION, subject] = (version.digest, version.signed_manifest)
    told: set[tuple[object, ...]] = set()
    for each in signed:
        for slot, value, what in _claims(each):
            known, other = first.setdefault(slot, (value, each))
            if known != value and (slot, each.signer) not in told:
                told.add((slot, each.signer))
                names = " and ".join(dict.fromkeys((other.signer, each.signer)))
                yield Finding(f"{names} signed two {what}", (other.to_json(), each.to_json()))


def _claims(signed: Found) -> Iterator[tuple[tuple[object, ...], str, str]]:
    """Yield the places that a statement takes, what it puts there, and what that is in words."""
    body, digest = signed.body, signed.digest
    subject, entry = body.subject, body.entry
    kind = f"statements of kind {body.kind} about {subject}"
    yield (signed.signer, body.kind, subject), digest, kind
    place = f"statements as entry {entry.number} of one journal"
    yield (signed.signer, entry.epoch, entry.number), digest, place
    if isinstance(body, JobTotal):
        yield ("report", body.job), body.report, f"reports of job {body.job} in their totals"
    elif isinstance(body, ManifestStatement):
        versions = f"versions of the manifest with the number {body.sequence}"
        yield (_VERSION, subject), body.following, versions


def _followed(
    party: ServiceParty, read: Read, versions: Mapping[str, Consortium], file: IO[bytes]
) -> NodeJournal:
    """Read a node's journal, and write the entries that hold to `file`, one a line."""
    journal, chain = NodeJournal(party.name), Chain(*_KINDS)
    try:
        for shown in read(party):
            if journal.entries == MOST_ENTRIES or len(journal.signed) == MOST_STATEMENTS:
                raise Refused(f"it is read to entry {journal.entries:,}, and goes on")
            signed = _opened(shown, party.name, versions)
            if signed is not None:
                journal.signed.append(signed)
            elif shown.statement is not None:
                journal.unread += 1
            chain.follow(shown)
            journal.hashes += bytes.fromhex(shown.hash)
            file.write(canonical_json(shown.model_dump(mode="json")) + b"\n")
    except Unavailable as error:
        journal.silent, journal.broken = True, str(error)
    except (ProtocolError, Refused) as error:
        journal.broken = str(error)
    return journal


def _opened(shown: Shown, node: str, versions: Mapping[str, Consortium]) -> Found | None:
    """Return the statement of an entry, if it shows one that is bound to a known version.

    Raises:
        ProtocolError: it is none that this node signed.
    """
    if shown.statement is None:
        return None
    signed: Found = from_json(shown.statement.document, *_KINDS)
    if signed.signer != node:
        raise WrongSigner(f"journal entry {shown.number} shows the statement of another node")
    if signed.body.manifest not in versions:
        return None
    versions[signed.body.manifest].verify(signed)
    return signed


def _countersignatures(chain: Sequence[Consortium]) -> Iterator[Found]:
    """Yield the statements that stand beside the versions of the manifest."""
    for before, version in pairwise(chain):
        for signed in statements(version.signed_manifest.countersignatures):
            with suppress(ProtocolError):
                before.verify(signed)
                yield signed


def _entries_in(path: Path) -> Iterator[Shown]:
    """Yield the entries in a copy's file, none if there is no file."""
    if not path.exists():
        return
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield Shown.model_validate_json(line)
    except ValueError as error:
        raise ValueError(f"{path} is no copy of a journal") from error


def _compared(kept: Path, draft: Path, journal: NodeJournal) -> tuple[int, Finding | None]:
    """Return how many entries were kept, and how the journal contradicts them, or None."""
    count, old = 0, None
    shown = _entries_in(draft)
    for count, old in enumerate(_entries_in(kept), 1):
        new = next(shown, None)
        if new is not None and old.hash != new.hash:
            what = (
                f"{journal.node} shows a forked journal: entry {old.number} was another one before"
            )
            both = (old.model_dump(mode="json"), new.model_dump(mode="json"))
            return count - 1, Finding(what, both, journal.loss_of(old))
    if old is None or journal.broken or journal.entries >= count:
        return count, None
    what = (
        f"{journal.node} shows a journal that was rolled back: it has {journal.entries:,} of the "
        f"{count:,} entries that it had"
    )
    return count, Finding(what, (old.model_dump(mode="json"),))
