"""Signed notes, checkpoints and cosignatures, as C2SP specifies them, and who has to sign them.

signed-note: a text, an empty line, and lines "— name base64(key id, signature)".
tlog-checkpoint: the text is the log's origin, its size and its root. tlog-cosignature: a witness
signs the text behind "cosignature/v1" and the time. tlog-witness: `add-checkpoint` hands a
checkpoint to a witness.

Every Compute node is a witness: it signs a checkpoint that is consistent with all that it signed
before. Entries count once a quorum q of the M witnesses signed a checkpoint that has them: to show
two histories, 2q - M witnesses must lie.
"""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from shoal_protocol.log.tiles import (
    HASH_BYTES,
    MOST_HASHES,
    check_inclusion,
    leaf_hash,
)
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.succession import TooFewWitnesses as TooFewWitnesses
from shoal_protocol.trust.succession import origin_of as origin_of
from shoal_protocol.wire.encoding import decode_base64
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, ProtocolError

ED25519: Final = 1
COSIGNATURE: Final = 4
LARGEST_NOTE_BYTES: Final = 1 << 16
MOST_SIGNATURES: Final = 300  # one of the log, and of up to 255 witnesses
_DASH: Final = "— "
_LARGEST_SIZE: Final = 2**63 - 1


@dataclass(frozen=True)
class NoteKey:
    """A public key, 32 bytes, under the name that its signature lines bear."""

    name: str
    kind: int  # `ED25519` of a log, `COSIGNATURE` of a witness
    key: bytes

    @property
    def id(self) -> bytes:
        """Return the 4 bytes that stand before each of its signatures."""
        return sha256(f"{self.name}\n".encode() + bytes([self.kind]) + self.key).digest()[:4]


@dataclass(frozen=True)
class Checkpoint:
    """The head of a log: its origin, its number of entries, and its root, 32 bytes."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """Return the text that is signed."""
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"


@dataclass(frozen=True)
class Note:
    """A text and its signatures, (name, key id and signature); nothing is verified by being here.

    `str` gives the note as it is written.
    """

    text: str
    signatures: tuple[tuple[str, bytes], ...]

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(line(*each) for each in self.signatures)}"

    @property
    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint that the text is; extension lines are refused.

        Raises:
            MalformedDocument
        """
        lines = self.text.split("\n")
        if len(lines) != 4 or not lines[0]:
            raise MalformedDocument("a checkpoint has three lines")
        found = Checkpoint(lines[0], decimal(lines[1]), hash_in(lines[2]))
        if found.text != self.text:
            raise MalformedDocument("a checkpoint is not written in its one form")
        return found

    def signed_at(self, key: NoteKey) -> int | None:
        """Return when `key` signed, in seconds since 1970 (0: it says no time); None if it did not.

        Raises:
            BadSignature: a line bears its name and id and does not verify.
        """
        found = None
        for name, signature in self.signatures:
            if name == key.name and signature[:4] == key.id:
                found = _verified(self.text, key, signature[4:])
        return found

    def with_lines(self, lines: str) -> "Note":
        """Return the note with further signature lines; those that it has are not repeated.

        Raises:
            MalformedDocument
        """
        more = [each for each in signatures_in(lines) if each not in self.signatures]
        return Note(self.text, (*self.signatures, *more))


def _verified(text: str, key: NoteKey, signature: bytes) -> int:
    try:
        at = 0
        message = text
        if key.kind == COSIGNATURE:
            (at,) = struct.unpack(">Q", signature[:8])
            message = _cosigned(text, at)
            signature = signature[8:]
        VerifyKey(key.key).verify(message.encode(), signature)
    except (BadSignatureError, ValueError, struct.error) as error:
        raise BadSignature from error
    return at


def _cosigned(text: str, at: int) -> str:
    return f"cosignature/v1\ntime {at}\n{text}"


def sign_note(text: str, name: str, key: SigningKey) -> str:
    """Return a log's signature line."""
    own = NoteKey(name, ED25519, bytes(key.verify_key))
    return line(name, own.id + key.sign(text.encode()).signature)


def cosign(text: str, name: str, key: SigningKey, *, at: int) -> str:
    """Return a witness's signature line, made `at` so many seconds since 1970."""
    own = NoteKey(name, COSIGNATURE, bytes(key.verify_key))
    signature = key.sign(_cosigned(text, at).encode()).signature
    return line(name, own.id + struct.pack(">Q", at) + signature)


