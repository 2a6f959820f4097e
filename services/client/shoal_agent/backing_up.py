"""Makes the owner's recovery key, and writes and opens backups by files, without an agent."""

from datetime import datetime
from pathlib import Path

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, SealedBox
from nacl.secret import SecretBox
from nacl.signing import SigningKey, VerifyKey

from shoal_agent.client_files import hex_line
from shoal_holder import frames, messages
from shoal_holder.backup import MAGIC, Backup, sealed_backup
from shoal_holder.keys import KeyFile, read_holder_key
from shoal_holder.opening import read_pin
from shoal_holder.site_files import HOLDER_KEY, POLICY, RECOVERY_KEY, STATE_FILE, owner_files_of
from shoal_holder.state import State
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.private_files import write_new
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


def back_up_alone(site: Path, consortium: Path, data: Path, *, now: datetime) -> bytes:
    """Return a sealed backup, as `DataHolder.backup`, where no agent is running.

    Raises:
        ValueError: the agent is running, a file is broken, or there is no recovery key.
        StartupRefused: no manifest is pinned, or the consortium has none with that digest.
        OSError: a file cannot be read.
    """
    path = data / STATE_FILE
    if not path.exists():
        raise ValueError(f"{path} is not there: no agent has run with this data directory")
    with KeyFile(site / HOLDER_KEY) as key_file:
        book = ManifestBook.open(consortium, read_pin(site), data)
        authority, key = book.current.manifest.identity, key_file.in_force(book.current.roster)
        state = State(path, authority=authority)
        try:
            files = owner_files_of(site, site / POLICY)
            return sealed_backup(state.file, files, authority=authority, key=key, now=now)
        finally:
            state.close()


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
        backup = frames.decode(frame, messages.kinds_of(Backup))
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
