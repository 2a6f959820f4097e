"""A whole HTTP client over the lines that parties use, for tests that look at services."""

import httpx

from shoal_hosting.peers.connections import pinned_tls
from shoal_hosting.peers.lines import Lines


def pinned_client(certificate_pem: str, *, base_url: str = "") -> httpx.AsyncClient:
    """Return a client for whoever has this certificate."""
    lines = Lines(pinned_tls(certificate_pem), connections=100)
    return httpx.AsyncClient(base_url=base_url, transport=lines, timeout=75.0, trust_env=False)
