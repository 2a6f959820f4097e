"""Signs the consortium's log as a witness: one history, never shorter.

What it signed last is durable before the signature leaves. A node that was set back, as others tell
it, signs nothing: it may have forgotten what it signed. Anyone may ask.
"""

from sqlalchemy import Connection, select, update

from shoal_compute.schema import log_views
from shoal_compute.witnesses import Witnesses
from shoal_protocol.log.checkpoints import (
    GENESIS,
    Checkpoint,
    Cosignature,
    Witnessed,
    WrongProof,
    followed,
)
from shoal_protocol.log.entries import Submission, UnknownLog, WrongStart
from shoal_protocol.wire.documents import Signed
from shoal_service.service import Resources
from shoal_service.storage.database import insert_new


class LogWitness:
    """This node's view of the log of the consortium."""

    def __init__(self, resources: Resources, witnesses: Witnesses) -> None:
        """Keep the view in the storage of `resources`; `witnesses` tell if it was set back."""
        self._own, self._witnesses = resources, witnesses

    async def sign(self, submission: Submission) -> Signed[Cosignature]:
        """Return this node's signature of a checkpoint that follows the last one it signed.

        Raises:
            MalformedDocument: it is of another consortium's log.
            UnknownSigner, WrongSigner, BadSignature: the aggregator did not sign it.
            WrongStart: the entries do not begin after the last checkpoint signed here.
            WrongProof: they do not lead to it.
            LedgerBroken: this node was set back.
            StorageUnavailable: nothing was signed.
        """
        own = self._own
        checkpoint = Witnessed(checkpoint=submission.checkpoint).checked(own.book.current)
        await self._witnesses.check()
        signed = own.sign(Cosignature(checkpoint=checkpoint.digest, node=own.name, at=own.clock()))
        seen = Witnessed(checkpoint=submission.checkpoint, cosignatures=(signed,))
        await own.storage.run(advance, submission, checkpoint, seen.encode())
        return signed

    async def newest(self) -> bytes:
        """Return the last checkpoint signed here of the log of the aggregator in force.

        Raises:
            UnknownLog: nothing of it was signed yet.
        """
        name = self._own.book.current.manifest.aggregator.name
        query = select(log_views.c.document).where(log_views.c.aggregator == name)
        document: bytes | None = await self._own.storage.run(lambda db: db.execute(query).scalar())
        if document is None:
            raise UnknownLog
        return document


def advance(db: Connection, submission: Submission, checkpoint: Checkpoint, seen: bytes) -> None:
    """Go on from the checkpoint on file to this one, in one step.

    Raises:
        WrongStart, WrongProof
    """
    columns = log_views.c
    here = columns.aggregator == checkpoint.aggregator
    row = db.execute(select(columns.size, columns.head).where(here).with_for_update()).first()
    size, head = (0, GENESIS) if row is None else row
    if checkpoint.size - len(submission.after) != size:
        raise WrongStart
    if followed(head, submission.after) != checkpoint.head:
        raise WrongProof("the checkpoint is of another history than the one signed here")
    new = {"size": checkpoint.size, "head": checkpoint.head, "document": seen}
    if row is not None:
        db.execute(update(log_views).where(here).values(**new))
    elif not insert_new(db, log_views, aggregator=checkpoint.aggregator, **new):
        raise WrongStart  # another replica signed the first one
