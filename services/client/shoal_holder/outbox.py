"""Tracks the stored envelopes and each Compute node's answer to them.

An envelope is erased when a node refused it or its round has ended. Until then the same bytes can
be sent again, for a node may lose what it acknowledged.
"""

from collections.abc import Iterable

from shoal_holder.state import State


def pending_envelopes(
    state: State, round_id: str, node: int, *, after: int, count: int, total_bytes: int
) -> list[tuple[int, bytes]]:
    """Return (client, envelope) not settled at a node: clients above `after`, ascending.

    At most `count`, and at most `total_bytes` unless the first alone is larger.
    """
    page: list[tuple[int, bytes]] = []
    size = 0
    rows = state.file.database.execute(
        "SELECT client, envelope FROM outbox"
        " WHERE round = ? AND node = ? AND client > ? AND outcome = 'pending'"
        " ORDER BY client LIMIT ?",
        (round_id, node, after, count),
    )
    for client, envelope in rows:
        size += len(envelope)
        if page and size > total_bytes:
            break
        page.append((client, envelope))
    rows.close()
    return page


def has_pending(state: State, round_id: str) -> bool:
    """Tell whether an envelope of a round is not settled."""
    return bool(
        state.file.rows(
            "SELECT 1 FROM outbox WHERE round = ? AND outcome = 'pending' LIMIT 1", round_id
        )
    )


def settle_envelopes(state: State, settled: Iterable[tuple[str, int, int, str]]) -> None:
    """Record (round, node, client, outcome), and erase the envelopes that were refused.

    An acknowledged one stays until the round ends here: the node may lose it.
    """
    with state.file.transaction():
        state.file.database.executemany(
            "UPDATE outbox SET outcome = ?,"
            " envelope = CASE ? WHEN 'acknowledged' THEN envelope END"
            " WHERE round = ? AND node = ? AND client = ? AND outcome = 'pending'",
            (
                (outcome, outcome, round_id, node, client)
                for round_id, node, client, outcome in settled
            ),
        )


def acknowledged_envelopes(
    state: State, round_id: str, node: int, *, after: int, count: int
) -> list[tuple[int, bytes]]:
    """Return (client, digest) of up to `count` envelopes that a node acknowledged.

    Clients above `after`, ascending, whose envelopes could be sent again.
    """
    return state.file.rows(
        "SELECT client, digest FROM outbox WHERE round = ? AND node = ? AND client > ?"
        " AND outcome = 'acknowledged' AND envelope IS NOT NULL ORDER BY client LIMIT ?",
        round_id,
        node,
        after,
        count,
    )


def send_again(state: State, round_id: str, node: int, clients: Iterable[int]) -> None:
    """Mark envelopes that a node acknowledged and then lost, so that they are sent again."""
    with state.file.transaction():
        queued = state.file.database.executemany(
            "UPDATE outbox SET outcome = 'pending' WHERE round = ? AND node = ?"
            " AND client = ? AND outcome = 'acknowledged' AND envelope IS NOT NULL",
            ((round_id, node, client) for client in clients),
        )
        state.file.database.execute(
            "UPDATE rounds SET reuploaded = reuploaded + ? WHERE round = ?",
            (queued.rowcount, round_id),
        )
