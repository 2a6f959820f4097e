"""A console: pages that a party serves, at `/console`, to whoever holds its token.

Pages are HTML made here; they load nothing from elsewhere, and work without JavaScript. A session
is a cookie that the token authenticates, so nothing is kept of it. What changes something is a
form, which only a page of this session can send: the cookie is not sent from other sites, and a
form carries a value that they cannot read (RFC 6265bis, SameSite; synchroniser tokens).
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CollectorRegistry
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, RedirectResponse, Response

from shoal_kit.clock import Clock
from shoal_kit.pages.templates import templates
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import NoResult, Refused
from shoal_kit.web.application import create_application
from shoal_protocol.wire.errors import ProtocolError, UnknownJob

START: Final = "/console"
SIGN_IN: Final = "/console/sign-in"
SESSION: Final = timedelta(hours=8)
FORM_TOKEN: Final = "form"
"""Name of the field that every form carries."""
SURE: Final = "sure"
"""Name of the box that is ticked in forms of what cannot be undone."""
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGE_SECONDS: Final = 8.0  # for what a page only shows; what is sent is tried for longer
_LONGEST_SIGN_IN_BYTES: Final = 4096  # of its form, which strangers send
_MOST_FIELDS: Final = 1_000  # of a form
_FILES: Final = {"style.css": "text/css", "live.js": "text/javascript"}

Form = Mapping[str, str]
"""The fields of a form; of several with one name, the last."""
Page = Callable[[Request], Awaitable[Response]]
Action = Callable[[Request, Form], Awaitable[Response]]


class Console:
    """The pages of one party. `routes` serves them; `page` and `action` add to them."""

    def __init__(
        self,
        *,
        title: str,
        sections: Mapping[str, str],
        token: str,
        token_file: str,
        package: str,
        clock: Clock,
        is_encrypted: bool = True,
    ) -> None:
        """Begin with the sign-in alone.

        `sections` names the pages of the menu by their paths. Whoever has the `token`, which is
        in `token_file`, may sign in. `package` has the templates. With `is_encrypted` browsers
        send the session over HTTPS only.
        """
        self._shown = {"title": title, "sections": sections, "token_file": token_file}
        self._token = token
        self._templates = templates(package)
        self._clock = clock
        # a browser sends cookies to all ports of a machine: each console's has a name of its own
        name = f"session-{self._mac('cookie', title)[:16]}"
        self._cookie = f"__Host-{name}" if is_encrypted else name
        self._is_encrypted = is_encrypted
        self.routes = APIRouter(include_in_schema=False)
        self.routes.add_api_route(SIGN_IN, self._ask, methods=["GET"])
        self.routes.add_api_route(SIGN_IN, self._sign_in, methods=["POST"])
        self.routes.add_api_route(f"{START}/files/{{name}}", self._file, methods=["GET"])
        self.action(f"{START}/sign-out", self._sign_out)

    def page(self, path: str, show: Page) -> None:
        """Serve a page to who has signed in; others are sent to the sign-in."""

        async def guarded(request: Request) -> Response:
            if self._session(request) is None:
                return go(SIGN_IN)
            return await show(request)

        self.routes.add_api_route(path, guarded, methods=["GET"])

    def action(self, path: str, act: Action, *, is_final: bool = False) -> None:
        """Take a form from who has signed in, if a page of this session sent it.

        One that `is_final` cannot be undone: the form must have its box ticked (`final.html`).
        """

        async def guarded(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                return go(SIGN_IN)
            form = _fields(await request.body())
            if not _is_equal(form.get(FORM_TOKEN, ""), self._form_token(session)):
                message = "The form is not from a page of this session. Open the page again."
                return self._unchanged(request, HTTPStatus.FORBIDDEN, message)
            if is_final and form.get(SURE) != "on":
                message = "It cannot be undone: go back, and tick the box if you mean it."
                return self._unchanged(request, HTTPStatus.CONFLICT, message)
            return await act(request, form)

        self.routes.add_api_route(path, guarded, methods=["POST"])

    def serve(
        self,
        whom: str,
        pages: Mapping[str, Callable[..., Awaitable[Response]]],
        actions: dict[str, Callable[..., Awaitable[Response]]],
        final: dict[str, Callable[..., Awaitable[Response]]],
    ) -> None:
        """Serve pages, and take forms, for which a party is asked that may refuse or not answer.

        `whom` names it. What `final` actions do cannot be undone. What the party does not do
        becomes a page that says why. A page says itself what is wrong with a form. Any other error
        is a fault of ours, of which nothing is shown.
        """
        for path, show in pages.items():
            self.page(path, partial(self._or_why_not, whom, show))
        for path, act in (actions | final).items():
            self.action(path, partial(self._or_why_not, whom, act), is_final=path in final)

    def _unchanged(self, request: Request, status: HTTPStatus, message: str) -> Response:
        heading = "Nothing was changed"
        return self.shown(request, "message.html", status=status, heading=heading, message=message)

    async def _or_why_not(
        self,
        whom: str,
        show: Callable[..., Awaitable[Response]],
        request: Request,
        *form: Form,
    ) -> Response:
        status, heading = HTTPStatus.CONFLICT, "This cannot be done"
        try:
            async with asyncio.timeout(None if form else PAGE_SECONDS):
                return await show(request, *form)
        except (Unavailable, TimeoutError) as error:
            status, heading = HTTPStatus.BAD_GATEWAY, f"{whom} does not answer"
            message = str(error) or "It may be starting anew: try again soon."
        except UnknownJob as error:
            status, heading, message = HTTPStatus.NOT_FOUND, error.title, f"{error}."
        except ProtocolError as error:
            message = f"{error}. {error.remedy}"
        except (Refused, NoResult) as error:
            message = f"{error}."
        return self.shown(request, "message.html", status=status, heading=heading, message=message)

    def shown(
        self,
        request: Request,
        template: str,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        **values: Any,
    ) -> Response:
        """Return a page from a template and what it shows."""
        session = self._session(request)
        return HTMLResponse(
            self._templates.get_template(template).render(
                console=self._shown,
                here=request.url.path,
                form_token=None if session is None else self._form_token(session),
                **values,
            ),
            status_code=status,
            headers=HEADERS,
        )

    async def _ask(self, request: Request) -> Response:
        return self.shown(request, "sign_in.html", refused=False)

    async def _sign_in(self, request: Request) -> Response:
        given = _fields((await request.body())[:_LONGEST_SIGN_IN_BYTES]).get("token", "").strip()
        if not _is_equal(given, self._token):
            return self.shown(request, "sign_in.html", status=HTTPStatus.FORBIDDEN, refused=True)
        ends = str(int((self._clock() + SESSION).timestamp()))
        signed_in = go(START)
        signed_in.set_cookie(
            self._cookie,
            f"{ends}.{self._mac('session', ends)}",
            max_age=int(SESSION.total_seconds()),
            secure=self._is_encrypted,
            httponly=True,
            samesite="strict",
        )
        return signed_in

    async def _sign_out(self, request: Request, form: Form) -> Response:
        del request, form
        signed_out = go(SIGN_IN)
        signed_out.delete_cookie(
            self._cookie, secure=self._is_encrypted, httponly=True, samesite="strict"
        )
        return signed_out

    async def _file(self, request: Request, name: str) -> Response:
        if name not in _FILES:
            return go(START)
        return Response(
            files(__package__).joinpath(name).read_bytes(), media_type=_FILES[name], headers=HEADERS
        )

    def _session(self, request: Request) -> str | None:
        """Return the session that the request belongs to, or None: there is none that holds."""
        session = request.cookies.get(self._cookie, "")
        ends, _, mac = session.partition(".")
        if not _is_equal(mac, self._mac("session", ends)):
            return None
        return session if self._clock().timestamp() < int(ends) else None

    def _form_token(self, session: str) -> str:
        return self._mac("form", session)

    def _mac(self, what: str, value: str) -> str:
        return hmac.new(self._token.encode(), f"{what} {value}".encode(), sha256).hexdigest()


def go(path: str) -> RedirectResponse:
    """Answer so that the browser shows the page at `path`."""
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers=HEADERS)


def _fields(body: bytes) -> Form:
    few = b"&".join(body.split(b"&", _MOST_FIELDS)[:_MOST_FIELDS])
    return dict(parse_qsl(few.decode("utf-8", errors="replace"), keep_blank_values=True))


def _is_equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())


HOST: Final = "127.0.0.1"
HOSTS: Final = [HOST, "localhost"]


def application(title: str, console: Console, *, token: str) -> FastAPI:
    """Return an application with the console's pages; `token` opens its metrics too."""

    app = create_application(title, registry=CollectorRegistry(), metrics_token=token)
    app.include_router(console.routes)

    @app.get("/", include_in_schema=False)
    async def begin() -> Response:
        return RedirectResponse(START)

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)
    return app
