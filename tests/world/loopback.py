"""Serves an application on a loopback port for the length of a test, and asks it by HTTP."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.types import ASGIApp

from shoal_kit.tls_certificates import pinned_tls
from shoal_kit.web.serving import server


@asynccontextmanager
async def served(app: ASGIApp, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yield the port on which `app` listens."""
    running = server(app, host="127.0.0.1", port=0, tls=tls, stop_within_seconds=1)
    task = asyncio.create_task(running.serve())
    while not running.started:
        if task.done():
            await task
        await asyncio.sleep(0.01)
    try:
        yield running.servers[0].sockets[0].getsockname()[1]
    finally:
        running.should_exit = True
        await task


def pinned_client(certificate_pem: str, *, base_url: str = "") -> httpx.AsyncClient:
    """Return a whole HTTP client that trusts this certificate as parties do."""
    return httpx.AsyncClient(
        base_url=base_url, verify=pinned_tls(certificate_pem), timeout=75.0, trust_env=False
    )
