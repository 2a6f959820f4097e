"""Reads the consortium's log from its aggregator or from a copy, checks all of it, keeps a copy.

A copy is two files: the checkpoint, and the entries, one a line.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pydantic

from shoal_kit.peers.service_calls import Endpoint
from shoal_kit.startup import replace
from shoal_protocol.log.checkpoints import (
    GENESIS,
    Entry,
    Witnessed,
    WrongProof,
    entry_hash,
    followed,
)
from shoal_protocol.log.entries import (
    CHECKPOINTS,
    Finding,
    ForkedLog,
    Monitor,
    check_same,
    decode_entry,
)
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import Count, canonical_json
from shoal_protocol.wire.errors import ProtocolError

CHECKPOINT: Final = "checkpoint.json"
ENTRIES: Final = "entries.jsonl"
EVIDENCE: Final = "evidence"
_PAGE: Final = 200  # entries

Read = Callable[[], tuple[bytes, list[bytes]]]
"""Returns the cosigned checkpoint, and all entries, of which there may be more than it has."""


class _Entries(pydantic.BaseModel):
    entries: list[dict[str, Any]]
    next: Count | None


def from_aggregator(endpoint: Endpoint) -> Read:
    """Read by HTTPS.

    Raises (on reading):
        Unavailable: no answer.
        Refused: nothing is there.
    """

    def read() -> tuple[bytes, list[bytes]]:
        checkpoint = canonical_json(endpoint.ask(dict[str, Any], CHECKPOINTS))
        pages = endpoint.pages(_Entries, "/v1/log/entries", count=_PAGE)
        return checkpoint, [canonical_json(each) for page in pages for each in page.entries]

    return read


def from_files(directory: Path) -> Read:
    """Read a copy; raises OSError on reading what is not there."""
    return lambda: (
        (directory / CHECKPOINT).read_bytes(),
        (directory / ENTRIES).read_bytes().splitlines(),
    )


@dataclass(frozen=True)
class Reading:
    """A log of which everything was checked.

    `version` is the newest of which a quorum of the Compute nodes signed. `seen` is how many of the
    entries were in the copy; `findings` are of all of them.
    """

    witnessed: Witnessed
    version: Consortium
    entries: Sequence[Entry]
    seen: int
    findings: Sequence[Finding]


def read_log(
    read: Read,
    chain: Sequence[Consortium],
    *,
    copy: Path | None,
    others: Sequence[Witnessed] = (),
) -> Reading:
    """Read the log, and check it from its first entry to its cosigned checkpoint.

    `chain` are the manifest versions, of which one's aggregator and a quorum of its nodes must have
    signed. The checkpoint that `copy` has of before must be of its beginning, and so must
    `others`, which somebody else was shown. Then `copy` is all of the log.

    Raises:
        ForkedLog: an earlier checkpoint, of the copy or of others, is of another history.
        WrongProof: the entries do not lead to the checkpoint, or the log got shorter.
        MalformedDocument, UnknownSigner, WrongSigner, BadSignature, TooFewWitnesses
        Refused, Unavailable, OSError: it cannot be read.
    """
    shown, encoded = read()
    witnessed = Witnessed.decode(shown)
    version = _version_of(witnessed, chain)
    head = witnessed.cosigned(version)
    seen = 0
    if copy is not None and (copy / CHECKPOINT).exists():
        others = [Witnessed.decode((copy / CHECKPOINT).read_bytes()), *others]
        seen = others[0].checkpoint.body.size
    for other in others:
        check_same(witnessed, other, version, _version_of(other, chain))
        if other.checkpoint.body.size > head.size:
            raise WrongProof("the log is shorter than a checkpoint of it that was shown before")
    encoded = encoded[: head.size]
    heads = [GENESIS]
    for each in map(entry_hash, encoded):
        heads.append(followed(heads[-1], [each]))
    if heads[-1] != head.head or len(encoded) != head.size:
        raise WrongProof("the entries are not those of the checkpoint")
    for other in others:
        older = other.checkpoint.body
        if heads[older.size] != older.head:
            raise ForkedLog(witnessed, other)
    monitor, entries = Monitor(), [decode_entry(each) for each in encoded]
    for entry in entries:
        monitor.follow(entry)
    if copy is not None:
        # the checkpoint comes last: until then the copy is the older log
        replace(copy / ENTRIES, b"".join(each + b"\n" for each in encoded))
        replace(copy / CHECKPOINT, witnessed.encode())
    return Reading(witnessed, version, entries, seen, monitor.findings)


def _version_of(witnessed: Witnessed, chain: Sequence[Consortium]) -> Consortium:
    """Return the newest version whose aggregator and quorum of nodes signed, or the aggregator.

    That is an earlier one of a copy from before nodes or their keys changed. It is the newest of
    all if none did.
    """
    for check in (Witnessed.cosigned, Witnessed.checked):
        for version in reversed(chain):
            with suppress(ProtocolError):
                check(witnessed, version)
                return version
    return chain[-1]


def keep_evidence(copy: Path, fork: ForkedLog) -> list[Path]:
    """Write the two checkpoints of a fork below the copy; return where they are."""
    kept = []
    for each in (fork.one, fork.other):
        body = each.checkpoint.body
        kept.append(copy / EVIDENCE / f"{body.size}-{body.head[:16]}.json")
        replace(kept[-1], each.encode())
    return kept
