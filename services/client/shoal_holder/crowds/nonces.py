"""Keeps the nonces of draws that were requested and whose answers are not on file yet.

A repeated request has the same nonce, also after a restart. A new one would give a trainer that
dislikes a draw a second try, by leaving the first unanswered.
"""

from collections.abc import Iterable, Sequence

from shoal_holder.crowds.contributing import NONCE_BYTES
from shoal_holder.state import State
from shoal_protocol.sharing.shares import RandomBytes


def kept(
    state: State, job: str, clients: Sequence[int], random_bytes: RandomBytes
) -> dict[int, str]:
    """Return the nonce by which each client is to draw next, on file before it is sent."""
    of_job = "SELECT client, nonce FROM crowd_nonces WHERE job = ?"
    nonces: dict[int, str] = dict(state.file.rows(of_job, job))
    new = {each: random_bytes(NONCE_BYTES).hex() for each in clients if each not in nonces}
    if new:
        with state.file.transaction():
            state.file.database.executemany(
                "INSERT INTO crowd_nonces VALUES (?, ?, ?)",
                ((job, client, nonce) for client, nonce in new.items()),
            )
    return {client: new.get(client) or nonces[client] for client in clients}


def answered(state: State, job: str, clients: Iterable[int]) -> None:
    """Forget the nonces of these clients, in the transaction that stores their draws."""
    state.file.database.executemany(
        "DELETE FROM crowd_nonces WHERE job = ? AND client = ?",
        ((job, client) for client in clients),
    )


def forget(state: State, job: str) -> None:
    """Forget the nonces of a job that has ended here, in the transaction that ends it."""
    state.file.database.execute("DELETE FROM crowd_nonces WHERE job = ?", (job,))
