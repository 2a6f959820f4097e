"""The example consortium's services as they hold themselves: keys, trust, HTTP."""

from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.party import Card, Party
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Document, sign
from tests.world import examples


def party(name: str, consortium: Consortium = examples.CONSORTIUM) -> Party:
    """Return a service of the consortium, as `load_party` would."""
    listed = consortium.party(name)
    card = Card.model_validate(
        {
            "role": name.split("-")[0],
            "name": name,
            "operator": listed.operator,
            "verify_key": listed.verify_key,
            "certificate": getattr(listed, "certificate", None),
        }
    )
    return Party(Path("/nowhere"), card, examples.signing_key(name), None)


def book(directory: Path, consortium: Consortium = examples.CONSORTIUM) -> ManifestBook:
    """Return a book that begins with `consortium`."""
    return ManifestBook(consortium, directory)


def signed_by(name: str, body: Document) -> bytes:
    """Return the wire form of `body`, signed by the party of that name."""
    return sign(body, name, examples.signing_key(name)).encode()


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    """Return an HTTP client of `app`, without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://service.example")


def problem_code(response: httpx.Response) -> Any:
    """Return the code of a problem document, having checked that it is one and complete."""
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == response.status_code
    assert document["detail"] and document["remedy"] and document["title"]
    return document["type"].removeprefix("urn:shoal:problem:")
