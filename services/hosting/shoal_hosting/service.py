"""Runs one of the manifest's services as a process: its settings, keys and data, then its work.

It reads the environment and the clock, once and here, and knows nothing of rounds and jobs.
"""

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.types import ASGIApp

from shoal_hosting.data_directory import hold_data_directory
from shoal_hosting.database_choice import (
    FORM,
    check_choice,
    is_postgresql_url,
    note_choice,
    why_unavailable,
)
from shoal_hosting.logs import configure_logs
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.marks import DAMAGED
from shoal_hosting.party import Party, check_party, load_party, read_pin
from shoal_hosting.security import StartupRefused, server_tls, startup_of
from shoal_hosting.serving import serve, step_for_ever
from shoal_hosting.settings import describe_settings, read_settings
from shoal_protocol.errors import ProtocolError, StorageUnavailable, UnknownManifest


class ServiceSettings(BaseModel):
    """Read once, from the variables `SHOAL_PARTY`, `SHOAL_CONSORTIUM` and so on."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    party: Path = Field(description="the directory with this party's keys, card and pin")
    consortium: Path = Field(description="the directory with the consortium's manifest and roster")
    data: Path = Field(description="a directory on durable storage, for this service alone")
    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(ge=0, le=65_535, description="the port to listen on")
    database_url: str | None = Field(
        default=None, description=f"a PostgreSQL URL, {FORM}, or nothing for an SQLite file"
    )
    accept_loss: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{16}$",
        description=(
            "nothing, or the token that a refusal to start over a database that is lost or older "
            "shows: the loss is accepted, that very one"
        ),
    )
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description="debug, info, warning or error",
    )

    @field_validator("database_url")
    @classmethod
    def _can_be_opened(cls, url: str | None) -> str | None:
        if url is not None and not is_postgresql_url(url):
            raise ValueError("not a PostgreSQL URL")
        return url


class Service(Protocol):
    """What a service's `assemble` returns: an application to serve, and work to do beside it."""

    @property
    def app(self) -> ASGIApp:
        """Return the application."""

    @property
    def wake(self) -> asyncio.Event:
        """Return the event that is set when there is work."""

    async def step(self) -> None:
        """Do all that is due now."""

    def stop_waiting(self) -> None:
        """Answer the requests that are held back, for the service is about to stop."""

    async def close(self) -> None:
        """Let go of connections, threads and the database."""


# Puts a service together and starts nothing. It is called with `party`, `book`, `data_directory`,
# `database_url`, `accept_loss`, `clock`, and the settings that only this service has.
Assemble = Callable[..., Service]


def run_service(
    role: Literal["compute", "aggregator", "trainer"],
    assemble: Assemble,
    *,
    tick_seconds: float,
    settings: type[ServiceSettings] = ServiceSettings,
    also: str = "",
) -> None:
    """Run a service until it is told to stop; it steps at least every `tick_seconds`.

    `also` is said by --help. Settings beyond those of every service are handed to `assemble` by
    their names.

    Raises:
        SystemExit: with status 78 and one line on standard error, if it cannot start; 0 after
            --help, and 2 if it was given another argument.
    """
    argparse.ArgumentParser(
        prog=f"python -m shoal_{role}",
        description=f"Run the service until it is told to stop. {also}",
        epilog=f"It reads the environment:\n{describe_settings(settings, 'SHOAL_')}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    with startup_of(f"shoal-{role}"):
        read = read_settings(settings, "SHOAL_", os.environ)
        configure_logs(level=read.log_level)
        party = load_party(read.party)
        if party.card.role != role:
            raise StartupRefused(f"{read.party} is the {party.card.role} {party.name}'s")
        hold_data_directory(read.data)
        check_choice(read.data, role, read.database_url)
        book = ManifestBook.open(read.consortium, read_pin(read.party), read.data)
        check_party(party, book.current)
        tls = server_tls(party.tls_certificate, party.tls_key, party.card.certificate or "")
        service = _assembled(assemble, read, party, book)
        note_choice(read.data, read.database_url)
        serve(
            service.app,
            host=read.host,
            port=read.port,
            tls=tls,
            work=lambda: _work(service, tick_seconds),
            on_stop=service.stop_waiting,
        )


def _assembled(
    assemble: Assemble, settings: ServiceSettings, party: Party, book: ManifestBook
) -> Service:
    own = {
        name: getattr(settings, name)
        for name in type(settings).model_fields.keys() - ServiceSettings.model_fields.keys()
    }
    with refusing_what_is_on_file(settings.database_url):
        return assemble(
            party=party,
            book=book,
            data_directory=settings.data,
            database_url=settings.database_url,
            accept_loss=settings.accept_loss,
            clock=lambda: datetime.now(UTC),
            **own,
        )


@contextmanager
def refusing_what_is_on_file(database_url: str | None) -> Iterator[None]:
    """Turn what a service finds on file, and cannot begin with, into a `StartupRefused`."""
    try:
        yield
    except StorageUnavailable as error:
        raise StartupRefused(why_unavailable(database_url, error)) from error
    except UnknownManifest as error:
        raise StartupRefused(
            "what is on file began under a manifest older than the pinned one: pin that version"
        ) from error
    except (ProtocolError, IndexError, ValueError) as error:  # a document that reads no more
        raise StartupRefused(DAMAGED) from error


async def _work(service: Service, tick_seconds: float) -> None:
    try:
        await step_for_ever(service.step, service.wake, tick_seconds=tick_seconds)
    finally:
        await asyncio.shield(service.close())
