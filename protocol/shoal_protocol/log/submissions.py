"""A checkpoint on its way to a witness (C2SP tlog-witness, add-checkpoint)."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_protocol.log.notes import Checkpoint, Note, decimal, hash_in, read_note
from shoal_protocol.log.proofs import EMPTY_ROOT, MOST_HASHES, WrongProof
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

SIZE_MEDIA_TYPE: Final = "text/x.tlog.size"  # of the answer that says which size is due
ADD_CHECKPOINT: Final = "/witness/add-checkpoint"


class UnknownLog(ProtocolError):
    code = "unknown-log"
    title = "This log is not witnessed here, or nothing of it was signed yet"
    status = 404
    remedy = "Send a checkpoint of the log of this consortium."


class WrongOldSize(ProtocolError):
    code = "wrong-old-size"
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

    def check_beginning(self, checkpoint: Checkpoint) -> None:
        """Check what the empty tree asks for.

        Raises:
            WrongProof
        """
        if self.old == 0 and self.proof:
            raise WrongProof("from the empty tree no proof is needed")
        if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
            raise WrongProof("the empty tree has another root")


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
