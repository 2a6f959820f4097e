"""Runs an aggregator: reads the environment, the clock and the party's files, and serves."""

import os
from datetime import UTC, datetime

from shoal_aggregator.assembly import assemble
from shoal_aggregator.settings import Settings
from shoal_hosting.logs import configure_logs
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import load_party, read_pin
from shoal_hosting.security import server_tls, startup_of
from shoal_hosting.serving import serve, step_for_ever
from shoal_hosting.settings import read_settings

TICK_SECONDS = 1.0


def main() -> None:
    """Run until told to stop."""
    with startup_of("shoal_aggregator"):
        settings = read_settings(Settings, "SHOAL_", os.environ)
        configure_logs(level=settings.log_level)
        party = load_party(settings.party)
        book = ManifestBook.open(settings.consortium, read_pin(settings.party), settings.data)
        service = assemble(
            party=party,
            book=book,
            data_directory=settings.data,
            database_url=settings.database_url,
            clock=lambda: datetime.now(UTC),
        )

        async def work() -> None:
            try:
                await step_for_ever(service.step, service.wake, tick_seconds=TICK_SECONDS)
            finally:
                await service.close()

        certificate = book.current.manifest.aggregator.certificate
        tls = server_tls(party.tls_certificate, party.tls_key, certificate)
        serve(service.app, host=settings.host, port=settings.port, tls=tls, work=work)


if __name__ == "__main__":
    main()
