"""`python -m shoal_agent`: reads the environment and the clock, and runs the agent."""

import asyncio
import os
from datetime import UTC, datetime

import structlog

from shoal_agent.assembly import Service, assemble
from shoal_agent.settings import Settings
from shoal_agent.vault_link import VaultGone
from shoal_kit.party import TLS_CERTIFICATE, TLS_KEY
from shoal_kit.security import server_tls
from shoal_kit.settings import read_settings
from shoal_kit.startup import startup_of
from shoal_kit.web.logs import configure_logs
from shoal_kit.web.serving import serve, step_for_ever

log = structlog.get_logger()


def main() -> None:
    """Run a data holder's agent until it is told to stop."""
    with startup_of("shoal-agent"):
        settings = read_settings(Settings, os.environ)
        configure_logs(level=settings.log_level)
        tls = server_tls(settings.party / TLS_CERTIFICATE, settings.party / TLS_KEY, None)
        service = assemble(settings, clock=lambda: datetime.now(UTC), long_polls=True)
        serve(
            service.app,
            host=settings.host,
            port=settings.port,
            tls=tls,
            work=lambda: _work(service, settings.agent_poll_seconds),
        )


async def _work(service: Service, poll_seconds: float) -> None:
    try:
        await step_for_ever(service.step, service.wake, tick_seconds=poll_seconds)
    except* VaultGone:
        log.warning("the vault has ended, and the agent ends, too: both are to be started again")
    finally:
        await asyncio.shield(service.close())


if __name__ == "__main__":
    main()
