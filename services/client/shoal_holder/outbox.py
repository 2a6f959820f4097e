"""Tracks the stored envelopes and each Compute node's answer to them.

An envelope is erased when a node refused it or its round has ended. Until then the same bytes can
be sent again, for a node may lose what it acknowledged.
"""

from shoal_holder.state import State
from shoal_hosting.outcome import ACKNOWLEDGED, PENDING


def pending_envelope(state: State, round_id: str, node: int) -> bytes | None:
    """Return the envelope that a node has not answered yet; None if there is none."""
    found = state.file.one(
        "SELECT envelope FROM outbox WHERE round = ? AND node = ? AND outcome = ?",
        round_id,
        node,
        PENDING,
    )
    return None if found is None else bytes(found[0])


def has_pending(state: State, round_id: str) -> bool:
    """Tell whether an envelope of a round is not settled."""
    return bool(
        state.file.rows(
            "SELECT 1 FROM outbox WHERE round = ? AND outcome = ? LIMIT 1", round_id, PENDING
        )
    )


def settle_envelope(state: State, round_id: str, node: int, outcome: str) -> None:
    """Record a node's answer to an envelope, and erase the envelope if it was refused.

    An acknowledged one stays until the round ends here: the node may lose it.
    """
    with state.file.transaction():
        state.file.database.execute(
            "UPDATE outbox SET outcome = ?, envelope = CASE ? WHEN ? THEN envelope END"
            " WHERE round = ? AND node = ? AND outcome = ?",
            (outcome, outcome, ACKNOWLEDGED, round_id, node, PENDING),
        )


def acknowledged_envelope(state: State, round_id: str, node: int) -> bytes | None:
    """Return the digest of the envelope that a node acknowledged, if it could be sent again."""
    found = state.file.one(
        "SELECT digest FROM outbox WHERE round = ? AND node = ? AND outcome = ?"
        " AND envelope IS NOT NULL",
        round_id,
        node,
        ACKNOWLEDGED,
    )
    return None if found is None else bytes(found[0])


def send_again(state: State, round_id: str, node: int) -> None:
    """Mark an envelope that a node acknowledged and then lost, so that it is sent again."""
    with state.file.transaction():
        queued = state.file.database.execute(
            "UPDATE outbox SET outcome = ? WHERE round = ? AND node = ? AND outcome = ?"
            " AND envelope IS NOT NULL",
            (PENDING, round_id, node, ACKNOWLEDGED),
        )
        state.file.database.execute(
            "UPDATE rounds SET reuploaded = reuploaded + ? WHERE round = ?",
            (queued.rowcount, round_id),
        )
