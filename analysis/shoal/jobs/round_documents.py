"""Gathers the documents that all parties of a round signed, for the round audit."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, TypeVar

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import Endpoint, Refused, call
from shoal_protocol.rounds.attestations import Abandonment, Holdings, PartialSum, Result, Vote
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, UnknownManifest

_KINDS: Final = (Holdings, Vote, PartialSum, Result, Abandonment)

Notice = Callable[[str], None]
PartyT = TypeVar("PartyT", bound=ServiceParty)


async def gather(
    book: ManifestBook, round_id: str, notice: Notice
) -> tuple[Signed[RoundSpec], list[Signed[Any]]]:
    """Return a round's verified spec and its signed documents, which are not verified.

    Asked are all Compute nodes and the aggregator, and those of the round that others replaced
    since. `notice` is told who does not answer well.

    Raises:
        Refused: no Compute node that answers knows the round.
        UnknownManifest: the round is bound to a version of the manifest that is not at hand.
    """
    versions, base = [each.manifest for each in book.versions], f"/v1/rounds/{round_id}"
    spec: Signed[RoundSpec] | None = None
    documents: list[Signed[Any]] = []
    for node in newest_first(party for version in versions for party in version.compute_nodes):
        is_listed = book.current.lists(node.name)
        if not is_listed and spec is not None and node.name not in spec.body.compute_nodes:
            continue
        for value in await ask(node, f"{base}/spec", notice) if spec is None else []:
            spec = _spec(book, value, round_id)
        documents += _decoded(await ask(node, f"{base}/documents", notice), node.name, notice)
    if spec is None:
        raise Refused("no Compute node that answers knows a round of this id")
    of_round = book.get(spec.body.manifest).manifest
    for aggregator in newest_first([of_round.aggregator, book.current.manifest.aggregator]):
        for what in ("outcome", "wrong-sums"):
            shown = await ask(aggregator, f"{base}/{what}", notice)
            documents += _decoded(shown, aggregator.name, notice)
    return spec, documents


def newest_first(parties: Iterable[PartyT]) -> list[PartyT]:
    """Return parties of several versions, each once, as the newest that lists it has it."""
    return [*reversed({party.name: party for party in parties}.values())]


async def ask(party: ServiceParty, path: str, notice: Notice) -> list[Any]:
    """Return the documents that a party shows: none if it has none, or does not answer."""
    try:
        reply = await call(Endpoint.of(party), "GET", path)
        value = reply.json() if reply.status == HTTPStatus.OK else {}
    except (Unavailable, MalformedDocument) as error:
        notice(f"{party.name} does not show what it signed: {error}")
        return []
    if isinstance(value, dict) and isinstance(value.get("documents"), list):
        return list(value["documents"])
    return [value] if value else []


def _spec(book: ManifestBook, value: Any, round_id: str) -> Signed[RoundSpec] | None:
    try:
        signed = from_json(value, RoundSpec)
    except ProtocolError:
        return None
    if signed.digest != round_id:
        return None
    try:
        book.get(signed.body.manifest).verify(signed)
    except UnknownManifest:
        raise UnknownManifest(
            f"the round is bound to the manifest {signed.body.manifest}, which is not among the "
            f"versions at hand, of which the newest is {book.current.manifest.sequence}: get the "
            "consortium's directory of now, with its history"
        ) from None
    except ProtocolError:
        return None
    return signed


def _decoded(values: list[Any], party: str, notice: Notice) -> list[Signed[Any]]:
    documents = []
    for value in values:
        try:
            documents.append(from_json(value, *_KINDS))
        except ProtocolError:
            notice(f"{party} shows a document that is none")
    return documents
