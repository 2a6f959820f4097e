"""Every service is handed the versions that it lacks, and whoever refuses is named."""

import httpx
import pytest
from prometheus_client import CollectorRegistry

from shoal_consortium.parties import next_manifest
from shoal_consortium.publishing import logged, publish_to_all
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import Refused
from shoal_kit.web.application import create_application
from shoal_protocol.log.succession import following_version
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.roster_changes import with_revoked
from shoal_protocol.wire.documents import sign
from shoal_service.manifest_routes import manifest_routes
from tests.command.test_consortium_building import AUTHORITY, consortium


async def ready() -> None:
    """Be ready always."""


class Federation(httpx.AsyncBaseTransport):
    """Serves the manifest routes of one book per host; a host without a book is down."""

    def __init__(self, books: dict[str, ManifestBook]) -> None:
        self.books = books
        self._apps = {}
        for host, book in books.items():
            app = create_application(host, ready=ready, registry=CollectorRegistry())
            app.include_router(manifest_routes(book))
            self._apps[host] = httpx.ASGITransport(app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host not in self._apps:
            raise httpx.ConnectError("connection refused")
        return await self._apps[request.url.host].handle_async_request(request)


def renamed(first: Consortium) -> Consortium:
    """Return the consortium with each service at a host of its own name."""
    manifest = first.manifest

    def at_home(party):
        return party.model_copy(update={"url": f"https://{party.name}"})

    moved = {name: getattr(manifest, name) for name in Manifest.model_fields} | {
        "compute_nodes": tuple(at_home(node) for node in manifest.compute_nodes),
        "aggregator": at_home(manifest.aggregator),
        "trainer": at_home(manifest.trainer),
    }
    signed = sign(Manifest.model_validate(moved), "authority", AUTHORITY)
    return Consortium.pinned(signed.encode(), first.roster.encode(), digest=signed.digest)


def chain_of(versions: int) -> list[Consortium]:
    chain = [renamed(consortium(5))]
    for index in range(versions - 1):
        roster = with_revoked(chain[-1].roster, [index])
        signed = next_manifest(chain[-1], roster=roster, authority=AUTHORITY)
        chain.append(following_version(chain[-1], signed.encode(), roster.encode()))
    return chain


def federation(chain: list[Consortium], tmp_path) -> Federation:
    manifest = chain[0].manifest
    services = [*manifest.compute_nodes, manifest.aggregator, manifest.trainer]
    return Federation(
        {each.name: ManifestBook(chain[0], tmp_path / each.name) for each in services}
    )


@pytest.mark.parametrize("versions", [1, 2, 4])
def test_services_that_lag_behind_are_handed_every_version_they_lack(tmp_path, versions) -> None:
    chain = chain_of(versions)
    services = federation(chain, tmp_path)
    for _ in range(2):  # the second time changes nothing
        outcomes = publish_to_all(chain, transport=services)
        assert [outcome.accepted for outcome in outcomes] == [True] * 4
        assert {book.current.digest for book in services.books.values()} == {chain[-1].digest}


def logged_versions() -> list[Consortium]:
    """Return three versions, of which the third is to be logged."""
    first = chain_of(1)[0]
    policy = first.manifest.policy.model_copy(update={"cosignatures": 2})
    signed = next_manifest(first, authority=AUTHORITY, policy=policy)
    second = following_version(first, signed.encode(), first.roster.encode())
    later = next_manifest(second, authority=AUTHORITY, policy=policy)
    third = following_version(second, later.encode(), first.roster.encode(), believe=False)
    return [first, second, third]


@pytest.mark.parametrize("answer", [{}, [], {"place": "here"}])
def test_an_aggregator_that_does_not_say_where_it_logged_a_version_is_refused(answer) -> None:
    _, second, third = logged_versions()
    lies = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    with pytest.raises(Refused, match="does not say where in the log"):
        logged(second, third, transport=lies)


def test_nothing_is_logged_while_too_few_nodes_are_there_to_sign_it(tmp_path) -> None:
    first, second, third = logged_versions()
    services = federation([first], tmp_path)
    lost = first.manifest.compute_nodes[0].name
    del services._apps[lost]
    with pytest.raises(Unavailable, match=f"^{lost} did not answer.* nothing was published.*emerg"):
        logged(second, third, transport=services)  # its aggregator has no log: it was not asked
