"""The examples' parties as they hold themselves, with certificates for TLS, and HTTP to them."""

from pathlib import Path
from typing import Any

import httpx
from nacl.public import PrivateKey
from nacl.signing import SigningKey
from starlette.types import ASGIApp

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.party import Card, Party
from shoal_protocol.trust.manifest import ComputeParty, Consortium, ServiceParty
from shoal_protocol.wire.documents import Document, sign
from shoal_protocol.wire.encoding import domain
from tests.world import examples
from tests.world.tls_identities import make_identity

CERTIFICATE = make_identity().pem


def reachable(nodes: int = examples.NODES, **changes: Any) -> Consortium:
    """Return the examples' consortium, with certificates that a TLS context can read."""

    def service(name: str) -> dict[str, str]:
        return examples.service(name) | {"certificate": CERTIFICATE}

    parties = {
        "compute_nodes": tuple(
            ComputeParty(**service(f"compute-{node}"), box_key=examples.box_key(node).hex())
            for node in range(nodes)
        ),
        "aggregator": ServiceParty(**service("aggregator")),
        "trainer": ServiceParty(**service("trainer")),
    }
    return examples.consortium(**(parties | changes))


def party(name: str, consortium: Consortium = examples.CONSORTIUM) -> Party:
    """Return a service of the consortium, as `load_party` would."""
    listed = consortium.party(name)
    role, _, number = name.partition("-")
    box_key = PrivateKey(examples.box_private_key(int(number))) if role == "compute" else None
    card = Card.model_validate(
        {
            "role": role,
            "name": name,
            "operator": listed.operator,
            "verify_key": listed.verify_key,
            "certificate": getattr(listed, "certificate", None),
            "box_key": getattr(listed, "box_key", None),
        }
    )
    return Party(Path("/nowhere"), card, examples.signing_key(name), box_key)


def book(directory: Path, consortium: Consortium = examples.CONSORTIUM) -> ManifestBook:
    """Return a book that begins with `consortium`."""
    return ManifestBook(consortium, directory)


def signed_bytes(kind: str, body: bytes, signer: str, key: SigningKey) -> bytes:
    """Return a signed document of any body, one that is no document too."""
    signature = key.sign(domain(kind) + body).signature.hex()
    return b'{"body":%s,"signature":"%s","signer":"%s"}' % (
        body,
        signature.encode(),
        signer.encode(),
    )


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


async def post(service: Any, path: str, body: bytes) -> Any:
    """Return the status of a service's answer, or the problem's code."""
    async with client_of(service.app) as http:
        response = await http.post(path, content=body)
    return response.status_code if response.status_code < 400 else problem_code(response)
