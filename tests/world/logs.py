"""Logs that are made in a test: as files, with the signatures of the examples' parties."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from nacl.signing import SigningKey

from shoal_consortium import consortium_files
from shoal_consortium.log_reading import CHECKPOINT, ENTRIES
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import load_party
from shoal_protocol.log.checkpoints import (
    GENESIS,
    Checkpoint,
    Cosignature,
    Entry,
    LogProof,
    ManifestEntry,
    Witnessed,
    entry_hash,
    followed,
)
from shoal_protocol.log.entries import CertificateEntry, EndEntry, RoundEntry
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.wire.documents import sign
from tests.world import examples

MANIFEST = examples.CONSORTIUM.manifest
NODES = [node.name for node in MANIFEST.compute_nodes]
AT = datetime(2027, 1, 15, tzinfo=UTC)


def digest(number: int) -> str:
    return f"{number:064x}"


def version(sequence: int = 1, previous: str | None = None, of: str | None = None) -> ManifestEntry:
    return ManifestEntry(
        digest=of or digest(sequence),
        consortium=MANIFEST.consortium,
        sequence=sequence,
        previous=previous,
    )


def rounds(count: int, *, job: int = 0, first: int = 0) -> list[Entry]:
    """Return rounds of a job, each with its result."""
    entries: list[Entry] = []
    for number in range(first, first + count):
        spec = digest(10**9 * (job + 1) + 2 * number)
        end = digest(10**9 * (job + 1) + 2 * number + 1)
        entries += [
            RoundEntry(digest=spec, job=digest(job), number=number),
            EndEntry(kind="result", digest=end, round=spec, ledgers={}),
        ]
    return entries


def certificate(count: int, *, job: int = 0, which: int = 1) -> CertificateEntry:
    return CertificateEntry(
        digest=digest(7 * 10**9 + which), job=digest(job), rounds=count, ledger=digest(3)
    )


def hashes(entries: Iterable[Entry]) -> list[str]:
    return [entry_hash(each.encode()) for each in entries]


def head(entries: Iterable[Entry]) -> str:
    return followed(GENESIS, hashes(entries))


def key_of(name: str) -> SigningKey:
    return examples.signing_key(name)


def signed(
    entries: Sequence[Entry],
    nodes: Iterable[str] = NODES,
    *,
    manifest: Manifest = MANIFEST,
    keys: Callable[[str], SigningKey] = key_of,
) -> Witnessed:
    """Return the checkpoint of a log, signed by the aggregator and by nodes."""
    name = manifest.aggregator.name
    body = Checkpoint(
        consortium=manifest.consortium, aggregator=name, size=len(entries), head=head(entries)
    )
    return Witnessed(
        checkpoint=sign(body, name, keys(name)),
        cosignatures=tuple(
            sign(Cosignature(checkpoint=body.digest, node=node, at=AT), node, keys(node))
            for node in nodes
        ),
    )


def proof(entries: Sequence[Entry], place: int, witnessed: Witnessed) -> LogProof:
    """Return the proof that the log of all entries has the one at a place."""
    later = tuple(hashes(entries[place + 1 :]))
    return LogProof(before=head(entries[:place]), after=later, witnessed=witnessed)


def write(directory: Path, entries: Sequence[Entry], witnessed: Witnessed | None = None) -> None:
    """Write a log as files."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CHECKPOINT).write_bytes((witnessed or signed(entries)).encode())
    (directory / ENTRIES).write_bytes(b"".join(each.encode() + b"\n" for each in entries))


def prove(directory: Path, homes: Path) -> None:
    """Give each version of a consortium directory its proof, by the keys in the parties' homes."""
    chain = open_chain(directory)
    for before, following in pairwise(chain):
        if (
            following.signed_manifest.log_proof is None
            and before.manifest.policy.cosignatures is not None
        ):
            manifest, entry = before.manifest, ManifestEntry.of(following.manifest)
            nodes = [node.name for node in manifest.compute_nodes]

            def key(name: str, before: Consortium = before) -> SigningKey:
                return load_party(homes / name).signing_key_in(before)

            witnessed = signed([entry], nodes, manifest=manifest, keys=key)
            written = proof([entry], 0, witnessed).encode().decode()
            consortium_files.add_proof(directory, following, written)
