"""Restores the state of a data holder whose machine is lost, by its files; no agent is running."""

from datetime import datetime
from pathlib import Path

from shoal_agent.backing_up import opened_backup
from shoal_holder import machine, restoring
from shoal_holder.backup import Backup
from shoal_holder.keys import KeyFile
from shoal_holder.opening import read_pin
from shoal_holder.site_files import HOLDER_KEY, STATE_FILE
from shoal_holder.state import State
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.private_files import write_new
from shoal_protocol.sharing.shares import RandomBytes


def restore_state(
    site: Path,
    consortium: Path,
    data: Path,
    *,
    backup: tuple[bytes, Path] | None = None,
    random_bytes: RandomBytes,
    now: datetime,
) -> int:
    """Have the state in `data`, or a new one, supersede all others with this key; return its epoch.

    A sealed `backup`, with the file of the recovery key, is opened first: its state is put into
    `data`, and the owner's files that are not in `site` are put there.
    The agent asks all Compute nodes at its next start, and takes over what they charged. The epoch
    may rise once more then.

    Raises:
        ValueError: the agent is running, a file is broken, the backup cannot be opened or is not
            this data holder's, or there is a state beside it. Nothing is changed then.
        StartupRefused: no manifest is pinned, or the consortium has none with that digest.
        OSError: a file cannot be read or written.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with KeyFile(site / HOLDER_KEY) as key_file:
        book = ManifestBook.open(consortium, read_pin(site), data)
        if backup is not None:
            key = key_file.in_force(book.current.roster)
            _put_back(opened_backup(*backup, book=book, key=key), site, data)
        return restore_file(
            data / STATE_FILE,
            authority=book.current.manifest.identity,
            random_bytes=random_bytes,
            now=now,
        )


def _put_back(backup: Backup, site: Path, data: Path) -> None:
    """Write what a backup holds, the state last: a plain start with it is refused without a mark.

    Raises:
        ValueError: there is a state already.
        OSError: a file cannot be written.
    """
    path = data / STATE_FILE
    if path.exists():
        raise ValueError(
            f"{path} is there: restore that one, without a backup, or move it away if it is lost"
        )
    for name, content in zip(backup.names, backup.parts[1:], strict=True):
        if not (site / name).exists():
            write_new(site / name, content, private=True)
    for left in ("-wal", "-shm"):  # of the state that is lost
        path.with_name(path.name + left).unlink(missing_ok=True)
    path.with_suffix(".mark").unlink(missing_ok=True)
    write_new(path, backup.parts[0], private=True)


def restore_file(path: Path, *, authority: str, random_bytes: RandomBytes, now: datetime) -> int:
    """Have a state file, which may be an older copy or not be there, supersede all others.

    Raises:
        ValueError: it is in use, damaged, or not a state file of this consortium.
        OSError: it cannot be read or written.
    """
    path.with_suffix(".mark").unlink(missing_ok=True)  # it may be of the state that is lost
    state = State(path, authority=authority, is_restored=True)
    try:
        restoring.prepare(state, random_bytes, now)
        return machine.read(state.file).epoch
    finally:
        state.close()
