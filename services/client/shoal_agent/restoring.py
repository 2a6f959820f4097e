"""Restores the state of a data holder by its files, where no agent is running."""

from contextlib import closing
from datetime import datetime
from pathlib import Path

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, SealedBox
from nacl.secret import SecretBox
from nacl.signing import SigningKey, VerifyKey

from shoal_agent.client_files import hex_line
from shoal_holder import frames, machine, restoring
from shoal_holder.backup import MAGIC, Backup
from shoal_holder.keys import KeyFile, read_holder_key
from shoal_holder.site_files import HOLDER_KEY, RECOVERY_KEY, STATE_FILE
from shoal_holder.state import State
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.private_files import write_new
from shoal_kit.startup import read_pin
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.errors import MalformedDocument

_SIGNATURE_BYTES = 64
_SEALED_KEY_BYTES = SecretBox.KEY_SIZE + 48  # with the sealed box's own key and tag


def write_recovery_key(site: Path, private: Path, key: PrivateKey) -> None:
    """Write a recovery key: its private half to `private`, the public one into the directory.

    Raises:
        FileExistsError: there is one already; nothing is overwritten.
        OSError: a file cannot be written.
    """
    if (site / RECOVERY_KEY).exists():
        raise FileExistsError(f"{site / RECOVERY_KEY} exists already; nothing was written")
    write_new(private, hex_line(bytes(key)), private=True)
    write_new(site / RECOVERY_KEY, hex_line(bytes(key.public_key)), private=False)


def opened_backup(
    sealed: bytes, recovery_key: Path, *, book: ManifestBook, key: SigningKey
) -> Backup:
    """Open a backup by the private half of the recovery key.

    It must be of this consortium, and of the data holder that has `key` or had it.

    Raises:
        ValueError: it is not, or is cut short or changed, or the recovery key is another one.
        OSError: the recovery key cannot be read.
    """
    private = PrivateKey(bytes(read_holder_key(recovery_key)))  # the same kind of file
    if not sealed.startswith(MAGIC):
        raise ValueError("this is not a backup of a data holder")
    body = sealed[len(MAGIC) :]
    try:
        fresh = SealedBox(private).decrypt(body[:_SEALED_KEY_BYTES])
    except (CryptoError, ValueError, TypeError):
        raise ValueError(f"the backup is not sealed to {recovery_key}, or is damaged") from None
    try:
        signed = SecretBox(fresh).decrypt(body[_SEALED_KEY_BYTES:])
        signature, frame = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        backup = frames.decode(frame, {"Backup": Backup})
        made_with = VerifyKey(bytes.fromhex(backup.key))
        made_with.verify(MAGIC + frame, signature)
    except (CryptoError, ValueError, MalformedDocument):
        raise ValueError("the backup is cut short or was changed") from None
    if backup.authority != book.current.manifest.identity:
        raise ValueError("the backup is of another consortium")
    if not _is_same_holder(book, key.verify_key, made_with):
        raise ValueError(
            "the backup is of another data holder, or of a key of yours that no manifest here has"
        )
    return backup


def _is_same_holder(book: ManifestBook, own: VerifyKey, other: VerifyKey) -> bool:
    """Tell whether two keys are one holder's, in whatever manifest."""
    found = [
        {version.roster.holder_with(key) for version in book.versions} - {None}
        for key in (own, other)
    ]
    return own == other or bool(found[0] & found[1])


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
    with closing(KeyFile(site / HOLDER_KEY)) as key_file:
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
    for name, content in backup.files.items():
        if not (site / name).exists():
            write_new(site / name, content, private=True)
    for left in ("-wal", "-shm"):  # of the state that is lost
        path.with_name(path.name + left).unlink(missing_ok=True)
    path.with_suffix(".mark").unlink(missing_ok=True)
    write_new(path, backup.state, private=True)


def restore_file(path: Path, *, authority: str, random_bytes: RandomBytes, now: datetime) -> int:
    """Have a state file, which may be an older copy or not be there, supersede all others.

    Raises:
        ValueError: it is in use, damaged, or not a state file of this consortium.
        OSError: it cannot be read or written.
    """
    state = State(path, authority=authority, is_restored=True)
    try:
        restoring.prepare(state, random_bytes, now)
        return machine.read(state.file).epoch
    finally:
        state.close()
