"""Keeps which machine of each data holder counts: that of the highest epoch, and the first of it.

A holder's own signature says which that is, so nodes take one another's word for it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, select, update

from shoal_compute.schema import machines, rounds
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.jobs.charges import ChargesQuery
from shoal_protocol.jobs.charges_asked import NodeQuery
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    RevokedHolder,
    UnknownManifest,
)
from shoal_service.service import Resources
from shoal_service.storage.database import insert_new

MOST_TOLD: Final = 500  # machines that one answer names
_COUNTING: Final = (
    select(machines.c.holder, machines.c.epoch, machines.c.rounds)
    .where(machines.c.holder.between(bindparam("least"), bindparam("greatest")))
    .where(machines.c.epoch > 0)
    .order_by(machines.c.holder)
    .with_for_update(read=True)
)


class Machine(NamedTuple):
    """The machine of a data holder that counts."""

    epoch: int
    rounds: int  # the last round here when its epoch became known


def register(db: Connection, signed: Signed[ChargesQuery]) -> bytes:
    """Let the machine that signed count, unless another one does; return the one's query that does.

    The transaction waits for those that store shares of the holder's other machine.
    """
    body = signed.body
    row = {
        "epoch": body.epoch,
        "instance": body.instance,
        "rounds": db.execute(select(func.coalesce(func.max(rounds.c.number), 0))).scalar_one(),
        "query": signed.encode(),
    }
    if not insert_new(db, machines, holder=body.holder, **row):
        older = (machines.c.holder == body.holder) & (machines.c.epoch < body.epoch)
        db.execute(update(machines).where(older).values(row))
    kept = select(machines.c.query).where(machines.c.holder == body.holder)
    return bytes(db.execute(kept).scalar_one())


def counting(db: Connection, holders: Sequence[int]) -> dict[int, Machine]:
    """Return the machine that counts of those of `holders` that were ever restored.

    Also of others between the least and the greatest of them. None of them is superseded before
    the caller's transaction ends.
    """
    held = db.execute(_COUNTING, {"least": min(holders), "greatest": max(holders)})
    return {holder: Machine(epoch, last) for holder, epoch, last in held}


def restored(db: Connection, first: int) -> list[bytes]:
    """Return the queries of machines that hold a restored state, of holders from `first` on."""
    query = select(machines.c.query).where(machines.c.epoch > 0, machines.c.holder >= first)
    found = db.execute(query.order_by(machines.c.holder).limit(MOST_TOLD))
    return [bytes(each) for each in found.scalars()]


async def hear_of_machines(own: Resources, party: ServiceParty) -> None:
    """Take over which machines of data holders count at another node; their signatures say so.

    Raises:
        Unavailable, ProtocolError, ValueError: the node does not tell.
        StorageUnavailable
    """
    if party not in own.book.current.manifest.compute_nodes:
        return
    first, told = 0, MOST_TOLD
    body = NodeQuery(manifest=own.book.current.digest, node=own.name, at=own.clock())
    query = own.sign(body).encode()
    while told == MOST_TOLD:
        path = f"/v1/machines?first={first}"
        reply = await own.peers.to(party).ask("POST", path, query)
        if reply.status != 200:
            raise Unavailable("the peer refused to tell of machines")
        answer = reply.json()
        if not isinstance(answer, dict) or not isinstance(answer.get("documents"), list):
            raise MalformedDocument("an answer lists documents")
        told = len(answer["documents"])
        for value in answer["documents"]:
            signed = from_json(value, ChargesQuery)
            if signed.body.holder < first:
                raise MalformedDocument("machines are told in the order of their holders")
            first = signed.body.holder + 1
            # its key may have been replaced since; the holder itself will ask by the new one
            with suppress(UnknownManifest, BadSignature, RevokedHolder):
                version = own.book.get(signed.body.manifest)
                version.verify_in_force(signed, own.book.current)
                await own.storage.run(register, signed)
