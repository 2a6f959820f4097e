"""Every service is handed the versions that it lacks, and whoever refuses is named."""

from dataclasses import replace

import httpx
import pytest
from prometheus_client import CollectorRegistry

from shoal_consortium.parties import next_manifest
from shoal_consortium.publishing import countersigned, publish_to_all
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import Refused
from shoal_kit.web.application import create_application
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.roster_changes import with_revoked
from shoal_protocol.trust.succession import SIGNATURES_PATH, countersigners, following_version
from shoal_protocol.wire.documents import decode, sign
from shoal_protocol.wire.errors import WrongManifest
from shoal_service.manifest_routes import manifest_routes
from tests.command.test_consortium_building import AUTHORITY, consortium
from tests.protocol.test_succession import NODES, POLICY, following
from tests.world.parties import reachable
from tests.world.signatures import statement


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


NOW = reachable(policy=POLICY)
FOLLOWING = following_version(NOW, following(NOW).encode(), NOW.roster.encode(), believe=False)


class Nodes(httpx.AsyncBaseTransport):
    """Compute nodes that sign what follows, or answer otherwise by name; None: it is down."""

    def __init__(self, **otherwise: httpx.Response | None) -> None:
        hosts = {httpx.URL(each.url).host: each.name for each in NOW.manifest.services}
        self._names, self._otherwise = hosts, otherwise
        self.asked: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        name = self._names[request.url.host]
        self.asked.append((name, request.url.path))
        answer = self._otherwise.get(name.replace("-", "_"), httpx.Response(200))
        if answer is None:
            raise httpx.ConnectError("connection refused")
        if answer.status_code != 200 or request.url.path != SIGNATURES_PATH:
            return answer
        later = decode(await request.aread(), Manifest).body
        return httpx.Response(200, content=statement(NOW, later, name).encode())


def test_R8_a_version_carries_the_signatures_of_all_nodes_that_answer() -> None:
    for nodes, signers in ((Nodes(), NODES), (Nodes(compute_1=None), [NODES[0], NODES[2]])):
        found = countersigned([NOW], FOLLOWING, transport=nodes)
        assert countersigners(NOW, FOLLOWING.manifest, found) == set(signers)
        signed = replace(FOLLOWING.signed_manifest, countersignatures=found)
        following_version(NOW, signed.encode(), NOW.roster.encode())


def test_R8_nothing_is_published_while_too_few_nodes_answer_or_sign() -> None:
    problem = {"type": "urn:shoal:problem:conflicting-document", "title": "signed another one"}
    refusal = httpx.Response(409, json=problem)
    with pytest.raises(Unavailable, match=r"published.*compute-1.*compute-2.*emergency"):
        countersigned([NOW], FOLLOWING, transport=Nodes(compute_1=None, compute_2=None))
    with pytest.raises(Refused, match=r"1 of the Compute.*compute-2: 409: signed another"):
        countersigned([NOW], FOLLOWING, transport=Nodes(compute_1=None, compute_2=refusal))


def test_R8_a_statement_of_another_version_is_not_taken_for_a_signature() -> None:
    other = following(NOW, policy=POLICY.model_copy(update={"minimum_cohort": 11})).body
    lies = {
        name.replace("-", "_"): httpx.Response(201, content=statement(NOW, other, name).encode())
        for name in NODES[1:]
    }
    with pytest.raises(Refused, match="1 of the Compute nodes"):
        countersigned([NOW], FOLLOWING, transport=Nodes(**lies))


def test_a_node_that_lags_behind_is_handed_the_versions_before() -> None:
    behind = httpx.Response(409, json={"type": f"urn:shoal:problem:{WrongManifest.code}"})
    nodes = Nodes(compute_2=behind)
    countersigned([NOW], FOLLOWING, transport=nodes)
    paths = [path for name, path in nodes.asked if name == "compute-2"]
    assert paths == [SIGNATURES_PATH, "/v1/manifest", SIGNATURES_PATH]


def test_R8_of_an_emergency_the_nodes_that_stay_are_asked() -> None:
    stays, *lost = NOW.manifest.compute_nodes
    nodes = (stays, *(node.model_copy(update={"name": f"{node.name}-new"}) for node in lost))
    signed = following(NOW, compute_nodes=nodes, emergency="two sites burnt")
    emergency = following_version(NOW, signed.encode(), NOW.roster.encode())
    asked = Nodes()
    found = countersigned([NOW], emergency, transport=asked)
    assert asked.asked == [(NODES[0], SIGNATURES_PATH)]
    assert countersigners(NOW, emergency.manifest, found) == {NODES[0]}
    assert countersigned([NOW], emergency, transport=Nodes(compute_0=None)) == "[]"
