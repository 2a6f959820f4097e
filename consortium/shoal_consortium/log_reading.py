"""Reads the consortium's log from its aggregator or from files, checks all of it, keeps a copy.

A copy has the log's own paths, so that any web server can serve it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_hosting.peers.service_calls import Endpoint, Refused, call
from shoal_hosting.startup import replace
from shoal_protocol.log.entries import Entry, Finding, ForkedLog, Monitor, check_same, decode_entry
from shoal_protocol.log.notes import Note, check_cosigned, cosigners, read_note, signed_checkpoint
from shoal_protocol.log.tiles import (
    ENTRIES,
    WIDTH,
    Tree,
    WrongProof,
    bundles,
    decode_bundle,
    leaf_hash,
    root_of,
    tile_path,
    widths,
)
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.wire.errors import ProtocolError

CHECKPOINT: Final = "checkpoint"
EVIDENCE: Final = "evidence"

Read = Callable[[str], bytes]
"""Returns the content at a path below the log's prefix."""


def from_aggregator(endpoint: Endpoint) -> Read:
    """Read by HTTPS.

    Raises (on reading):
        Unavailable: no answer.
        Refused: nothing is there.
    """

    def read(path: str) -> bytes:
        reply = asyncio.run(call(endpoint, "GET", f"/log/{path}"))
        if reply.status != 200:
            raise Refused(f"{endpoint.url} has no {path} of the log (status {reply.status})")
        return reply.body

    return read


def from_files(directory: Path) -> Read:
    """Read files; raises OSError on reading what is not there."""
    return lambda path: (directory / path).read_bytes()


@dataclass(frozen=True)
class Reading:
    """A log of which everything was checked.

    `version` is the newest of which a quorum of the Compute nodes signed. `seen` is how many of the
    entries were in the copy; `findings` are of all of them.
    """

    note: Note
    version: Manifest
    signed_by: dict[str, int]
    entries: Sequence[Entry]
    seen: int
    findings: Sequence[Finding]


def read_log(
    read: Read, chain: Sequence[Consortium], *, copy: Path | None, others: Sequence[Note] = ()
) -> Reading:
    """Read the log, and check it from its first entry to its cosigned checkpoint.

    `chain` are the manifest versions, of which one's aggregator and a quorum of its nodes must have
    signed. The checkpoint that `copy` has of before must be of its beginning, and so must
    `others`, which somebody else was shown. Then `copy` is all of the log.

    Raises:
        ForkedLog: an earlier checkpoint, of the copy or of others, is of another history.
        WrongProof: entries, tiles and checkpoint are not of one tree, or the log got shorter.
        MalformedDocument, BadSignature, TooFewWitnesses
        Refused, Unavailable, OSError: it cannot be read.
    """
    note = read_note(read(CHECKPOINT).decode("utf-8", "replace"))
    manifest = _version_of(note, chain)
    head = check_cosigned(note, manifest)
    seen = 0
    if copy is not None and (copy / CHECKPOINT).exists():
        others = [read_note((copy / CHECKPOINT).read_text(encoding="utf-8")), *others]
        seen = others[0].checkpoint.size
    seen_before = {other: _version_of(other, chain) for other in others}
    for other, version in seen_before.items():
        check_same(note, other, manifest, version)
        if other.checkpoint.size > head.size:
            raise WrongProof("the log is shorter than a checkpoint of it that was shown before")
    paths = [tile_path(ENTRIES, *where) for where in bundles(0, head.size)]
    files = {path: read(path) for path in paths}
    encoded = [entry for bundle in files.values() for entry in decode_bundle(bundle)]
    if len(encoded) != head.size:
        raise WrongProof("a bundle has another number of entries than its path says")
    tree = tree_of([leaf_hash(each) for each in encoded])
    if tree.root() != head.root:
        raise WrongProof("the entries are not those of the checkpoint")
    for other, version in seen_before.items():
        older = signed_checkpoint(other, version)
        if tree.root(older.size) != older.root:
            raise ForkedLog(note, other)
    for where in widths(head.size):
        files[tile_path(*where)] = tree.read(*where)
        if read(tile_path(*where)) != tree.read(*where):
            raise WrongProof("a tile is not that of the entries")
    if copy is not None:
        # the checkpoint comes last: until then the copy is the older log
        for path, content in (files | {CHECKPOINT: str(note).encode()}).items():
            replace(copy / path, content)
    monitor, entries = Monitor(), [decode_entry(each) for each in encoded]
    for entry in entries:
        monitor.follow(entry)
    return Reading(note, manifest, cosigners(note, manifest), entries, seen, monitor.findings)


def tree_of(leaves: Sequence[bytes]) -> Tree:
    """Return the tree over hashes of entries."""
    levels = [list(leaves)]
    while len(levels[-1]) >= WIDTH:
        below = levels[-1]
        full = len(below) // WIDTH
        levels.append([root_of(below[at * WIDTH : (at + 1) * WIDTH]) for at in range(full)])
    return Tree(
        len(leaves),
        lambda level, index, width: b"".join(levels[level][index * WIDTH : index * WIDTH + width]),
    )


def _version_of(note: Note, chain: Sequence[Consortium]) -> Manifest:
    """Return the newest version whose aggregator and quorum of nodes signed, or the aggregator.

    That is an earlier one of a copy from before nodes or their keys changed. It is the newest of
    all if none did.
    """
    for check in (check_cosigned, signed_checkpoint):
        for version in reversed(chain):
            with suppress(ProtocolError):
                check(note, version.manifest)
                return version.manifest
    return chain[-1].manifest


def keep_evidence(copy: Path, fork: ForkedLog) -> list[Path]:
    """Write the two checkpoints of a fork below the copy; return where they are."""
    heads = {
        copy / EVIDENCE / f"{each.checkpoint.size}-{each.checkpoint.root.hex()[:16]}": each
        for each in (fork.one, fork.other)
    }
    for path, note in heads.items():
        replace(path, str(note).encode())
    return list(heads)
