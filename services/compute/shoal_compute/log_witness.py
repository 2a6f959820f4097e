"""Signs the consortium's log as a witness (C2SP tlog-witness): one history, never shorter.

What it signed last is durable before the signature leaves. A node that was set back, as others tell
it, signs nothing: it may have forgotten what it signed. Anyone may ask.
"""

from hashlib import sha256

from sqlalchemy import Connection, select, update

from shoal_compute.schema import log_views
from shoal_compute.witnesses import Witnesses
from shoal_hosting.service import Resources
from shoal_hosting.storage.database import insert_new
from shoal_protocol.log.notes import (
    Checkpoint,
    Submission,
    UnknownLog,
    WrongOldSize,
    cosign,
    origin_of,
    signed_checkpoint,
    witness_name,
)
from shoal_protocol.log.tiles import EMPTY_ROOT, check_consistency


class LogWitness:
    """This node's view of the log of the consortium."""

    def __init__(self, resources: Resources, witnesses: Witnesses) -> None:
        """Keep the view in the storage of `resources`; `witnesses` tell if it was set back."""
        self._own, self._witnesses = resources, witnesses

    async def sign(self, submission: Submission) -> str:
        """Return this node's signature line under a checkpoint that follows the last one it signed.

        Raises:
            MalformedDocument
            UnknownLog: it is of another log.
            BadSignature: the aggregator did not sign it.
            WrongOldSize: the proof does not begin at the last checkpoint signed here.
            WrongProof: it is not consistent with that one.
            LedgerBroken: this node was set back.
            StorageUnavailable: nothing was signed.
        """
        manifest = self._own.book.current.manifest
        note = submission.note
        if note.checkpoint.origin != origin_of(manifest):
            raise UnknownLog
        checkpoint = signed_checkpoint(note, manifest)
        await self._witnesses.check()
        name, key = witness_name(manifest, self._own.name), self._own.key_in()
        at = int(self._own.clock().timestamp())
        line = cosign(note.text, name, key, at=at)
        await self._own.storage.run(advance, submission, checkpoint, str(note.with_lines(line)))
        return line

    async def newest(self, origin_hash: str) -> str:
        """Return the last checkpoint signed here, of the log whose origin has this SHA-256.

        Raises:
            UnknownLog: it is of another log, or nothing was signed yet.
        """
        origin = origin_of(self._own.book.current.manifest)
        query = select(log_views.c.note).where(log_views.c.origin == origin)
        note: str | None = await self._own.storage.run(lambda db: db.execute(query).scalar())
        if note is None or sha256(origin.encode()).hexdigest() != origin_hash:
            raise UnknownLog
        return note


def advance(db: Connection, submission: Submission, checkpoint: Checkpoint, note: str) -> None:
    """Go on from the checkpoint on file to this one, in one step.

    Raises:
        WrongOldSize, WrongProof
    """
    columns = log_views.c
    here = columns.origin == checkpoint.origin
    row = db.execute(select(columns.size, columns.root).where(here).with_for_update()).first()
    size, root = (0, EMPTY_ROOT) if row is None else row
    if submission.old > checkpoint.size or submission.old != size:
        raise WrongOldSize(size, too_large=submission.old > checkpoint.size)
    check_consistency(size, checkpoint.size, root, checkpoint.root, submission.proof)
    new = {"size": checkpoint.size, "root": checkpoint.root, "note": note}
    if row is None:
        is_first = insert_new(db, log_views, origin=checkpoint.origin, **new)
        if not is_first:  # another replica signed the first one
            raise WrongOldSize(db.execute(select(columns.size).where(here)).scalar_one())
    else:
        db.execute(update(log_views).where(here).values(**new))