def line(name: str, signature: bytes) -> str:
    """Return a signature line; `signature` begins with the key's id."""
    return f"{_DASH}{name} {_base64(signature)}\n"


def read_note(note: str) -> Note:
    """Decode a note.

    Raises:
        MalformedDocument
    """
    text, empty, lines = note.rpartition("\n\n")
    if not empty or any(each < " " and each != "\n" for each in note):
        raise MalformedDocument("a note is a text, an empty line and signatures")
    return Note(f"{text}\n", signatures_in(lines))


def signatures_in(lines: str) -> tuple[tuple[str, bytes], ...]:
    """Decode signature lines.

    Raises:
        MalformedDocument
    """
    *found, rest = lines.split("\n")
    if rest or not 0 < len(found) <= MOST_SIGNATURES:
        raise MalformedDocument("signature lines end a note, each with a line feed")
    return tuple(_signature(each) for each in found)


def _signature(written: str) -> tuple[str, bytes]:
    name, _, encoded = written.removeprefix(_DASH).partition(" ")
    signature = _bytes(encoded)
    if not written.startswith(_DASH) or len(signature) < 5 or not is_name(name):
        raise MalformedDocument(
            "a signature line is a dash, a name, and the key's id and signature"
        )
    return name, signature


def is_name(name: str) -> bool:
    """Tell whether a key may have this name."""
    return name != "" and "+" not in name and not any(each.isspace() for each in name)


def decimal(written: str) -> int:
    """Return the number that decimal digits without leading zeros say.

    Raises:
        MalformedDocument
    """
    if not (written.isascii() and written.isdecimal() and len(written) < 20):
        raise MalformedDocument("a number is written in decimal digits")
    number = int(written)
    if str(number) != written or number > _LARGEST_SIZE:
        raise MalformedDocument("a number is too large, or begins with a zero")
    return number


def hash_in(written: str) -> bytes:
    """Return the hash that base64 says.

    Raises:
        MalformedDocument
    """
    found = _bytes(written)
    if len(found) != HASH_BYTES:
        raise MalformedDocument("a hash has 32 bytes")
    return found


def _bytes(written: str) -> bytes:
    try:
        return decode_base64(written)
    except ValueError:
        raise MalformedDocument("a note has canonical base64") from None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


PROOF: Final = "c2sp.org/tlog-proof@v1"


def lying_witnesses(manifest: Manifest) -> int:
    """Return how many Compute nodes must lie for two parties to be shown two histories."""
    return 2 * manifest.quorum - len(manifest.compute_nodes)


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
    key = NoteKey(found.origin, ED25519, bytes.fromhex(manifest.aggregator.verify_key))
    if note.signed_at(key) is None:
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


SIZE_MEDIA_TYPE: Final = "text/x.tlog.size"  # of the answer that says which size is due
ADD_CHECKPOINT: Final = "/witness/add-checkpoint"


class UnknownLog(ProtocolError):
    title = "This log is not witnessed here, or nothing of it was signed yet"
    status = 404
    remedy = "Send a checkpoint of the log of this consortium."


class WrongOldSize(ProtocolError):
    title = "The proof must begin at the last checkpoint that was signed here"
    status = 409
    remedy = "Send the proof from the size that the answer says."

    def __init__(self, size: int = 0, *, too_large: bool = False) -> None:
        """Say the `size` that was signed last; `too_large`: the proof begins beyond its end."""
        super().__init__()
        self.size = size
        self.too_large = too_large


@dataclass(frozen=True)
class Submission:
    """A checkpoint, and the proof that the first `old` entries are those that were signed last."""

    old: int
    proof: Sequence[bytes]
    note: Note

    def __str__(self) -> str:
        """Return the body that is sent."""
        hashes = "".join(f"{base64.b64encode(each).decode()}\n" for each in self.proof)
        return f"old {self.old}\n{hashes}\n{self.note}"


def read_submission(body: bytes) -> Submission:
    """Decode a body.

    Raises:
        MalformedDocument
    """
    try:
        head, _, note = body.decode().partition("\n\n")
    except UnicodeDecodeError:
        raise MalformedDocument("a note is UTF-8") from None
    first, *lines = head.split("\n")
    if not first.startswith("old ") or len(lines) > MOST_HASHES:
        raise MalformedDocument(f"a submission has an old size, and at most {MOST_HASHES} hashes")
    proof = tuple(hash_in(each) for each in lines)
    return Submission(decimal(first.removeprefix("old ")), proof, read_note(note))
