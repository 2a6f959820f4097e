"""What nodes tell each other: enough to agree, nothing twice without need, never a partial sum."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_compute import gossip
from shoal_compute.announcing import MOST_LIVE_ROUNDS
from shoal_compute.gossip import (
    LARGEST_MESSAGE_BYTES,
    PERIOD,
    Acquaintance,
    Answer,
    Message,
    answer,
    decode_answer,
    decode_message,
)
from shoal_compute.pace import Pace
from shoal_compute.rounds import Round, open_round
from shoal_compute.store import Kept, StoredRound
from shoal_protocol.documents import sign
from shoal_protocol.encoding import LARGEST_SET, canonical_json, encode_clients
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.phases import Phase
from tests.compute.federation import (
    POPULATION,
    Federation,
    consortium,
    holdings,
    party,
    vote,
)
from tests.protocol import examples
from tests.protocol.examples import OPENED_AT, signing_key

TRUST = consortium()
SPEC = sign(examples.spec(manifest=TRUST), "trainer", signing_key("trainer"))
DOCUMENTS = [
    *(holdings(SPEC.body, f"compute-{node}", range(12 - node)) for node in range(3)),
    *(vote(SPEC.body, f"compute-{node}", range(10)) for node in range(3)),
]
SOME = st.sets(st.sampled_from(range(len(DOCUMENTS))))


def known_round(which: set[int], phase: Phase = Phase.FROZEN, node: int = 0) -> Round:
    stored = StoredRound(
        number=1,
        spec=SPEC,
        phase=phase,
        reason=None,
        reported=False,
        erased=False,
        documents=tuple(DOCUMENTS[index] for index in sorted(which)),
        second=frozenset(),
    )
    return open_round(stored, POPULATION, TRUST, party(node))


@given(here=SOME, there=SOME)
def test_one_exchange_and_what_it_asks_for_bring_two_nodes_level(
    here: set[int], there: set[int]
) -> None:
    mine, theirs = known_round(here), known_round(there, node=1)
    acquaintance = Acquaintance()
    message = acquaintance.message([mine], OPENED_AT)
    assert message is not None
    message = decode_message(message.encode())
    for signed in message.documents:
        theirs.learn(signed, Kept.FIRST)
    reply = decode_answer(answer({SPEC.digest: theirs}, message.known).encode())
    for signed in reply.documents:
        mine.learn(signed, Kept.FIRST)
    acquaintance.heard(message, reply, {SPEC.digest: mine}, OPENED_AT)
    assert mine.documents == theirs.documents
    assert mine.holdings == theirs.holdings
    assert acquaintance.is_settled(mine)


@given(which=SOME, wanted=SOME)
def test_messages_survive_the_wire(which: set[int], wanted: set[int]) -> None:
    documents = tuple(DOCUMENTS[index] for index in which)
    digests = frozenset(DOCUMENTS[index].digest for index in wanted)
    message = Message(documents, {SPEC.digest: digests})
    assert decode_message(message.encode()) == message
    assert message.encode() == canonical_json(
        {
            "documents": [signed.to_json() for signed in documents],
            "known": {SPEC.digest: sorted(digests)},
        }
    )
    reply = Answer(documents, digests)
    assert decode_answer(reply.encode()) == reply


def test_a_peer_is_told_news_at_once_and_the_rest_once_in_a_period() -> None:
    mine = known_round({0})
    live = {SPEC.digest: mine}
    acquaintance = Acquaintance()
    first = acquaintance.message([mine], OPENED_AT)
    assert first is not None
    acquaintance.heard(first, Answer((), frozenset()), live, OPENED_AT)
    assert acquaintance.message([mine], OPENED_AT) is None
    mine.learn(DOCUMENTS[1], Kept.FIRST)
    second = acquaintance.message([mine], OPENED_AT)
    assert second is not None
    assert second.documents == (DOCUMENTS[1],)
    # this time the peer says that it lacks both: it was set back, or refused them
    both = frozenset(signed.digest for signed in DOCUMENTS[:2])
    acquaintance.heard(second, Answer((), both), live, OPENED_AT)
    assert acquaintance.message([mine], OPENED_AT) is None
    third = acquaintance.message([mine], OPENED_AT + PERIOD)
    assert third is not None
    assert set(signed.digest for signed in third.documents) == both


def test_what_a_peer_invents_is_not_remembered() -> None:
    mine = known_round({0})
    acquaintance = Acquaintance()
    message = acquaintance.message([mine], OPENED_AT)
    assert message is not None
    invented = [
        holdings(examples.spec(manifest=TRUST, number=number), "compute-1", range(12))
        for number in (1, 2)
    ]
    refused = DOCUMENTS[1]  # not taken in here
    reply = Answer((*invented, refused), frozenset({"0" * 64}))
    acquaintance.heard(message, reply, {SPEC.digest: mine}, OPENED_AT)
    assert acquaintance.knows == {SPEC.digest: {DOCUMENTS[0].digest}}


def test_a_round_that_ended_during_an_exchange_stays_forgotten() -> None:
    mine = known_round({0})
    acquaintance = Acquaintance()
    message = acquaintance.message([mine], OPENED_AT)
    assert message is not None
    acquaintance.forget(SPEC.digest)
    acquaintance.heard(message, Answer((), frozenset()), {}, OPENED_AT)
    assert (acquaintance.knows, acquaintance.offered) == ({}, {})


async def test_documents_of_rounds_that_were_not_asked_for_are_not_taken_from_an_answer(
    federation: Federation,
) -> None:
    spec, invented = federation.spec(), federation.spec(number=1)
    await federation.announce(spec, [0])
    await federation.upload_all(spec, nodes=[0])
    asked, unasked = (holdings(each.body, "compute-1", range(12)) for each in (spec, invented))
    reply = Answer((asked, unasked), frozenset()).encode()

    async def liar(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": reply})

    federation.wire.apps["compute-1.example"] = liar
    await federation.step([0])
    assert asked in await federation.documents(0, spec)
    metrics = (await federation.request(0, "GET", "/metrics")).text
    assert 'gossip_total{outcome="document_refused"} 0.0' in metrics


def test_a_message_and_its_answer_fit_the_limit_however_many_rounds_are_live() -> None:
    largest = holdings(SPEC.body, "compute-0", range(12)).body.model_copy(
        update={"clients": encode_clients(BitMap(range(0, LARGEST_SET, 2)))}
    )
    document = sign(largest, "compute-0", signing_key("compute-0"))
    rounds = {}
    for number in range(MOST_LIVE_ROUNDS):
        spec = replace(SPEC, body=SPEC.body.model_copy(update={"number": number}))
        digests = [
            f"{number:032x}{each:032x}" for each in range(1021)
        ]  # of 255 nodes, 1 aggregator
        rounds[spec.digest] = replace(
            known_round(set()), spec=spec, spoken_of=dict.fromkeys(digests, document)
        )
    message = Acquaintance().message(rounds.values(), OPENED_AT)
    assert message is not None
    assert message.documents
    encoded = message.encode()
    assert len(encoded) <= LARGEST_MESSAGE_BYTES
    known = decode_message(encoded).known
    assert len(answer({}, known).encode()) <= LARGEST_MESSAGE_BYTES
    told = answer(rounds, {round_id: frozenset("1" * 64) for round_id in known})
    assert len(told.encode()) <= LARGEST_MESSAGE_BYTES


def test_no_round_waits_behind_others_whose_documents_a_peer_cannot_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gossip, "_DOCUMENT_BYTES", 1)  # so that each message holds one
    live = {}
    for number in range(3):
        spec = replace(SPEC, body=SPEC.body.model_copy(update={"number": number}))
        live[spec.digest] = replace(known_round(set()), spec=spec)
        for node in range(2):
            document = holdings(spec.body, f"compute-{node}", range(12))
            live[spec.digest].learn(document, Kept.FIRST)
    acquaintance, now = Acquaintance(), OPENED_AT
    offered = []
    for _ in range(6 + 3):  # all the news at once, and then a round's turn in each period
        message = acquaintance.message(live.values(), now)
        assert message is not None
        offered += message.documents
        refused = Answer((), frozenset().union(*message.known.values()))
        acquaintance.heard(message, refused, live, now)
        now += PERIOD if len(offered) >= 6 else timedelta()
    assert len({signed.digest for signed in offered[:6]}) == 6
    assert {signed.body.round for signed in offered[6:]} == live.keys()


def test_there_is_nothing_to_say_of_a_round_that_only_collects() -> None:
    collecting = known_round(set(), Phase.COLLECTING)
    assert Acquaintance().message([collecting], OPENED_AT) is None


def test_a_peer_that_is_down_is_tried_ever_more_rarely_but_for_ever() -> None:
    pace, now, waits = Pace(), OPENED_AT, []
    for _ in range(30):
        pace.failed(now)
        assert pace.next_at is not None
        assert not pace.is_due(pace.next_at - timedelta(microseconds=1))
        waits.append(pace.next_at - now)
        now = pace.next_at
        assert pace.is_due(now)
    assert waits == sorted(waits)
    assert waits[0] == timedelta(milliseconds=100)
    assert waits[-1] == timedelta(seconds=5)
    pace.succeeded()
    assert pace.is_due(OPENED_AT)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"documents": [], "known": {"0": []}},
        {"documents": [], "known": {"0" * 64: ["x"]}},
        {"documents": [], "known": {}, "more": 1},
        {"documents": [{}], "known": {}},
        {"documents": [SPEC.to_json()], "known": {}},
        {"documents": [], "known": {f"{number:064x}": [] for number in range(257)}},
    ],
)
def test_what_is_not_a_message_is_refused(value: object) -> None:
    with pytest.raises(MalformedDocument):
        decode_message(canonical_json(value))


async def test_a_node_tells_what_the_caller_lacks_and_what_it_lacks_itself(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    await federation.upload_all(spec, nodes=[0])
    await federation.step([0])
    theirs = holdings(spec.body, "compute-1", range(12))
    told = await federation.gossip(0, [], {spec.digest: [theirs.digest], "0" * 64: ["1" * 64]})
    assert [each["signer"] for each in told["documents"]] == ["compute-0"]
    assert sorted(told["wanted"]) == sorted([theirs.digest, "1" * 64])
    told = await federation.gossip(0, [theirs], {spec.digest: [theirs.digest]})
    assert told["wanted"] == []


async def test_partial_sums_are_not_gossip(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    await federation.step(times=3)
    told = await federation.gossip(0, [], {spec.digest: []})
    assert {each["body"]["kind"] for each in told["documents"]} == {"holdings", "vote"}
    documents = await federation.documents(0, spec)
    assert {each.signer for each in documents if each.body.kind == "partial_sum"} == {"compute-0"}


async def test_a_document_that_fails_its_checks_is_left_out_and_the_others_are_kept(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    other = federation.spec(number=1)
    body = holdings(spec.body, "compute-1", range(12)).body
    bad = [
        sign(body, "compute-1", signing_key("compute-2")),
        sign(body, "compute-2", signing_key("compute-2")),
        sign(body, "aggregator", signing_key("aggregator")),
        sign(body.model_copy(update={"count": 11}), "compute-1", signing_key("compute-1")),
        holdings(spec.body, "compute-1", range(13)),
        holdings(other.body, "compute-1", range(12)),
        sign(body.model_copy(update={"manifest": "0" * 64}), "compute-1", signing_key("compute-1")),
    ]
    good = holdings(spec.body, "compute-2", range(12))
    await federation.gossip(0, [*bad, good])
    assert await federation.documents(0, spec) == [good]
    metrics = (await federation.request(0, "GET", "/metrics")).text
    assert 'shoal_compute_gossip_total{outcome="document_refused"} 7.0' in metrics
