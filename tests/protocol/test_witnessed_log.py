"""Who must sign a checkpoint, and what a monitor finds."""

import pytest

from shoal_protocol.log.checkpoints import (
    Cosignature,
    Entry,
    TooFewWitnesses,
    Witnessed,
    lying_witnesses,
)
from shoal_protocol.log.entries import ForkedLog, Monitor, check_same
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, WrongSigner
from tests.world import examples
from tests.world.logs import (
    AT,
    MANIFEST,
    NODES,
    certificate,
    digest,
    key_of,
    rounds,
    signed,
    version,
)

PARTIES = examples.CONSORTIUM
ENTRIES: list[Entry] = [version(), *rounds(5), certificate(5)]


@pytest.mark.parametrize(
    ("nodes", "cosignatures", "quorum", "lying"),
    [
        (2, None, 2, 2),
        (3, None, 2, 1),
        (4, None, 3, 2),
        (5, None, 4, 3),
        (5, 3, 3, 1),
        (3, 3, 3, 3),
    ],
)
def test_a_quorum_is_all_but_one_unless_the_policy_says_otherwise(
    nodes: int, cosignatures: int | None, quorum: int, lying: int
) -> None:
    policy = examples.POLICY.model_copy(update={"cosignatures": cosignatures})
    manifest = examples.manifest(nodes=nodes, policy=policy)
    assert (manifest.quorum, lying_witnesses(manifest)) == (quorum, lying)


@pytest.mark.parametrize(("nodes", "cosignatures"), [(4, 2), (5, 2), (3, 4)])
def test_half_of_the_nodes_are_no_quorum_nor_more_than_there_are(
    nodes: int, cosignatures: int
) -> None:
    policy = examples.POLICY.model_copy(update={"cosignatures": cosignatures})
    with pytest.raises(ValueError, match="more than half"):
        examples.manifest(nodes=nodes, policy=policy)


def test_a_manifest_without_the_number_keeps_its_digest() -> None:
    assert "cosignatures" not in MANIFEST.model_dump(mode="json")["policy"]


def test_a_checkpoint_counts_with_a_quorum_of_distinct_nodes_and_the_aggregator() -> None:
    assert signed(ENTRIES, NODES[:2]).cosigned(PARTIES).size == len(ENTRIES)
    with pytest.raises(TooFewWitnesses):
        signed(ENTRIES, NODES[:1]).cosigned(PARTIES)
    with pytest.raises(TooFewWitnesses):
        signed(ENTRIES, NODES[:1] * 2).cosigned(PARTIES)
    made = signed(ENTRIES)
    forged = sign(made.checkpoint.body, "aggregator", key_of("trainer"))
    with pytest.raises(BadSignature):
        made.model_copy(update={"checkpoint": forged}).cosigned(PARTIES)
    by_node = made.checkpoint.body.model_copy(update={"aggregator": NODES[0]})
    with pytest.raises(WrongSigner):
        Witnessed(checkpoint=sign(by_node, NODES[0], key_of(NODES[0]))).checked(PARTIES)


def test_a_node_cannot_sign_for_another_nor_a_signature_be_of_another_checkpoint() -> None:
    made = signed(ENTRIES, NODES[:1])
    body = Cosignature(checkpoint=made.checkpoint.digest, node=NODES[1], at=AT)
    for forged in (
        sign(body, NODES[1], key_of(NODES[0])),
        sign(body, NODES[0], key_of(NODES[0])),
        signed(ENTRIES[:-1], NODES[1:2]).cosignatures[0],
    ):
        both = made.model_copy(update={"cosignatures": (*made.cosignatures, forged)})
        assert both.cosigners(PARTIES) == {NODES[0]: AT}


def test_two_checkpoints_of_one_size_convict_the_aggregator_and_who_signed_both() -> None:
    one = signed(ENTRIES, NODES[:2])
    other = signed([*ENTRIES[:-1], certificate(5, which=2)], NODES[1:])
    check_same(one, signed(ENTRIES[:3]), PARTIES, PARTIES)
    check_same(one, signed(ENTRIES, NODES[1:]), PARTIES, PARTIES)
    with pytest.raises(ForkedLog) as fork:
        check_same(one, other, PARTIES, PARTIES)
    assert fork.value.witnesses == (NODES[1],)


def test_the_logs_of_two_aggregators_are_no_fork_of_one() -> None:
    first = examples.CONSORTIUM.manifest.aggregator
    key = bytes(key_of("aggregator-2").verify_key).hex()
    second = first.model_copy(update={"name": "aggregator-2", "verify_key": key})
    later = examples.consortium(aggregator=second)
    other = signed(ENTRIES[1:], manifest=later.manifest)
    with pytest.raises(MalformedDocument, match="keep one copy of each"):
        check_same(signed(ENTRIES[:-1]), other, PARTIES, later)


def findings(*entries: Entry) -> list[tuple[int, str]]:
    monitor = Monitor()
    for each in entries:
        monitor.follow(each)
    return [(each.place, each.what) for each in monitor.findings]


def test_a_monitor_finds_nothing_in_an_honest_log() -> None:
    second = version(2, digest(1))
    more = rounds(2, job=1)
    assert findings(*ENTRIES, second, *more[:1], *rounds(1, job=2), *more[1:]) == []


@pytest.mark.parametrize(
    ("entries", "place", "word"),
    [
        ([version(), version(1, None, digest(99))], 1, "version 1"),
        ([version(), version(2, digest(5))], 1, "version 2"),
        ([version(), version(3, digest(1))], 1, "version 3"),
        ([*ENTRIES, certificate(5, which=2)], len(ENTRIES), "two certificates"),
        ([*ENTRIES, *rounds(1, first=5)[:1]], len(ENTRIES), "further round"),
        ([*rounds(3), certificate(2)], 6, "has 2 rounds, the log 3"),
        ([rounds(1)[1]], 0, "without having been logged"),
        (
            [
                *rounds(1),
                rounds(1)[1].model_copy(update={"digest": digest(4), "kind": "abandonment"}),
            ],
            2,
            "ended twice",
        ),
        ([*rounds(1), rounds(1)[0].model_copy(update={"digest": digest(4)})], 2, "of number 0"),
    ],
)
def test_a_monitor_finds_what_contradicts_itself(
    entries: list[Entry], place: int, word: str
) -> None:
    [(where, what)] = findings(*entries)
    assert where == place
    assert word in what


def test_a_checkpoint_of_another_consortium_counts_nowhere() -> None:
    body = signed(ENTRIES).checkpoint.body.model_copy(update={"consortium": "others"})
    other = Witnessed(checkpoint=sign(body, "aggregator", key_of("aggregator")))
    with pytest.raises(MalformedDocument):
        other.cosigned(PARTIES)
