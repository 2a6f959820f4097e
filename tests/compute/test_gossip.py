"""What nodes tell each other: enough to agree, nothing twice without need, never a partial sum."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from sqlalchemy import Connection, Row

from shoal_compute import gossip, store
from shoal_compute.announcing import MOST_LIVE_ROUNDS
from shoal_compute.gossip import (
    ASK_NEXT_AFTER,
    LARGEST_MESSAGE_BYTES,
    PERIOD,
    Message,
    PeerState,
    Requests,
    answer,
    decode_message,
)
from shoal_compute.rounds import Round, open_round
from shoal_compute.store import Kept
from shoal_protocol.rounds.attestations import Holdings, StoredAnswers
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.phases import Phase
from tests.world import examples
from tests.world.around_node import (
    POPULATION,
    Federation,
    holdings,
    vote,
)
from tests.world.examples import OPENED_AT, PLACE, signing_key
from tests.world.lives import quiet
from tests.world.parties import party, reachable

TRUST = reachable()
SPEC = sign(examples.spec(manifest=TRUST), "trainer", signing_key("trainer"))
DOCUMENTS = [
    *(holdings(SPEC.body, f"compute-{node}", range(12 - node)) for node in range(3)),
    *(vote(SPEC.body, f"compute-{node}", range(10)) for node in range(3)),
]
OWN, RELAYED, VOTE = DOCUMENTS[0], DOCUMENTS[1], DOCUMENTS[3]
SOME = st.sets(st.sampled_from(range(len(DOCUMENTS))))


def known_round(which: set[int], phase: Phase = Phase.FROZEN, node: int = 0) -> Round:
    known = open_round(SPEC, POPULATION, TRUST, party(f"compute-{node}", TRUST), phase=phase)
    for index in sorted(which):
        known.learn(DOCUMENTS[index], Kept.FIRST)
    return known


@pytest.mark.slow
@given(here=SOME, there=SOME)
def test_two_exchanges_and_what_they_ask_for_bring_two_nodes_level(
    here: set[int], there: set[int]
) -> None:
    mine, theirs = known_round(here), known_round(there, node=1)
    peer_state = PeerState()
    for now in (OPENED_AT, OPENED_AT + PERIOD):
        message = peer_state.message([mine], now)
        assert message is not None
        message = decode_message(message.encode())
        for signed in message.documents:
            assert signed.digest not in theirs.documents or now == OPENED_AT
            theirs.learn(signed, Kept.FIRST)
        reply = decode_message(answer({SPEC.digest: theirs}, message, [], now).encode())
        for signed in reply.documents:
            mine.learn(signed, Kept.FIRST)
        peer_state.note_exchange(message, reply, {SPEC.digest: mine}, now)
    assert mine.documents == theirs.documents
    assert mine.holdings == theirs.holdings
    unasked = peer_state.message([mine], OPENED_AT + 2 * PERIOD)
    assert unasked is not None and unasked.documents == ()  # it is only told where this one stands


def said(*known: Signed, documents: tuple = (), wanted: Iterable[Signed] = ()) -> Message:
    """Return an answer of a peer that has these documents."""
    return Message(
        documents=documents,
        known={SPEC.digest: frozenset(signed.digest for signed in known)},
        wanted=frozenset(signed.digest for signed in wanted),
        time=OPENED_AT,
    )


def test_a_peer_is_told_news_at_once_and_the_rest_once_in_a_period() -> None:
    mine = known_round({0})
    live = {SPEC.digest: mine}
    peer_state = PeerState()
    first = peer_state.message([mine], OPENED_AT)
    assert first is not None
    peer_state.note_exchange(first, said(DOCUMENTS[0]), live, OPENED_AT)
    assert peer_state.message([mine], OPENED_AT) is None
    mine.learn(RELAYED, Kept.FIRST)
    assert peer_state.message([mine], OPENED_AT) is None  # its signer sends it
    mine.learn(VOTE, Kept.FIRST)
    second = peer_state.message([mine], OPENED_AT)
    assert second is not None
    assert second.documents == (VOTE,)
    # the peer lacks two: it refused one, and nobody sent it the other
    peer_state.note_exchange(second, said(OWN), live, OPENED_AT)
    assert peer_state.message([mine], OPENED_AT) is None
    third = peer_state.message([mine], OPENED_AT + PERIOD)
    assert third is not None
    assert set(third.documents) == {RELAYED, VOTE}


def test_what_a_peer_invents_is_not_remembered() -> None:
    mine = known_round({0})
    peer_state = PeerState()
    message = peer_state.message([mine], OPENED_AT)
    assert message is not None
    invented = [
        holdings(examples.spec(manifest=TRUST, number=number), "compute-1", range(12))
        for number in (1, 2)
    ]
    refused = DOCUMENTS[1]  # not taken in here
    reply = said(DOCUMENTS[0], refused, documents=(*invented, refused))
    unasked = {each.body.round: frozenset({each.digest}) for each in invented}
    reply = replace(reply, known={**reply.known, **unasked})
    peer_state.note_exchange(message, reply, {SPEC.digest: mine}, OPENED_AT)
    assert peer_state.confirmed == {SPEC.digest: {DOCUMENTS[0].digest}}
    assert peer_state.missing.keys() == {refused.digest}


def test_a_round_that_ended_during_an_exchange_stays_forgotten() -> None:
    mine = known_round({0})
    peer_state = PeerState()
    message = peer_state.message([mine], OPENED_AT)
    assert message is not None
    peer_state.forget(SPEC.digest)
    peer_state.note_exchange(message, said(), {}, OPENED_AT)
    assert (peer_state.confirmed, peer_state.lacked) == ({}, {})


async def test_documents_of_rounds_that_were_not_asked_for_are_not_taken_from_an_answer(
    federation: Federation,
) -> None:
    spec, invented = federation.spec(), federation.spec(number=1)
    await federation.announce(spec, [0])
    await federation.upload_all(spec, nodes=[0])
    asked, unasked = (holdings(each.body, "compute-1", range(12)) for each in (spec, invented))
    reply = said(documents=(asked, unasked)).encode()

    async def liar(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": reply})

    federation.wire.apps["compute-1"] = liar
    await federation.step([0])
    assert asked in await federation.documents(0, spec)
    metrics = (await federation.request(0, "GET", "/metrics")).text
    assert 'gossip_total{outcome="document_refused"} 0.0' in metrics


def test_a_message_and_its_answer_fit_the_limit_however_many_rounds_are_live() -> None:
    everyone = BitMap(range(LARGEST_POPULATION))
    largest = Holdings.attest(
        StoredAnswers(everyone, bytes(2 * LARGEST_POPULATION)),
        everyone,
        manifest=TRUST.digest,
        round_id=SPEC.digest,
        node="compute-0",
        entry=PLACE,
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
    message = PeerState().message(rounds.values(), OPENED_AT)
    assert message is not None
    assert message.documents
    encoded = message.encode()
    assert len(encoded) <= LARGEST_MESSAGE_BYTES
    known = decode_message(encoded).known
    everything = frozenset().union(*(each.spoken_of for each in rounds.values()))
    invented = {
        round_id: frozenset(digest.replace("0", "f") for digest in digests)
        for round_id, digests in known.items()
    }
    asking = Message((), invented, everything, OPENED_AT)
    told = answer(rounds, asking, known, OPENED_AT)
    assert told.documents and told.known and told.wanted
    assert len(told.encode()) <= LARGEST_MESSAGE_BYTES


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all holdings count as large."""
    monkeypatch.setattr(gossip, "LARGE_BYTES", 0)


