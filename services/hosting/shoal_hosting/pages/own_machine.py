"""Serves a console to the browser of the person who runs it, on one machine.

The person's keys so stay where they are. Another site that finds the port can neither read a page
nor send a form: a request must name this host, which a name that is rebound to this machine does
not, and a form must come from a page.
"""

from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import RedirectResponse, Response

from shoal_hosting.pages.console import START, Console
from shoal_hosting.server.application import create_application

HOST: Final = "127.0.0.1"
HOSTS: Final = [HOST, "localhost"]


def application(title: str, console: Console, *, token: str) -> FastAPI:
    """Return an application with the console's pages; `token` opens its metrics too."""

    async def ready() -> None:
        return None

    app = create_application(title, ready=ready, registry=CollectorRegistry(), metrics_token=token)
    app.include_router(console.routes)

    @app.get("/", include_in_schema=False)
    async def begin() -> Response:
        return RedirectResponse(START)

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)
    return app
