"""Gathers the documents that all parties of a round signed, for the round audit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.service_calls import Endpoint, Refused, call
from shoal_protocol.rounds.attestations import Abandonment, Holdings, PartialSum, Result, Vote
from shoal_protocol.rounds.round_audit import Account, account_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, UnknownManifest

_KINDS: Final = (Holdings, Vote, PartialSum, Result, Abandonment)

Notice = Callable[[str], None]
PartyT = TypeVar("PartyT", bound=ServiceParty)


@dataclass(frozen=True)
class RoundDocuments:
    """A round's verified spec, the consortium that it is bound to, and its signed documents."""

    spec: Signed[RoundSpec]
    consortium: Consortium
    documents: list[Signed[Any]]

    def account(self) -> Account:
        """Return what became of each client of the round."""
        return account_of(self.spec, self.consortium, self.documents)

    def summed(self) -> dict[str, list[str]]:
        """Return the nodes whose partial sums the aggregator's result names, and the others."""
        for signed in self.documents:
            if isinstance(signed.body, Result) and signed.body.round == self.spec.digest:
                try:
                    self.consortium.verify(signed)
                except ProtocolError:
                    continue  # it is counted with the documents that do not verify
                used = {each.node for each in signed.body.partial_sums}
                nodes = self.spec.body.compute_nodes
                return {
                    "used": [name for name in nodes if name in used],
                    "not_used": [name for name in nodes if name not in used],
                }
        return {"used": [], "not_used": []}


async def gather(book: ManifestBook, round_id: str, notice: Notice) -> RoundDocuments:
    """Ask all Compute nodes and the aggregator, and those of the round that others replaced since.

    `notice` is told who does not answer well.

    Raises:
        Refused: no Compute node that answers knows the round.
        UnknownManifest: the round is bound to a version of the manifest that is not at hand.
    """
    versions, base = [each.manifest for each in book.versions], f"/v1/rounds/{round_id}"
    spec: Signed[RoundSpec] | None = None
    documents: list[Signed[Any]] = []
    for node in _newest_first([each.compute_nodes for each in versions]):
        is_listed = book.current.lists(node.name)
        if not is_listed and spec is not None and node.name not in spec.body.compute_nodes:
            continue
        for value in await ask(node, f"{base}/spec", notice) if spec is None else []:
            spec = _spec(book, value, round_id)
        documents += _decoded(await ask(node, f"{base}/documents", notice), node.name, notice)
    of_round = book.current.digest if spec is None else spec.body.manifest
    aggregators = [book.get(of_round).manifest.aggregator, book.current.manifest.aggregator]
    for aggregator in _newest_first([[each] for each in aggregators]):
        for what in ("result", "abandonment", "partial-sums", "wrong-sums"):
            shown = await ask(aggregator, f"{base}/{what}", notice)
            documents += _decoded(shown, aggregator.name, notice)
    if spec is None:
        raise Refused("no Compute node that answers knows a round of this id")
    return RoundDocuments(spec, book.get(spec.body.manifest), documents)


def _newest_first(versions: Sequence[Sequence[PartyT]]) -> list[PartyT]:
    """Return the parties of several versions, each once, as the newest that lists it has it."""
    named = (party for version in reversed(versions) for party in version)
    found: dict[str, PartyT] = {}
    for party in named:
        found.setdefault(party.name, party)
    return list(found.values())


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
        version = book.get(signed.body.manifest)
    except UnknownManifest:
        raise UnknownManifest(
            f"the round is bound to the manifest {signed.body.manifest}, which is not among the "
            f"versions at hand, of which the newest is {book.current.manifest.sequence}: get the "
            "consortium's directory of now, with its history"
        ) from None
    try:
        version.verify(signed)
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
