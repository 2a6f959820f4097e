"""Signs the next version of the manifest: one of each number, for ever.

The statement is durable in the journal before it leaves. A node that was set back, as others tell
it, signs nothing: it may have forgotten what it signed. Anyone may ask.
"""

from collections.abc import Callable

from shoal_protocol.journal import Link
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.succession import ManifestStatement, check_successor, subject_of
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import LedgerBroken
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_service.keepers import VERSION, Keepers, newest_loss
from shoal_service.service import Resources
from shoal_service.storage.journal import Journal, JournalWriter


class ManifestSigning:
    """This node's signatures of versions of the manifest."""

    def __init__(self, resources: Resources, keepers: Keepers, kept: Journal) -> None:
        """Sign as the node whose `resources` they are; `keepers` tell if it was set back."""
        self._own, self._keepers, self._journal = resources, keepers, kept

    async def sign(self, encoded: bytes) -> bytes:
        """Return this node's statement of the version that follows the one in force here.

        Whoever asks again gets the same bytes, also once the version is in force.

        Raises:
            MalformedDocument, UnsupportedVersion, WrongManifest, BadSignature: it does not follow.
            UnknownManifest: the version before was never in force here.
            UnknownSigner: the version before does not list this node.
            ConflictingDocument: this node signed another version of that number.
            LedgerBroken: this node was set back, or lost what it may have signed of this number.
            NotReady: too few keepers of the journal answer.
            StorageUnavailable
        """
        own = self._own
        reading = own.worker("reading")
        signed = await reading.run_sized(len(encoded), decode, encoded, Manifest)
        await own.share_manifests()
        accepted = {each.digest for each in own.book.versions}
        before = own.book.current
        if signed.digest in accepted:
            before = own.book.get(signed.body.previous or "")
        await reading.run_sized(len(encoded), check_successor, before, signed)
        await self._keepers.check_begun()
        later = signed.body
        subject = subject_of(later.identity, later.sequence, emergency=later.emergency is not None)

        def attest(entry: Link) -> Signed[ManifestStatement]:
            return own.sign(ManifestStatement.of(before, later, node=own.name, entry=entry))

        kept = await self._journal.run(_sign, subject, later, attest)
        statement = decode(kept, ManifestStatement).body
        if statement.following != signed.digest:
            raise ConflictingDocument("this node signed another version of the manifest")
        await self._keepers.acknowledged(statement.entry)
        return kept


def _sign(
    writer: JournalWriter,
    subject: str,
    later: Manifest,
    attest: Callable[[Link], Signed[ManifestStatement]],
) -> bytes:
    """Keep the statement that `attest` signs of a version, or return the one on file.

    Raises:
        LedgerBroken: this node was set back, or lost what it may have signed of this number.
    """
    writer.lock()  # a loss that another replica's operator accepts comes before or after
    loss = newest_loss(writer.db, writer.tables)
    if loss is not None and later.sequence <= loss.sequence and not writer.find(VERSION, subject):
        raise LedgerBroken("this node lost what it signed of this number, as was accepted")
    return writer.append(VERSION, subject, attest)
