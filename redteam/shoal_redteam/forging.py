"""Documents that no honest party makes: signed by any key, over any JSON, with any slip in them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from nacl.signing import SigningKey

from shoal_protocol.journal import GENESIS, Link
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Charge,
    PartialSum,
)
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.succession import ManifestStatement, written
from shoal_protocol.wire.documents import Document, Signed, sign
from shoal_protocol.wire.encoding import Uint64Vector, canonical_json, domain, format_time
from shoal_protocol.wire.vectors import encode_uint64
from shoal_redteam.played_round import PlayedRound
from shoal_redteam.target import Target

PLACE: Final = Link(epoch=f"1-{'0' * 32}", number=2, previous=GENESIS)
"""Where a liar says that a statement stands in its journal."""


def forged(kind: str, body: Mapping[str, Any], signer: str, key: SigningKey) -> dict[str, Any]:
    """Return a signed document's JSON: the signature is genuine, whatever `body` holds."""
    message = domain(kind) + canonical_json(dict(body))
    return {"body": dict(body), "signature": key.sign(message).signature.hex(), "signer": signer}


def countersigned(target: Target, manifest: Signed[Manifest]) -> Signed[Manifest]:
    """Return the next version with the signatures of all Compute nodes' keys."""
    signed = [manifest_statement(target, manifest.body, node) for node in target.nodes]
    return replace(manifest, countersignatures=written(signed))


def manifest_statement(
    target: Target, later: Manifest, node: str, signer: str | None = None
) -> Signed[ManifestStatement]:
    """Return a node's statement of the next version, signed by its key or by that of `signer`."""
    entry = Link(epoch=f"1-{'0' * 32}", number=1, previous=GENESIS)
    body = ManifestStatement.of(target.consortium, later, node=node, entry=entry)
    return sign(body, node, target.key(signer or node))


def changed(document: Document, **fields: Any) -> dict[str, Any]:
    """Return a document's JSON with some fields replaced, unchecked."""
    return document.model_dump(mode="json") | fields


def gossip(
    target: Target, documents: Iterable[Mapping[str, Any]], *, rounds: Iterable[str]
) -> bytes:
    """Return a gossip message that hands over documents and asks for all of these rounds."""
    return canonical_json(
        {
            "documents": [dict(each) for each in documents],
            "known": {each: [] for each in rounds},
            "time": format_time(target.after(0.0)),
            "wanted": [],
        }
    )


async def tell_node(target: Target, node: str, *documents: Signed[Any]) -> None:
    """Gossip documents to a node at once; what is not valid it leaves out, without saying so."""
    rounds = sorted({signed.body.round for signed in documents})
    message = gossip(target, [signed.to_json() for signed in documents], rounds=rounds)
    await target.send(node, "/v1/gossip", message)


async def call_off(played: PlayedRound) -> None:
    """End a round of which nothing is wanted: a node's key says so, and the others are told.

    A round that is called off before anybody answered costs its clients nothing.
    """
    target, node = played.target, played.target.nodes[0]
    body = Abandonment(
        manifest=played.spec.manifest,
        round=played.signed.digest,
        party=node,
        reason=AbandonmentReason(code="called_off_by_node"),
        entry=PLACE,
    )
    path = f"{played.path}/ends"
    await target.send(target.aggregator, path, target.sign(body, node).encode())
    signed = await played.outcome()
    for name in target.nodes:
        await tell_node(target, name, signed)


def claimed_sum(
    played: PlayedRound, node: str, cohort: Collection[int], values: Uint64Vector
) -> PartialSum:
    """Return a partial sum that a node may claim, of any values over any cohort."""
    return PartialSum(
        manifest=played.spec.manifest,
        round=played.signed.digest,
        node=node,
        cohort=played.cohort_digest(cohort),
        cohort_size=len(cohort),
        values=encode_uint64(values),
        charge=Charge(entry=PLACE.model_copy(update={"number": 1}), salt="0" * 32, job_rounds=1),
        entry=PLACE,
    )
