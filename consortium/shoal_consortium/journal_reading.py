"""Reads the journals of a consortium's Compute nodes, checks them, and compares them with copies.

A copy is a directory with one file for each node, which has one entry a line.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import pydantic

from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import Endpoint, Refused
from shoal_kit.startup import replace
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import Chain, Shown, Statement
from shoal_protocol.keeping import Loss
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.succession import ManifestStatement, statements
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import Count, canonical_json, sha256
from shoal_protocol.wire.errors import ProtocolError

EVIDENCE: Final = "evidence"
_KINDS: Final = (JobTotal, ManifestStatement, Loss)
_PAGE: Final = 100  # entries

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
    `seen` is how many of its entries were in the copy.
    """

    node: str
    entries: list[Shown] = field(default_factory=list)
    signed: list[Found] = field(default_factory=list)
    broken: str | None = None
    silent: bool = False
    seen: int = 0


@dataclass(frozen=True)
class Reading:
    """The journals of all Compute nodes, and what contradicts itself in them.

    `newer` are the statements of versions of the manifest after those that the reader has.
    """

    journals: Sequence[NodeJournal]
    findings: Sequence[Finding]
    newer: Sequence[Found]

    def signers_of(self, version: Consortium) -> list[str]:
        """Return the nodes whose journals have their statement of a version of the manifest."""
        return [
            each.node
            for each in self.journals
            if any(one.body.following == version.digest for one in _of_manifests(each.signed))
        ]

    def totals(self) -> dict[str, list[Found]]:
        """Return the nodes' totals by job."""
        found = defaultdict[str, list[Found]](list)
        for journal in self.journals:
            for each in journal.signed:
                if isinstance(each.body, JobTotal):
                    found[each.body.job].append(each)
        return dict(found)


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
    journals = []
    pool = [*_countersignatures(chain)]
    for party in chain[-1].manifest.compute_nodes:
        journal = _followed(party, read, versions)
        journals.append(journal)
        pool += journal.signed
        for directory in ([copy] if copy else []) + [*against]:
            kept = _kept(directory, party.name)
            if directory == copy:
                journal.seen = len(kept)
            pool += [each for shown in kept for each in _verified(shown, versions)]
            difference = None if journal.silent else _difference(kept, journal)
            if difference is not None:
                findings.append(difference)
            elif directory == copy and len(journal.entries) > len(kept):
                lines = [canonical_json(each.model_dump(mode="json")) for each in journal.entries]
                replace(_file(directory, party.name), b"\n".join(lines) + b"\n")
    findings += contradictions(pool)
    findings += _rival_versions(pool, chain)
    found = Reading(journals, findings, [*_newer(pool, chain)])
    return Reading(journals, [*findings, *_rival_reports(found.totals())], found.newer)


def keep_evidence(copy: Path, finding: Finding) -> Path:
    """Write a finding with its documents below the copy; return where it is."""
    content = canonical_json({"what": finding.what, "documents": [*finding.documents]})
    path = copy / EVIDENCE / f"{sha256('evidence', content)[:16]}.json"
    replace(path, content)
    return path


def contradictions(signed: Iterable[Found]) -> Iterator[Finding]:
    """Yield each two statements of one signer that are of one kind and subject, or of one place."""
    first: dict[tuple[object, ...], Found] = {}
    told: set[frozenset[str]] = set()
    for each in signed:
        body = each.body
        subject = f"two statements of kind {body.kind} about {body.subject}"
        place = f"two statements as entry {body.entry.number} of its journal"
        for slot, what in (
            ((each.signer, body.kind, body.subject), subject),
            ((each.signer, body.entry.epoch, body.entry.number), place),
        ):
            other = first.setdefault(slot, each)
            both = frozenset((other.digest, each.digest))
            if len(both) == 2 and both not in told:
                told.add(both)
                yield Finding(f"{each.signer} signed {what}", (other.to_json(), each.to_json()))


def _followed(party: ServiceParty, read: Read, versions: Mapping[str, Consortium]) -> NodeJournal:
    journal, chain = NodeJournal(party.name), Chain(*_KINDS)
    try:
        for shown in read(party):
            journal.signed += _verified(shown, versions)
            chain.follow(shown)
            journal.entries.append(shown)
    except Unavailable as error:
        journal.silent, journal.broken = True, str(error)
    except (ProtocolError, Refused) as error:
        journal.broken = str(error)
    return journal


def _verified(shown: Shown, versions: Mapping[str, Consortium]) -> list[Found]:
    """Return an entry's statement if it is shown, and one of the versions' parties signed it."""
    if shown.statement is None:
        return []
    with suppress(ProtocolError):
        signed: Signed[Statement] = from_json(shown.statement.document, *_KINDS)
        if signed.body.manifest in versions:
            versions[signed.body.manifest].verify(signed)
            return [signed]
    return []


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
    if journal.broken is not None or len(journal.entries) >= len(kept):
        return None
    return Finding(
        f"{journal.node} shows a journal that was rolled back: it has {len(journal.entries):,} of "
        f"the {len(kept):,} entries that it had",
        (kept[-1].model_dump(mode="json"),),
    )


def _of_manifests(signed: Iterable[Found]) -> Iterator[Found]:
    return (each for each in signed if isinstance(each.body, ManifestStatement))


def _newer(pool: Iterable[Found], chain: Sequence[Consortium]) -> Iterator[Found]:
    """Yield statements of this consortium's versions after the newest one of `chain`."""
    for each in _of_manifests(pool):
        if each.body.authority == chain[0].manifest.identity and each.body.sequence > len(chain):
            yield each


def _rival_versions(pool: Sequence[Found], chain: Sequence[Consortium]) -> Iterator[Finding]:
    """Yield the statements of other versions than those of `chain`, and of two newer ones.

    What a node signed before an emergency took that version's place contradicts nothing.
    """
    for each in _of_manifests(pool):
        body = each.body
        if body.authority != chain[0].manifest.identity:
            yield Finding(
                f"{each.signer} signed a version of another consortium's manifest",
                (each.to_json(),),
            )
        elif body.sequence <= len(chain):
            version = chain[body.sequence - 1]
            is_replaced = version.manifest.emergency is not None and not body.emergency
            if body.following != version.digest and not is_replaced:
                yield Finding(
                    f"{each.signer} signed another version {body.sequence} of the manifest than "
                    "the directory has",
                    (each.to_json(), version.signed_manifest.to_json()),
                )
    yield from _rivals(
        ((each.body.subject, each.body.following, each) for each in _newer(pool, chain)),
        "the authority had two versions signed with the number {}",
    )


def _rival_reports(totals: Mapping[str, Sequence[Found]]) -> Iterator[Finding]:
    """Yield the jobs of which nodes signed totals for different reports."""
    yield from _rivals(
        ((job, each.body.report, each) for job, signed in totals.items() for each in signed),
        "Compute nodes signed their totals of job {} for two reports",
    )


def _rivals(named: Iterable[tuple[str, str, Found]], what: str) -> Iterator[Finding]:
    """Yield a finding for each subject of which there are two digests."""
    first: dict[str, tuple[str, Found]] = {}
    told: set[str] = set()
    for subject, digest, each in named:
        other_digest, other = first.setdefault(subject, (digest, each))
        if digest != other_digest and subject not in told:
            told.add(subject)
            shown = subject.partition("/")[2] or subject
            yield Finding(what.format(shown), (other.to_json(), each.to_json()))