@pytest.mark.usefixtures("large")
def test_of_large_documents_a_node_pushes_its_own_once_and_others_when_they_are_wanted() -> None:
    mine, peer_state = known_round({0, 1, 3}), PeerState()
    live = {SPEC.digest: mine}
    first = peer_state.message([mine], OPENED_AT)
    assert first is not None and first.documents == (VOTE, OWN)
    assert first.known[SPEC.digest] == {OWN.digest, RELAYED.digest, VOTE.digest}
    peer_state.note_exchange(first, said(VOTE), live, OPENED_AT)
    # the peer did not take the holdings, for it does not know the round yet
    again = peer_state.message([mine], OPENED_AT + PERIOD)
    assert again is not None and again.documents == ()
    peer_state.note_exchange(again, said(VOTE, wanted=[OWN, RELAYED]), live, OPENED_AT + PERIOD)
    asked_for = peer_state.message([mine], OPENED_AT + PERIOD)
    assert asked_for is not None and set(asked_for.documents) == {OWN, RELAYED}
    peer_state.note_exchange(asked_for, said(OWN, RELAYED, VOTE), live, OPENED_AT + PERIOD)
    assert peer_state.is_settled(mine)


@pytest.mark.usefixtures("large")
def test_what_is_lacked_is_asked_of_one_peer_at_a_time_once_its_signer_had_time() -> None:
    mine, requests = known_round({0}), Requests()
    peers = [PeerState(), PeerState()]
    now = OPENED_AT
    for peer in peers:
        message = peer.message([mine], now, requests)
        assert message is not None and not message.wanted
        peer.note_exchange(message, said(OWN, RELAYED), {SPEC.digest: mine}, now)
    assert all(peer.message([mine], now, requests) is None for peer in peers)
    now += ASK_NEXT_AFTER
    asking = peers[0].message([mine], now, requests)
    assert asking is not None and asking.wanted == {RELAYED.digest}
    requests.asked(asking.wanted, now)
    other = peers[1].message([mine], now, requests)
    assert other is not None and not other.wanted
    requests.failed(asking.wanted)
    other = peers[1].message([mine], now, requests)
    assert other is not None and other.wanted == {RELAYED.digest}


