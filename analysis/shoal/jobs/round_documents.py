"""Gathers the documents that all parties of a round signed, for the round audit."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.service_calls import Endpoint, Refused, call
from shoal_protocol.rounds.attestations import Abandonment, Holdings, PartialSum, Result, Vote
from shoal_protocol.rounds.round_audit import Account, account_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

_KINDS: Final = (Holdings, Vote, PartialSum, Result, Abandonment)

Notice = Callable[[str], None]


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
    """Ask all Compute nodes and the aggregator; `notice` is told who does not answer well.

    Raises:
        Refused: no Compute node that answers knows the round.
    """
    manifest, base = book.current.manifest, f"/v1/rounds/{round_id}"
    spec: Signed[RoundSpec] | None = None
    documents: list[Signed[Any]] = []
    for node in manifest.compute_nodes:
        for value in await ask(node, f"{base}/spec", notice) if spec is None else []:
            spec = _spec(book, value, round_id)
        documents += _decoded(await ask(node, f"{base}/documents", notice), node.name, notice)
    aggregator = manifest.aggregator
    for what in ("result", "abandonment", "partial-sums", "wrong-sums"):
        shown = await ask(aggregator, f"{base}/{what}", notice)
        documents += _decoded(shown, aggregator.name, notice)
    if spec is None:
        raise Refused("no Compute node that answers knows a round of this id")
    return RoundDocuments(spec, book.get(spec.body.manifest), documents)


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
        book.get(signed.body.manifest).verify(signed)
    except ProtocolError:
        return None
    return signed if signed.digest == round_id else None


def _decoded(values: list[Any], party: str, notice: Notice) -> list[Signed[Any]]:
    documents = []
    for value in values:
        try:
            documents.append(from_json(value, *_KINDS))
        except ProtocolError:
            notice(f"{party} shows a document that is none")
    return documents
