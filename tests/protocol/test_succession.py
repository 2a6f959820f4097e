"""The next version of a manifest is believed by nodes' signatures, or in an emergency."""

from dataclasses import replace
from typing import Any

import pytest

from shoal_protocol.trust.manifest import AUTHORITY_NAME, Consortium, Manifest
from shoal_protocol.trust.succession import (
    ManifestStatement,
    following_version,
    lying_nodes,
    statements,
    written,
)
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.errors import MalformedDocument, TooFewSignatures
from tests.world import examples
from tests.world.signatures import countersigned, statement

POLICY = examples.POLICY.model_copy(update={"manifest_signatures": 2})
NOW = examples.consortium(policy=POLICY)
NODES = [node.name for node in NOW.manifest.compute_nodes]


def following(now: Consortium = NOW, **changes: Any) -> Signed[Manifest]:
    place = {"sequence": 2, "previous": now.digest}
    body = now.manifest.model_copy(update=place | changes)
    return sign(body, AUTHORITY_NAME, examples.AUTHORITY)


def accept(signed_manifest: Signed[Manifest]) -> None:
    accepted = following_version(NOW, signed_manifest.encode(), NOW.roster.encode())
    assert accepted.signed_manifest.countersignatures == signed_manifest.countersignatures
    assert accepted.digest == signed_manifest.digest


def refuse(signed_manifest: Signed[Manifest]) -> None:
    with pytest.raises(TooFewSignatures):
        accept(signed_manifest)


@pytest.mark.parametrize(
    ("nodes", "asked", "quorum", "lying"),
    [(2, None, 2, 2), (3, None, 2, 1), (4, None, 3, 2), (5, 3, 3, 1), (5, 5, 5, 5), (7, 4, 4, 1)],
)
def test_R8_two_histories_need_so_many_lying_nodes(
    nodes: int, asked: int | None, quorum: int, lying: int
) -> None:
    policy = examples.POLICY.model_copy(update={"manifest_signatures": asked})
    manifest = examples.consortium(nodes=nodes, policy=policy).manifest
    assert (manifest.quorum, lying_nodes(manifest)) == (quorum, lying)


@pytest.mark.parametrize(("nodes", "asked"), [(4, 2), (5, 2), (3, 4)])
def test_R8_a_quorum_is_more_than_half_of_the_nodes_and_at_most_all(nodes: int, asked: int) -> None:
    policy = examples.POLICY.model_copy(update={"manifest_signatures": asked})
    with pytest.raises(ValueError, match="more than half"):
        examples.consortium(nodes=nodes, policy=policy)


def test_R8_a_version_is_believed_once_a_quorum_of_the_nodes_before_it_signed() -> None:
    accept(countersigned(NOW, following()))
    accept(countersigned(NOW, following(), NODES[1:]))
    refuse(countersigned(NOW, following(), NODES[:1]))
    refuse(countersigned(NOW, following(), []))
    refuse(following())


def test_R8_a_node_counts_once() -> None:
    twice = [statement(NOW, following().body, NODES[0])] * 2
    refuse(replace(following(), countersignatures=written(twice)))


def test_R8_signatures_are_of_this_version() -> None:
    other = following(policy=POLICY.model_copy(update={"minimum_cohort": 11}))
    refuse(replace(other, countersignatures=countersigned(NOW, following()).countersignatures))
    for broken in ("nothing", "{}", "[1]", "\ud800", countersigned(NOW, other).encode().decode()):
        with pytest.raises(MalformedDocument):
            statements(broken)
    with pytest.raises(MalformedDocument):
        accept(replace(other, countersignatures="nothing"))


@pytest.mark.parametrize("what", ["forged", "another node's", "another version's", "the trainer's"])
def test_R8_a_statement_that_does_not_hold_counts_for_nothing(what: str) -> None:
    later = following()
    good, bad = (statement(NOW, later.body, name) for name in NODES[:2])
    body = bad.body
    wrong = {
        "forged": replace(bad, signature=good.signature),
        "another node's": sign(body, NODES[0], examples.signing_key(NODES[0])),
        "another version's": sign(
            body.model_copy(update={"manifest": "0" * 64}),
            NODES[1],
            examples.signing_key(NODES[1]),
        ),
        "the trainer's": sign(
            body.model_copy(update={"node": "trainer"}),
            "trainer",
            examples.signing_key("trainer"),
        ),
    }[what]
    refuse(replace(later, countersignatures=written([good, wrong])))
    accept(replace(later, countersignatures=written([good, wrong, bad])))


def test_R8_the_nodes_of_the_next_version_cannot_sign_for_it() -> None:
    def new_key(name: str) -> Any:
        return examples.signing_key(f"new-{name}")

    nodes = tuple(
        node.model_copy(update={"verify_key": bytes(new_key(node.name).verify_key).hex()})
        for node in NOW.manifest.compute_nodes
    )
    later = following(compute_nodes=nodes)
    refuse(countersigned(NOW, later, keys=new_key))
    accept(countersigned(NOW, later))


def test_a_consortium_that_asks_for_no_signatures_may_begin_to() -> None:
    first = examples.CONSORTIUM
    assert first.manifest.policy.manifest_signatures is None
    place = {"sequence": 2, "previous": first.digest}
    second = first.manifest.model_copy(update=place | {"policy": POLICY})
    encoded = sign(second, AUTHORITY_NAME, examples.AUTHORITY).encode()
    accepted = following_version(first, encoded, first.roster.encode())
    assert accepted.manifest.quorum == 2
    without = following(policy=examples.POLICY)
    with pytest.raises(MalformedDocument, match="number of signatures"):
        accept(countersigned(NOW, without))


def replaced(count: int) -> tuple[Any, ...]:
    """Return the Compute nodes with other ones, by name, in the places of the last `count`."""
    kept = NOW.manifest.compute_nodes[: len(NODES) - count]
    new = [
        node.model_copy(update={"name": f"{node.name}-new"})
        for node in NOW.manifest.compute_nodes[len(NODES) - count :]
    ]
    return (*kept, *new)


def test_R8_an_emergency_counts_only_where_fewer_nodes_stay_than_must_sign() -> None:
    accept(following(compute_nodes=replaced(2), emergency="two sites burnt"))
    moved = NOW.manifest.aggregator.model_copy(update={"name": "aggregator-new"})
    for changes in ({}, {"compute_nodes": replaced(1)}, {"aggregator": moved}):
        with pytest.raises(MalformedDocument, match="no emergency"):
            accept(following(emergency="no reason", **changes))
        accept(countersigned(NOW, following(**changes)))
    refuse(following(compute_nodes=replaced(2)))


def test_R8_an_emergency_has_a_subject_of_its_own() -> None:
    usual = following(compute_nodes=replaced(2)).body
    emergency = following(compute_nodes=replaced(2), emergency="two sites burnt").body
    one, other = (
        ManifestStatement.of(NOW, each, node=NODES[0], entry=examples.LINK).subject
        for each in (usual, emergency)
    )
    assert one == f"{NOW.manifest.identity}/2"
    assert other == f"{NOW.manifest.identity}/2/emergency"
