"""Keeps the highest ledger head that each Compute node has signed: no older one counts later.

A node is known by its name: its ledger outlives its keys, and only another name begins another.
"""

from shoal_holder.state_file import StateFile
from shoal_protocol.privacy.ledger import EMPTY, Head
from shoal_protocol.wire.errors import LedgerBroken


def note(file: StateFile, node: str, head: Head) -> None:
    """Keep a head that a node has signed, unless a higher one is kept.

    Raises:
        LedgerBroken: it lies before the one that is kept, or is another one in its place.
    """
    kept = Head(*(file.one("SELECT number, digest FROM node_heads WHERE node = ?", node) or EMPTY))
    if head.number < kept.number:
        raise LedgerBroken(
            f"its ledger ends with entry {head.number:,}, and ended with {kept.number:,}"
        )
    if head.number == kept.number and head != kept:
        raise LedgerBroken(f"its ledger's entry {head.number:,} is another one than it was")
    if head != kept:
        with file.transaction():
            file.database.execute(
                "INSERT INTO node_heads VALUES (?1, ?2, ?3)"
                " ON CONFLICT (node) DO UPDATE SET number = ?2, digest = ?3",
                (node, head.number, head.digest),
            )
