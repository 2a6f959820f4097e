"""Leaves a job for an agent that is not running, by its files."""

from pathlib import Path

from shoal_holder import exits
from shoal_holder.exits import LEFT, Joined
from shoal_holder.keys import read_client_keys
from shoal_holder.opening import read_pin
from shoal_holder.site_files import CLIENT_KEYS, STATE_FILE, lock_keys
from shoal_holder.state import State
from shoal_hosting.manifests.manifest_book import ManifestBook


def leave_alone(site: Path, consortium: Path, data: Path, job: str) -> Joined:
    """Leave a job for good, as `DataHolder.leave`; the agent tells the trainer when it next runs.

    Raises:
        UnknownJob: no client here joined it.
        WrongPhase: it has ended here otherwise.
        ValueError: the agent is running, or a file is broken.
        StartupRefused: no manifest is pinned, or the consortium has none with that digest.
        OSError: a file cannot be read.
    """
    path = data / STATE_FILE
    if not path.exists():
        raise ValueError(f"{path} is not there: no agent has run with this data directory")
    with lock_keys(site / CLIENT_KEYS):
        book = ManifestBook.open(consortium, read_pin(site), data)
        keys = read_client_keys(site / CLIENT_KEYS)
        state = State(path, authority=book.current.manifest.authority)
        try:
            found = exits.joined(state.file, job)
            indices = book.current.roster.indices(key.verify_key for key in keys)
            own = {
                client: key for client, key in zip(indices, keys, strict=True) if client is not None
            }
            state.end_job(job, LEFT, leaves=exits.sign_leaves(found, own))
        finally:
            state.close()
    return found