async def test_a_round_takes_two_messages_from_each_node_to_each_other_one(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    await federation.step(times=3)
    assert await federation.phases(spec) == ["published"] * 3
    sent = Counter(
        (each.sender, each.receiver) for each in federation.wire.log if each.path == "/v1/gossip"
    )
    assert len(sent) == 6 and max(sent.values()) <= 2


async def test_nodes_that_do_not_reach_each_other_agree_by_way_of_a_third(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.cut("compute-0", "compute-1", "/v1/gossip")
    federation.wire.cut("compute-1", "compute-0", "/v1/gossip")
    for _ in range(4):
        await federation.step()
        federation.clock.move(PERIOD.total_seconds())
    assert await federation.phases(spec) == ["published"] * 3


@pytest.mark.parametrize(
    "value",
    [
        {"known": {"0": []}},
        {"known": {"0" * 64: ["x"]}},
        {"more": 1},
        {"documents": [{}]},
        {"documents": [SPEC.to_json()]},
        {"known": {f"{number:064x}": [] for number in range(257)}},
        {"wanted": ["x"]},
        {"wanted": [f"{number:064x}" for number in range(4097)]},
        {"time": "yesterday"},
    ],
)
def test_what_is_not_a_message_is_refused(value: dict[str, Any]) -> None:
    good = {"documents": [], "known": {}, "time": "2026-03-01T12:00:00.000Z", "wanted": []}
    decode_message(canonical_json(good))
    for bad in (good | value, [], {}):
        with pytest.raises(MalformedDocument):
            decode_message(canonical_json(bad))


async def frozen_at_one(federation: Federation) -> Signed[RoundSpec]:
    """Return the spec of a round that compute-0 alone knows, and has frozen."""
    spec = federation.spec()
    await federation.announce(spec, [0])
    await federation.upload_all(spec, nodes=[0])
    await federation.step([0])
    return spec


async def test_a_node_tells_what_the_caller_lacks_and_what_it_lacks_itself(
    federation: Federation,
) -> None:
    spec = await frozen_at_one(federation)
    theirs = holdings(spec.body, "compute-1", range(12))
    told = await federation.gossip(0, [], {spec.digest: [theirs.digest], "0" * 64: ["1" * 64]})
    assert [each["signer"] for each in told["documents"]] == ["compute-0"]
    [own] = told["known"][spec.digest]
    assert told["known"].keys() == {spec.digest}
    told = await federation.gossip(0, [theirs], {spec.digest: [theirs.digest]})
    assert set(told["known"][spec.digest]) == {own, theirs.digest}


async def test_an_answer_waits_for_the_vote_that_the_same_documents_by_another_way_led_to(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = await frozen_at_one(federation)
    theirs = [holdings(spec.body, f"compute-{node}", range(12)) for node in (1, 2)]
    known = {spec.digest: [each.digest for each in theirs]}
    casting, may_go_on, cast = threading.Event(), threading.Event(), store.cast

    def slowly(*given: Any) -> Any:
        casting.set()
        may_go_on.wait(60)
        return cast(*given)

    monkeypatch.setattr(store, "cast", slowly)
    first = asyncio.create_task(federation.gossip(0, theirs, known))
    await asyncio.to_thread(casting.wait, 60)
    second = asyncio.create_task(federation.gossip(0, theirs, known))
    await quiet()
    may_go_on.set()
    for told in await asyncio.gather(first, second):
        assert {each["body"]["kind"] for each in told["documents"]} == {"holdings", "vote"}


async def test_what_is_refused_or_known_has_no_vote_weighed(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may send it, again and again, and a look at a million data holders takes time."""
    spec = await frozen_at_one(federation)
    theirs = holdings(spec.body, "compute-1", range(12))
    weighed = list[Round]()

    def noting(known: Round, now: datetime) -> None:
        weighed.append(known)

    monkeypatch.setattr(gossip, "decide", noting)
    forged = replace(vote(spec.body, "compute-1", range(12)), signature="0" * 128)
    for document, looks in ((forged, 0), (theirs, 1), (theirs, 1)):
        await federation.gossip(0, [document], {spec.digest: []})
        assert len(weighed) == looks


async def test_partial_sums_are_not_gossip(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    await federation.step(times=3)
    told = await federation.gossip(0, [], {spec.digest: []})
    assert {each["body"]["kind"] for each in told["documents"]} == {"holdings", "vote"}
    assert await federation.phases(spec) == ["published"] * 3


async def test_who_names_many_finished_rounds_has_few_of_them_loaded_at_once(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = []
    for number in range(6):
        specs.append(federation.spec(number=number))
        await federation.announce(specs[-1], [0])
    federation.clock.move(100)
    await federation.step([0], 6)
    federation.crash(0)  # what is over is on file only
    loaded: list[str] = []
    find = store.get_round

    def counted(db: Connection, round_id: str) -> Row[Any] | None:
        loaded.append(round_id)
        return find(db, round_id)

    monkeypatch.setattr(store, "get_round", counted)
    known: dict[str, list[str]] = {spec.digest: [] for spec in specs}
    answer = await federation.gossip(0, [], known | {f"{n:064x}": [] for n in range(99)})
    assert len(answer["known"]) == len(loaded) == 4
    answer = await federation.gossip(0, [], known)
    assert answer["known"].keys() == known.keys()
    assert len(loaded) == 6
