"""Logs that are made in a test: as files, with the signatures of the examples' parties."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from nacl.signing import SigningKey

from shoal_consortium import consortium_files
from shoal_consortium.log_reading import tree_of
from shoal_hosting.manifests.manifest_chain import open_chain
from shoal_hosting.party import load_party
from shoal_protocol.log.entries import CertificateEntry, EndEntry, Entry, ManifestEntry, RoundEntry
from shoal_protocol.log.notes import (
    Checkpoint,
    LogProof,
    Note,
    cosign,
    origin_of,
    read_note,
    sign_note,
    witness_name,
)
from shoal_protocol.log.tiles import (
    ENTRIES,
    WIDTH,
    Tree,
    bundles,
    encode_bundle,
    leaf_hash,
    tile_path,
    widths,
)
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.succession import log_entry
from tests.world import examples

MANIFEST = examples.CONSORTIUM.manifest
NODES = [node.name for node in MANIFEST.compute_nodes]
AT = 1_800_000_000


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


def tree(entries: Iterable[Entry]) -> Tree:
    return tree_of([leaf_hash(each.encode()) for each in entries])


def key_of(name: str) -> SigningKey:
    return examples.signing_key(name)


def signed(
    entries: Sequence[Entry], nodes: Iterable[str] = NODES, *, manifest: Manifest = MANIFEST
) -> Note:
    """Return the checkpoint of a log, signed by the aggregator and by nodes."""
    origin = origin_of(manifest)
    text = Checkpoint(origin, len(entries), tree(entries).root()).text
    lines = sign_note(text, origin, key_of("aggregator"))
    for node in nodes:
        lines += cosign(text, witness_name(manifest, node), key_of(node), at=AT)
    return read_note(f"{text}\n{lines}")


def write(directory: Path, entries: Sequence[Entry], note: Note | None = None) -> None:
    """Write a log as files."""
    made = tree(entries)
    files = {"checkpoint": str(note or signed(entries)).encode()}
    for index, width in bundles(0, len(entries)):
        some = entries[index * WIDTH : index * WIDTH + width]
        files[tile_path(ENTRIES, index, width)] = encode_bundle([each.encode() for each in some])
    for where in widths(len(entries)):
        files[tile_path(*where)] = made.read(*where)
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


def prove(directory: Path, homes: Path) -> None:
    """Give each version of a consortium directory its proof, by the keys in the parties' homes."""
    chain = open_chain(directory)
    for before, following in pairwise(chain):
        if (
            following.signed_manifest.log_proof is None
            and before.manifest.policy.cosignatures is not None
        ):
            entry = log_entry(following.manifest)
            manifest = before.manifest
            origin = origin_of(manifest)
            text = Checkpoint(origin, 1, leaf_hash(entry)).text
            names = [manifest.aggregator.name, *(node.name for node in manifest.compute_nodes)]
            keys = {name: load_party(homes / name).signing_key_in(before) for name in names}
            lines = sign_note(text, origin, keys.pop(manifest.aggregator.name))
            for name, key in keys.items():
                lines += cosign(text, witness_name(manifest, name), key, at=AT)
            proof = LogProof(0, (), read_note(f"{text}\n{lines}"))
            consortium_files.add_proof(directory, following, str(proof))
