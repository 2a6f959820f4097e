"""`python -m shoal_compute`: reads the environment and the clock, and runs the node."""

import asyncio
import os
from datetime import UTC, datetime
from typing import Final

from shoal_compute.assembly import Service, assemble
from shoal_compute.settings import Settings
from shoal_hosting.data_directory import hold_data_directory
from shoal_hosting.logs import configure_logs
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import check_party, load_party, read_pin
from shoal_hosting.security import StartupRefused, server_tls, startup_of
from shoal_hosting.serving import serve, step_for_ever
from shoal_hosting.settings import read_settings
from shoal_protocol.errors import StorageUnavailable, UnknownManifest
from shoal_protocol.manifest import ServiceParty

_TICK_SECONDS: Final = 0.05


def main() -> None:
    """Run a Compute node until it is told to stop."""
    with startup_of("shoal-compute"):
        settings = read_settings(Settings, "SHOAL_", os.environ)
        configure_logs(level=settings.log_level)
        party = load_party(settings.party)
        hold_data_directory(settings.data)
        book = ManifestBook.open(settings.consortium, read_pin(settings.party), settings.data)
        check_party(party, book.current)
        listed = book.current.party(party.name)
        if not isinstance(listed, ServiceParty):
            raise TypeError("a Compute node is a service")
        tls = server_tls(party.tls_certificate, party.tls_key, listed.certificate)
        try:
            service = assemble(
                party=party,
                book=book,
                data_directory=settings.data,
                database_url=settings.database_url,
                clock=lambda: datetime.now(UTC),
            )
        except StorageUnavailable as error:
            raise StartupRefused("the database cannot be used: is it full, locked or away?") from (
                error
            )
        except UnknownManifest as error:
            raise StartupRefused(
                "a round on file is older than the pinned manifest: pin the version it began under"
            ) from error
        serve(
            service.app,
            host=settings.host,
            port=settings.port,
            tls=tls,
            work=lambda: _work(service),
        )


async def _work(service: Service) -> None:
    try:
        await step_for_ever(service.step, service.wake, tick_seconds=_TICK_SECONDS)
    finally:
        await asyncio.shield(service.close())


if __name__ == "__main__":
    main()
