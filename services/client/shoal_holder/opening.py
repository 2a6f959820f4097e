"""Assembles a vault from its owner's files."""

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal_holder.backup import note_records
from shoal_holder.isolation import NO_NETWORK, NO_SOCKETS
from shoal_holder.keys import KeyFile, check_not_writable
from shoal_holder.policy import Policy
from shoal_holder.record_files import read_records
from shoal_holder.records import Records
from shoal_holder.settings import Settings
from shoal_holder.site import Site, Sources
from shoal_holder.site_files import MAPPING, STATE_FILE, owner_files_of
from shoal_holder.slots import slots_by_id
from shoal_holder.state import State
from shoal_holder.vault import Vault
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import StartupRefused, read_pin
from shoal_protocol.wire.errors import ProtocolError


@dataclass
class RecordsFile:
    """The file of records, as it was when it was read last."""

    path: Path
    policy: Policy
    id_column: str | None
    changed_at: int = -1  # in nanoseconds of the file system's clock

    def read(self) -> Records:
        """Return the records; of columns that the policy does not list nothing is kept.

        Raises:
            ValueError, OSError: there are none that can be read.
        """
        self.changed_at = self.path.stat().st_mtime_ns
        check_not_writable(self.path)
        return read_records(self.path, self.policy.columns, id_column=self.id_column)

    def was_replaced(self) -> bool:
        """Tell whether the loader wrote another one; what people edit may be half written."""
        return (
            self.path.suffix == ".npz"
            and self.path.exists()
            and self.path.stat().st_mtime_ns != self.changed_at
        )


def open_vault(
    site: Site,
    data_directory: Path,
    *,
    isolation: str,
    without_nodes: Collection[str] = (),
    key_file: KeyFile | None = None,
    owner_files: Mapping[str, Path] | None = None,
    records_file: RecordsFile | None = None,
) -> Vault:
    """Return the vault of a site, over its state; see `Vault`.

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
        note_records(state.file, None if records_file is None else records_file.changed_at)
        _place(site, state)
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
        renew=lambda: _renew(site, state, records_file),
    )


def _place(site: Site, state: State) -> None:
    """Give each record its slot, and each client's rows their order.

    Raises:
        ValueError: as `slots_by_id`.
    """
    site.give_slots(lambda identity, own: slots_by_id(state.file, identity, own, site.random_bytes))


def _renew(site: Site, state: State, file: RecordsFile | None) -> bool:
    """Go over to the records that the loader wrote since, if there are any; tell whether it did.

    Raises:
        ValueError: they cannot be used, and those before stay.
    """
    if file is None or not file.was_replaced():
        return False
    try:
        fresh = Site(site.key_in_force, file.read(), site.policy, site.book, site.sources)
        _place(fresh, state)
    except (ValueError, sqlite3.Error):
        raise
    except Exception as error:  # noqa: BLE001 -- a file may hold anything
        raise ValueError(complaint(error)) from None
    note_records(state.file, file.changed_at)
    site.go_over_to(fresh)
    return True


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
        records_file = RecordsFile(settings.records, policy, settings.agent_id_column)
        site = Site(key_file.in_force, records_file.read(), policy, book, sources)
        return open_vault(
            site,
            settings.data,
            isolation=isolation,
            without_nodes=(settings.without_nodes or "").split(","),
            key_file=key_file,
            owner_files=owner_files_of(settings.party, settings.policy),
            records_file=records_file,
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
