"""Assembles a vault from its owner's files."""

from collections.abc import Collection, Mapping
from pathlib import Path

from shoal_holder.backup import note_records
from shoal_holder.isolation import NO_NETWORK, NO_SOCKETS
from shoal_holder.keys import KeyFile, check_not_writable
from shoal_holder.policy import Policy
from shoal_holder.record_files import read_records
from shoal_holder.settings import Settings
from shoal_holder.site import Site, Sources
from shoal_holder.site_files import MAPPING, STATE_FILE, owner_files_of
from shoal_holder.state import State
from shoal_holder.vault import Vault
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import StartupRefused, read_pin
from shoal_protocol.wire.errors import ProtocolError


def open_vault(
    site: Site,
    data_directory: Path,
    *,
    isolation: str,
    without_nodes: Collection[str] = (),
    key_file: KeyFile | None = None,
    owner_files: Mapping[str, Path] | None = None,
    records_at: int | None = None,
) -> Vault:
    """Return the vault of a site, over its state; see `Vault`.

    The file of records changed at `records_at`, in nanoseconds of its own clock.

    Raises:
        ValueError: the state cannot be used, or the owner's policy asks for more isolation.
    """
    if site.policy.require_isolation and isolation not in (NO_SOCKETS, NO_NETWORK):
        raise ValueError(
            "require_isolation is set in the policy, and this system neither gives the vault an "
            "empty network namespace nor a filter of system calls, nor runs it without network"
        )
    data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = site.book.current.manifest.identity
    state = State(data_directory / STATE_FILE, authority=authority, random_bytes=site.random_bytes)
    try:
        note_records(state.file, records_at)
        site.give_slots(state.file)
    except BaseException:
        state.file.undo()
        raise
    return Vault(
        site,
        state,
        isolation=isolation,
        without_nodes=without_nodes,
        key_file=key_file,
        owner_files=owner_files,
    )


def from_files(settings: Settings, *, sources: Sources, isolation: str) -> Vault:
    """Return the vault that the settings describe, which locks its key.

    Raises:
        ValueError, OSError: a file is missing, broken, or does not fit the others.
        StartupRefused: no manifest is pinned, or the consortium has none with that digest.
    """
    mapping = settings.party / MAPPING
    if mapping.exists() and not (settings.records.suffix == ".npz" and settings.records.exists()):
        raise ValueError(
            f"{mapping} is there: run `shoal records load`, and give the agent its records.npz"
        )
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    book = ManifestBook.open(settings.consortium, read_pin(settings.party), settings.data)
    check_not_writable(settings.policy)
    policy = Policy.from_toml(settings.policy)
    if settings.agent_approval is not None:
        policy = policy.model_copy(update={"approval": settings.agent_approval})
    key_file = KeyFile(settings.key)
    try:
        path = settings.records
        records_at = path.stat().st_mtime_ns  # before it is read: a later change shows
        check_not_writable(path)
        # of columns that the policy does not list nothing is kept
        records = read_records(path, policy.columns, id_column=settings.agent_id_column)
        site = Site(key_file.in_force, records, policy, book, sources)
        return open_vault(
            site,
            settings.data,
            isolation=isolation,
            without_nodes=(settings.without_nodes or "").split(","),
            key_file=key_file,
            owner_files=owner_files_of(settings.party, settings.policy),
            records_at=records_at,
        )
    except BaseException:
        key_file.close()
        raise


def complaint(error: Exception) -> str:
    """Return why a vault does not start, without quoting a file's content."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    if isinstance(error, StartupRefused | ProtocolError | ValueError | OSError):
        return str(error)
    return f"it failed: {type(error).__name__}"  # what it says may be of a record
