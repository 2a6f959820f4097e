"""Answers data holders' signed queries: in which rounds did this node take shares of their slots?

A holder that lost its ledger learns from the answer what it spent. Only the holder can ask, and of
its machines only the one that counts is told.
"""

from typing import Any, Final

from pyroaring import BitMap
from sqlalchemy import Connection

from shoal_compute import machines
from shoal_compute.schema import charges, journal
from shoal_compute.shares import stored_digests
from shoal_protocol.jobs.charges import Charges, ChargesQuery, RoundCharged
from shoal_protocol.jobs.charges_asked import check_age
from shoal_protocol.rounds.attestations import CHARGE
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.service_errors import WrongNode
from shoal_service.keepers import Keepers
from shoal_service.service import Resources
from shoal_service.signed_documents import read_signed

_MOST_ENTRIES: Final = 64  # of one answer: shares are looked up on the thread that stores them


class ChargesAnswers:
    """Checks each query, and signs answers from the journal and the shares on file."""

    def __init__(self, resources: Resources, keepers: Keepers) -> None:
        """Sign as the node whose `resources` they are, once others told it of machines."""
        self._own = resources
        self._keepers = keepers
        self._telling = resources.worker("telling")

    async def answer(self, encoded: bytes, *, after: int) -> bytes:
        """Answer a signed query from journal entry `after` on, by the charges that this node signs.

        If another machine of the holder counts, the answer is that one's query.

        Raises:
            MalformedDocument, UnsupportedVersion: it is no query.
            UnknownManifest, UnknownHolder, RevokedHolder, WrongSigner, BadSignature
            WrongNode: it asks another one.
            StaleQuery: it is too old, or dated ahead.
            LedgerBroken: others have what this node signed, and its ledger lacks: its word on
                charges would only stop who hears it.
            StorageUnavailable
        """
        signed, slots = await self._telling.run(self._read, encoded)
        query = signed.body
        await self._keepers.check()
        kept = await self._own.storage.run(machines.register, signed)
        if decode(kept, ChargesQuery).body.machine != query.machine:
            return kept
        found = await self._own.storage.run(read_stretch, query.holder, slots, after)
        body = Charges(
            manifest=query.manifest,
            node=self._own.name,
            nonce=query.nonce,
            holder=query.holder,
            after=after,
            **found,
        )
        return (await self._telling.run(self._own.sign, body)).encode()

    def _read(self, encoded: bytes) -> tuple[Signed[ChargesQuery], BitMap]:
        """Return a query that is the holder's own and recent, and the holder's slots."""
        signed = read_signed(self._own.book, encoded, ChargesQuery)
        version = self._own.book.get(signed.body.manifest)
        version.verify_in_force(signed, self._own.book.current)
        check_age(signed.body.at, self._own.clock())
        if signed.body.node != self._own.name:
            raise WrongNode
        return signed, version.roster.slots_of(signed.body.holder)


def read_stretch(db: Connection, holder: int, slots: BitMap, after: int) -> dict[str, Any]:
    """Return in which rounds, charged by entries behind `after`, a holder's answer came.

    These are fields of `Charges`.

    Each with those of the holder's `slots` that the round asks.

    Raises:
        LedgerBroken
    """
    head = journal.newest(db)
    # beyond that a replica has just added some
    stretch = charges.after(db, after, most=_MOST_ENTRIES)
    entries = [each for each in stretch if each.head.number <= head.number]
    found = []
    for entry in entries:
        spec = entry.spec
        asked = spec.clients() & slots if entry.kind == CHARGE else BitMap()
        if asked and stored_digests(db, spec.digest, [holder]):
            found.append(
                RoundCharged(
                    entry=entry.head.number,
                    round=spec.digest,
                    job=spec.job,
                    number=spec.number,
                    mu=spec.mu,
                    epsilon=spec.epsilon,
                    clients=encode_clients(asked),
                )
            )
    is_full = len(entries) == _MOST_ENTRIES
    return {
        "through": entries[-1].head.number if is_full else head.number,
        "head": head.number,
        "rounds": tuple(found),
    }
