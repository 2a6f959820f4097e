"""Holds a service's ledger against what else its database knows of its rounds; reads no table.

A ledger that was emptied, or written anew from its first entry on, is one unbroken chain still.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from shoal_protocol.errors import LedgerBroken, MalformedDocument, WrongCharge
from shoal_protocol.ledger import LedgerEntry, check_anchors, check_charge
from shoal_protocol.rounds import RoundSpec

_DIGITS = 12  # enough to tell rounds apart


class FiledRound(NamedTuple):
    """A round on file, and whether its charge may have been given back."""

    spec: RoundSpec
    returnable: bool


def see_one_state(db: Connection) -> None:
    """Have a transaction that has not begun to read see one state of the database throughout.

    Nobody is kept from adding meanwhile. On SQLite every transaction of ours sees one state.
    """
    if db.dialect.name == "postgresql":
        db.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def check_rounds(
    entries: Sequence[LedgerEntry],
    rounds: Iterable[FiledRound],
    anchors: Iterable[LedgerEntry],
    *,
    ledger: str,
) -> None:
    """Check that a verified ledger charges each of `rounds` its price, and no other round.

    `anchors` are entries of it in documents that its party signed; each stands for all before it.

    Raises:
        LedgerBroken
    """
    charges = {each.round: each for each in entries if each.kind == "charge"}
    returned = {each.round for each in entries if each.kind == "return"}
    for spec, returnable in rounds:
        name = f"round {spec.digest[:_DIGITS]}"
        entry = charges.pop(spec.digest, None)
        if entry is None:
            raise LedgerBroken(f"{name} is on file and not in the ledger: entries were removed")
        try:
            check_charge(entry, spec, node=ledger)
        except WrongCharge:
            what = f"ledger entry {entry.number} is not what {name} on file costs"
            raise LedgerBroken(what) from None
        if spec.digest in returned and not returnable:
            raise LedgerBroken(f"the ledger gives {name} back, which may have released something")
    for entry in charges.values():
        raise LedgerBroken(f"ledger entry {entry.number} charges a round that is not on file")
    try:
        check_anchors(entries, anchors)
    except MalformedDocument as error:
        raise LedgerBroken(str(error)) from None
