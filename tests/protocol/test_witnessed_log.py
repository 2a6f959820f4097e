"""Quorums, proofs by them, submissions to witnesses, and what a monitor finds."""

import pytest

from shoal_protocol.log.entries import Entry, ForkedLog, Monitor, check_same
from shoal_protocol.log.notes import (
    LogProof,
    Note,
    TooFewWitnesses,
    check_cosigned,
    cosign,
    cosigners,
    lying_witnesses,
    read_note,
    read_proof,
    witness_name,
)
from shoal_protocol.log.tiles import WrongProof
from shoal_protocol.wire.errors import BadSignature, MalformedDocument
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
    tree,
    version,
)

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
    assert check_cosigned(signed(ENTRIES, NODES[:2]), MANIFEST).size == len(ENTRIES)
    with pytest.raises(TooFewWitnesses):
        check_cosigned(signed(ENTRIES, NODES[:1]), MANIFEST)
    twice = signed(ENTRIES, NODES[:1])
    again = cosign(twice.text, witness_name(MANIFEST, NODES[0]), key_of(NODES[0]), at=AT + 1)
    with pytest.raises(TooFewWitnesses):
        check_cosigned(twice.with_lines(again), MANIFEST)
    note = signed(ENTRIES)
    with pytest.raises(BadSignature):
        check_cosigned(Note(note.text, note.signatures[1:]), MANIFEST)


def test_a_node_cannot_sign_for_another() -> None:
    note = signed(ENTRIES, NODES[:1])
    forged = cosign(note.text, witness_name(MANIFEST, NODES[1]), key_of(NODES[0]), at=AT)
    assert cosigners(note.with_lines(forged), MANIFEST).keys() == {NODES[0]}  # an unknown key


def test_a_proof_is_of_one_entry_and_comes_back_as_it_is_written() -> None:
    note = signed(ENTRIES)
    for place, entry in enumerate(ENTRIES):
        proof = LogProof(place, tree(ENTRIES).inclusion(place), note)
        again = read_proof(str(proof))
        assert str(again) == str(proof)
        assert again.check(entry.encode(), MANIFEST) == note.checkpoint
        with pytest.raises(WrongProof):
            again.check(ENTRIES[place - 1].encode(), MANIFEST)
    assert read_proof(str(proof).replace("index", "extra QUJD\nindex")) == again


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tlog-proof@v1", "tlog-proof@v2"),
        ("index 1", "index 01"),
        ("index 1", "place 1"),
    ],
)
def test_other_proofs_are_refused(old: str, new: str) -> None:
    written = str(LogProof(1, tree(ENTRIES).inclusion(1), signed(ENTRIES)))
    with pytest.raises(MalformedDocument):
        read_proof(written.replace(old, new))


def test_two_checkpoints_of_one_size_convict_the_aggregator_and_who_signed_both() -> None:
    one = signed(ENTRIES, NODES[:2])
    other = signed([*ENTRIES[:-1], certificate(5, which=2)], NODES[1:])
    check_same(one, signed(ENTRIES[:3]), MANIFEST, MANIFEST)
    check_same(one, signed(ENTRIES, NODES[1:]), MANIFEST, MANIFEST)
    with pytest.raises(ForkedLog) as fork:
        check_same(one, other, MANIFEST, MANIFEST)
    assert fork.value.witnesses == (NODES[1],)


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


def test_a_note_of_another_log_counts_nowhere() -> None:
    text = signed(ENTRIES).text.replace("shoal-log/", "shoal-log/other-")
    with pytest.raises(MalformedDocument):
        check_cosigned(read_note(f"{text}\n— a AAAAAAA=\n"), MANIFEST)
