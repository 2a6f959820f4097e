"""Leaves a job for an agent that is not running, by its files."""

from pathlib import Path

from shoal_holder import exits
from shoal_holder.exits import LEFT, Joined
from shoal_holder.keys import KeyFile
from shoal_holder.opening import read_pin
from shoal_holder.site_files import HOLDER_KEY, STATE_FILE
from shoal_holder.state import State
from shoal_hosting.manifests.manifest_book import ManifestBook


def leave_alone(site: Path, consortium: Path, data: Path, job: str) -> Joined:
    """Leave a job for good, as `DataHolder.leave`; the agent tells the trainer when it next runs.

    Raises:
        UnknownJob: it was not joined here.
        WrongPhase: it has ended here otherwise.
        ValueError: the agent is running, or a file is broken.
        StartupRefused: no manifest is pinned, or the consortium has none with that digest.
        OSError: a file cannot be read.
    """
    path = data / STATE_FILE
    if not path.exists():
        raise ValueError(f"{path} is not there: no agent has run with this data directory")
    with KeyFile(site / HOLDER_KEY) as key_file:
        book = ManifestBook.open(consortium, read_pin(site), data)
        key = key_file.in_force(book.current.roster)
        state = State(path, authority=book.current.manifest.identity)
        try:
            found = exits.joined(state.file, job)
            holder = book.current.roster.holder_with(key.verify_key)
            state.end_job(job, LEFT, leave=exits.sign_leave(found, holder, key))
        finally:
            state.close()
    return found
