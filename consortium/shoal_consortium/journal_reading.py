"""Reads the journals of a consortium's Compute nodes, checks them, and compares them with copies.

A copy is a directory with one file for each node, which has one entry a line.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pydantic

from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import Endpoint, Refused
from shoal_kit.startup import replace
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import Chain, Shown
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.succession import ManifestStatement, statements, subject_of
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import Count, canonical_json, sha256
from shoal_protocol.wire.errors import ProtocolError, WrongSigner

EVIDENCE: Final = "evidence"
_KINDS: Final = (JobTotal, ManifestStatement)
_PAGE: Final = 100  # entries
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
    """A contradiction, and the documents that show it."""

    what: str
    documents: tuple[Mapping[str, Any], ...]


@dataclass
class NodeJournal:
    """A node's journal, as far as it was read and holds.

    `broken` says why it ends before its end, if it does, and `silent` that the node did not answer.
    `seen` is how many of its entries were in the copy. `unread` is how many of its statements are
    bound to versions of the manifest that the reader does not have.
    """

    node: str
    entries: list[Shown] = field(default_factory=list)
    signed: list[Found] = field(default_factory=list)
    broken: str | None = None
    silent: bool = False
    seen: int = 0
    unread: int = 0


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
    brought up to date, but for nodes whose journals contradict it.

    Raises:
        ValueError, OSError: a copy cannot be read.
    """
    versions = {each.digest: each for each in chain}
    findings: list[Finding] = []
    journals = [_followed(each, read, versions) for each in chain[-1].manifest.compute_nodes]
    signed = [*_countersignatures(chain), *(each for one in journals for each in one.signed)]
    for journal in journals:
        for directory in (copy, *against):
            kept = [] if directory is None else _kept(directory, journal.node)
            for shown in kept:
                with suppress(ProtocolError):
                    signed += filter(None, [_opened(shown, journal.node, versions)])
            difference = _difference(kept, journal)
            if difference is not None:
                findings.append(difference)
            elif directory is not None and directory == copy:
                journal.seen = len(kept)
                lines = [canonical_json(each.model_dump(mode="json")) for each in journal.entries]
                if len(lines) > len(kept):
                    replace(_file(directory, journal.node), b"\n".join(lines) + b"\n")
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
    else:
        versions = f"versions of the manifest with the number {body.sequence}"
        yield (_VERSION, subject), body.following, versions


def _followed(party: ServiceParty, read: Read, versions: Mapping[str, Consortium]) -> NodeJournal:
    journal, chain = NodeJournal(party.name), Chain(*_KINDS)
    try:
        for shown in read(party):
            signed = _opened(shown, party.name, versions)
            if signed is not None:
                journal.signed.append(signed)
            elif shown.statement is not None:
                journal.unread += 1
            chain.follow(shown)
            journal.entries.append(shown)
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


def _file(copy: Path, node: str) -> Path:
    return copy / f"{node}.jsonl"


def _kept(copy: Path, node: str) -> list[Shown]:
    path = _file(copy, node)
    lines = path.read_bytes().splitlines() if path.exists() else []
    try:
        return [Shown.model_validate(json.loads(line)) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path} is no copy of a journal") from error


def _difference(kept: Sequence[Shown], journal: NodeJournal) -> Finding | None:
    """Return how a journal contradicts what was kept of it, or None."""
    for old, new in zip(kept, journal.entries, strict=False):
        if old.hash != new.hash:
            return Finding(
                f"{journal.node} shows a forked journal: entry {old.number} was another one before",
                (old.model_dump(mode="json"), new.model_dump(mode="json")),
            )
    if journal.broken or len(journal.entries) >= len(kept):
        return None
    return Finding(
        f"{journal.node} shows a journal that was rolled back: it has {len(journal.entries):,} of "
        f"the {len(kept):,} entries that it had",
        (kept[-1].model_dump(mode="json"),),
    )
