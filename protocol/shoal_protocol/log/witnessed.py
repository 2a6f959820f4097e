"""Whose signatures a manifest asks for on the consortium's log, and proofs by them.

Every Compute node is a witness: it signs a checkpoint that is consistent with all that it signed
before. Entries count once a quorum q of the M witnesses signed a checkpoint that has them: to show
two histories, 2q - M witnesses must lie.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_protocol.log.notes import (
    COSIGNATURE,
    ED25519,
    Checkpoint,
    Note,
    NoteKey,
    decimal,
    hash_in,
    read_note,
)
from shoal_protocol.log.proofs import MOST_HASHES, check_inclusion, leaf_hash
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.succession import TooFewWitnesses as TooFewWitnesses
from shoal_protocol.trust.succession import origin_of as origin_of
from shoal_protocol.wire.errors import BadSignature, MalformedDocument

PROOF: Final = "c2sp.org/tlog-proof@v1"


def lying_witnesses(manifest: Manifest) -> int:
    """Return how many Compute nodes must lie for two parties to be shown two histories."""
    return 2 * manifest.quorum - len(manifest.compute_nodes)


def log_key(manifest: Manifest) -> NoteKey:
    """Return the aggregator's key, which signs checkpoints."""
    key = bytes.fromhex(manifest.aggregator.verify_key)
    return NoteKey(origin_of(manifest), ED25519, key)


def witness_name(manifest: Manifest, node: str) -> str:
    """Return the name under which a Compute node signs."""
    return f"{origin_of(manifest)}/{node}"


def witness_keys(manifest: Manifest) -> dict[str, NoteKey]:
    """Return the Compute nodes' keys, by name of the node."""
    return {
        node.name: NoteKey(
            witness_name(manifest, node.name), COSIGNATURE, bytes.fromhex(node.verify_key)
        )
        for node in manifest.compute_nodes
    }


def signed_checkpoint(note: Note, manifest: Manifest) -> Checkpoint:
    """Return the checkpoint that the manifest's aggregator signed.

    Raises:
        MalformedDocument: it is no checkpoint, or of another log.
        BadSignature
    """
    found = note.checkpoint
    if found.origin != origin_of(manifest):
        raise MalformedDocument("the checkpoint is of another log")
    if note.signed_at(log_key(manifest)) is None:
        raise BadSignature("the manifest's aggregator did not sign the checkpoint")
    return found


def cosigners(note: Note, manifest: Manifest) -> dict[str, int]:
    """Return which Compute nodes signed, and when, in seconds since 1970.

    Raises:
        BadSignature
    """
    signed = {node: note.signed_at(key) for node, key in witness_keys(manifest).items()}
    return {node: at for node, at in signed.items() if at is not None}


def check_cosigned(note: Note, manifest: Manifest) -> Checkpoint:
    """Return a checkpoint that the aggregator and a quorum of the manifest's nodes signed.

    Raises:
        MalformedDocument, BadSignature
        TooFewWitnesses
    """
    found = signed_checkpoint(note, manifest)
    signed, needed = len(cosigners(note, manifest)), manifest.quorum
    if signed < needed:
        raise TooFewWitnesses(f"{signed} of the Compute nodes signed; {needed} are needed")
    return found


@dataclass(frozen=True)
class LogProof:
    """That the log has an entry at `index`: the hashes from there to the root of `note`."""

    index: int
    hashes: Sequence[bytes]
    note: Note

    def __str__(self) -> str:
        """Return the proof as tlog-proof writes it."""
        hashes = "".join(f"{base64.b64encode(each).decode()}\n" for each in self.hashes)
        return f"{PROOF}\nindex {self.index}\n{hashes}\n{self.note}"

    def check(self, entry: bytes, manifest: Manifest) -> Checkpoint:
        """Return the checkpoint with this entry, which a quorum of the manifest's nodes signed.

        Raises:
            MalformedDocument, BadSignature, TooFewWitnesses, WrongProof
        """
        found = check_cosigned(self.note, manifest)
        check_inclusion(self.index, found.size, leaf_hash(entry), self.hashes, found.root)
        return found


def read_proof(written: str) -> LogProof:
    """Decode a proof; nothing of it is checked.

    Raises:
        MalformedDocument
    """
    head, _, note = written.partition("\n\n")
    first, *lines = head.split("\n")
    lines = lines[1:] if lines and lines[0].startswith("extra ") else lines
    if first != PROOF or not lines or not lines[0].startswith("index "):
        raise MalformedDocument(f"a proof begins with {PROOF} and the entry's index")
    if len(lines) > MOST_HASHES:
        raise MalformedDocument("a proof has too many hashes")
    index = decimal(lines[0].removeprefix("index "))
    return LogProof(index, tuple(hash_in(each) for each in lines[1:]), read_note(note))
