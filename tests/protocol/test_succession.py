"""The next version of a manifest is believed by the log's proof, or in an emergency that is one."""

from dataclasses import replace
from typing import Any

import pytest

from shoal_protocol.log.checkpoints import ManifestEntry, TooFewWitnesses, WrongProof
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Manifest
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.errors import BadSignature, MalformedDocument
from tests.world import examples
from tests.world.logs import NODES, proof, rounds, signed, version

POLICY = examples.POLICY.model_copy(update={"cosignatures": 2})
NOW = examples.consortium(policy=POLICY)


def following(**changes: Any) -> Signed[Manifest]:
    place = {"sequence": 2, "previous": NOW.digest}
    body = NOW.manifest.model_copy(update=place | changes)
    return sign(body, AUTHORITY_NAME, examples.AUTHORITY)


def proved(signed_manifest: Signed[Manifest], *nodes: str) -> Signed[Manifest]:
    entries = [version(), *rounds(3), ManifestEntry.of(signed_manifest.body)]
    made = proof(entries, 7, signed(entries, nodes, manifest=NOW.manifest))
    return replace(signed_manifest, log_proof=made.encode().decode())


def accept(signed_manifest: Signed[Manifest]) -> None:
    accepted = following_version(NOW, signed_manifest.encode(), NOW.roster.encode())
    assert accepted.signed_manifest.log_proof == signed_manifest.log_proof
    assert accepted.digest == signed_manifest.digest


def test_a_version_is_believed_once_a_quorum_signed_the_log_with_it() -> None:
    accept(proved(following(), *NODES))
    accept(proved(following(), *NODES[1:]))
    for nodes in (NODES[:1], []):
        with pytest.raises(TooFewWitnesses):
            accept(proved(following(), *nodes))
    with pytest.raises(TooFewWitnesses):
        accept(following())


def test_the_proof_is_of_this_version() -> None:
    other = following(policy=POLICY.model_copy(update={"minimum_cohort": 11}))
    stolen = replace(other, log_proof=proved(following(), *NODES).log_proof)
    with pytest.raises(WrongProof):
        accept(stolen)
    with pytest.raises(MalformedDocument):
        accept(replace(other, log_proof="nothing"))


def test_the_nodes_of_the_next_version_cannot_sign_for_it() -> None:
    nodes = tuple(
        node.model_copy(
            update={"verify_key": bytes(examples.signing_key(f"new-{node.name}").verify_key).hex()}
        )
        for node in NOW.manifest.compute_nodes
    )
    later = following(compute_nodes=nodes)
    with pytest.raises(TooFewWitnesses):
        accept(proved(later))
    accept(proved(later, *NODES))


def test_a_consortium_from_before_the_log_needs_none_until_it_asks_for_it() -> None:
    first = examples.CONSORTIUM
    assert first.manifest.policy.cosignatures is None
    place = {"sequence": 2, "previous": first.digest}
    second = first.manifest.model_copy(update=place | {"policy": POLICY})
    encoded = sign(second, AUTHORITY_NAME, examples.AUTHORITY).encode()
    accepted = following_version(first, encoded, first.roster.encode())
    assert accepted.manifest.quorum == 2


def replaced(count: int) -> tuple[Any, ...]:
    """Return the Compute nodes with other ones, by name, in the places of the last `count`."""
    kept = NOW.manifest.compute_nodes[: len(NODES) - count]
    new = [
        node.model_copy(update={"name": f"{node.name}-new"})
        for node in NOW.manifest.compute_nodes[len(NODES) - count :]
    ]
    return (*kept, *new)


def test_an_emergency_counts_only_where_fewer_nodes_stay_than_must_sign() -> None:
    accept(following(compute_nodes=replaced(2), emergency="two sites burnt"))
    moved = NOW.manifest.aggregator.model_copy(update={"name": "aggregator-new"})
    accept(following(aggregator=moved, emergency="the aggregator's disk is lost"))
    for changes in ({}, {"compute_nodes": replaced(1)}):
        with pytest.raises(MalformedDocument, match="no emergency"):
            accept(following(emergency="no reason", **changes))
    with pytest.raises(TooFewWitnesses):
        accept(following(compute_nodes=replaced(2)))


def test_a_broken_signature_in_the_proof_counts_for_nothing() -> None:
    made = proved(following(), *NODES[:2])
    assert made.log_proof is not None
    of_node = made.log_proof.rindex('"signature":"') + len('"signature":"')
    of_aggregator = made.log_proof.index('"checkpoint":{"body":{"aggregator"')
    of_aggregator = made.log_proof.index('"signature":"', of_aggregator) + len('"signature":"')
    for place, error in ((of_node, TooFewWitnesses), (of_aggregator, BadSignature)):
        other = "0" if made.log_proof[place] != "0" else "1"
        changed = made.log_proof[:place] + other + made.log_proof[place + 1 :]
        with pytest.raises(error):
            accept(replace(made, log_proof=changed))
