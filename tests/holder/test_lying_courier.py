"""The vault against a courier that shows old documents, reorders, repeats, forges and lies."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from shoal_consortium.parties import next_manifest
from shoal_holder import frames, ledger, messages, spending
from shoal_holder.faults import VaultFailed
from shoal_holder.messages import (
    AskAgenda,
    AskCharges,
    Bytes,
    Decided,
    Done,
    EndJob,
    Failure,
    Message,
    NextManifest,
    OfferJob,
    OfferRound,
    Opened,
    Pending,
    Prepare,
    Prepared,
    Receipt,
    Refusal,
    SettleCharges,
)
from shoal_holder.vault import Vault
from shoal_protocol.privacy.accounting import compose
from shoal_protocol.trust.roster_changes import with_enrolled, with_grown, with_revoked
from shoal_protocol.wire.documents import sign
from tests.world.around_holder import NODES, POLICY, World, state_of, vault_of
from tests.world.examples import AUTHORITY, signing_key

CLIENTS = 12
ANSWERS: dict[str, Any] = messages.kinds_of(
    *(Done, Refusal, Failure, Opened, Decided, Prepared, Bytes, messages.Agenda, messages.Told)
)
LIES = ("acknowledged", "lost", "pending", "unsent", "conflicting-share")


class Courier:
    """What is on the other side of a vault's pipe."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.world = world
        # of what nodes charged another test tells: here there are none to be asked
        everybody = tuple(f"compute-{node}" for node in range(NODES))
        self.holder = world.holder(without_nodes=everybody, **changes)
        self.vault: Vault = vault_of(self.holder)
        self.ask(SettleCharges())
        self.envelopes: dict[tuple[str, int], bytes] = {}
        """By round and node: what the vault handed over first."""

    def ask(self, message: Message) -> Any:
        answer = frames.decode(self.vault.answer(frames.encode(message)), ANSWERS)
        assert not isinstance(answer, Failure)
        return answer

    def look(self, round_id: str) -> None:
        """Take all that is to be sent; nothing of it may ever be other bytes."""
        for node in range(NODES):
            for envelope in self.ask(Pending(what="envelope", about=round_id, node=node)).parts:
                first = self.envelopes.setdefault((round_id, node), envelope)
                assert first == envelope, "two answers to one round"

    def charged(self) -> list[tuple[str, int, int]]:
        entries = ledger.charges(state_of(self.holder).file, after=0, count=10_000)
        return [(each.job, each.number, each.client) for each in entries]


@pytest.fixture
def courier(tmp_path: Path) -> Iterator[Courier]:
    opened = Courier(World(tmp_path, CLIENTS))
    yield opened
    opened.vault.close()


def joined(courier: Courier, **changes: Any) -> Any:
    request = courier.world.submit(**changes)
    assert courier.ask(OfferJob(job=request.digest, parts=(request.encode(),))).taken
    return request


def test_a_round_that_is_offered_again_is_answered_once_with_the_same_bytes(
    courier: Courier,
) -> None:
    spec = courier.world.announce(joined(courier))
    for _ in range(3):
        courier.ask(OfferRound(parts=(spec.encode(),)))
        courier.ask(AskAgenda())
        courier.ask(Prepare(round_id=spec.digest))
        courier.look(spec.digest)
    assert Counter(courier.charged()).most_common(1)[0][1] == 1
    assert len(courier.charged()) == CLIENTS
    assert len(courier.envelopes) == NODES


def test_nothing_is_made_of_what_the_right_party_did_not_sign(courier: Courier) -> None:
    world = courier.world
    request = world.submit()
    forged = sign(request.body, "analyst", SigningKey(b"x" * 32))
    answer = courier.ask(OfferJob(job=request.digest, parts=(forged.encode(),)))
    assert isinstance(answer, Refusal) and answer.code == "bad-signature"
    request = joined(courier)
    honest = world.announce(request)
    for lie in (
        sign(honest.body, "trainer", SigningKey(b"x" * 32)),
        sign(honest.body, "compute-0", signing_key("compute-0")),
        replace(honest, body=honest.body.model_copy(update={"number": 1})),
    ):
        answer = courier.ask(OfferRound(parts=(lie.encode(),)))
        assert isinstance(answer, Refusal)
    assert courier.ask(AskAgenda()).rounds == ()
    assert courier.ask(OfferRound(parts=(honest.encode(),))).taken
    assert courier.ask(Prepare(round_id="f" * 64)).code == "unknown-round"


def test_the_vault_goes_by_its_own_clock(courier: Courier) -> None:
    """A spec that was kept back until its deadline is worth nothing, whatever else is said."""
    world = courier.world
    spec = world.announce(joined(courier))
    world.clock.move(60)
    decided = courier.ask(OfferRound(parts=(spec.encode(),)))
    assert (decided.taken, decided.reason) == (False, "missed")
    late = world.submit()
    world.clock.move(60)
    decided = courier.ask(OfferJob(job=late.digest, parts=(late.encode(),)))
    assert "the time to join has passed" in decided.reason
    assert courier.charged() == []


def test_a_round_that_waits_too_long_is_not_answered_any_more(courier: Courier) -> None:
    world = courier.world
    spec = world.announce(joined(courier))
    assert courier.ask(OfferRound(parts=(spec.encode(),))).taken
    courier.ask(AskAgenda())
    world.clock.move(60)
    assert not courier.ask(Prepare(round_id=spec.digest)).made
    assert courier.charged() == []


def test_an_older_manifest_is_never_gone_back_to(courier: Courier) -> None:
    world, first = courier.world, courier.world.consortium
    world.announce(joined(courier))
    roster = with_grown(first.roster, 0, 1)
    second = next_manifest(first, roster=roster, authority=AUTHORITY)
    assert courier.ask(NextManifest(parts=(second.encode(), roster.encode()))).sequence == 2
    rival = next_manifest(first, roster=with_grown(first.roster, 0, 2), authority=AUTHORITY)
    rivals_roster = with_grown(first.roster, 0, 2).encode()
    for manifest, its_roster in (
        (rival.encode(), rivals_roster),  # of the same number
        (first.signed_manifest.encode(), first.roster.encode()),
    ):
        courier.ask(NextManifest(parts=(manifest, its_roster)))
        assert courier.ask(messages.Hello()).sequence == 2
        assert courier.ask(messages.Hello()).enrolled == CLIENTS + 1
    old = world.submit()  # bound to the first, and judged by both
    assert courier.ask(OfferJob(job=old.digest, parts=(old.encode(),))).taken
    stranger = world.submit(manifest="f" * 64)
    answer = courier.ask(OfferJob(job=stranger.digest, parts=(stranger.encode(),)))
    assert isinstance(answer, Refusal) and answer.code == "unknown-manifest"


def test_an_older_request_is_worth_what_its_analyst_is_now(courier: Courier) -> None:
    """An older manifest, shown anew, gives an analyst who is gone, or has another key, nothing."""
    world, first = courier.world, courier.world.consortium
    [analyst] = first.manifest.analysts
    replaced = analyst.model_copy(update={"verify_key": "ab" * 32})
    manifest = next_manifest(first, analysts=(replaced,), authority=AUTHORITY)
    courier.ask(NextManifest(parts=(manifest.encode(), first.roster.encode())))
    old = world.submit()
    decided = courier.ask(OfferJob(job=old.digest, parts=(old.encode(),)))
    assert not decided.taken and "has another key now" in decided.reason


def test_a_data_holder_that_was_revoked_between_two_questions_asks_nobody_any_more(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, CLIENTS)
    vault = vault_of(world.holder())

    def ask(message: Message) -> Any:
        kinds = {**ANSWERS, **messages.kinds_of(messages.ChargesAsked)}
        return frames.decode(vault.answer(frames.encode(message)), kinds)

    assert ask(AskCharges(node="compute-0", behind=0)).parts[0].count(b'"holder":0') == 1
    first = world.consortium
    roster = with_revoked(with_enrolled(first.roster, [(signing_key("other").verify_key, 1)]), [0])
    second = next_manifest(first, roster=roster, authority=AUTHORITY)
    ask(NextManifest(parts=(second.encode(), roster.encode())))
    again = ask(AskCharges(node="compute-0", behind=1))  # which is not yet at the second
    assert isinstance(again, Refusal)
    vault.close()


def test_an_answer_that_is_too_large_to_be_read_is_a_refusal_and_not_the_end(
    courier: Courier, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = frames.encode(messages.Hello())
    with monkeypatch.context() as patched:
        patched.setattr(frames, "LARGEST_BYTES", 150)
        answer = frames.decode(courier.vault.answer(asked), ANSWERS)
    assert isinstance(answer, Refusal) and answer.code == VaultFailed.code
    assert isinstance(courier.ask(messages.Hello()), Opened)


def test_a_job_that_the_courier_calls_over_is_over_and_costs_nobody_anything(
    courier: Courier,
) -> None:
    request = joined(courier)
    spec = courier.world.announce(request)
    courier.ask(EndJob(job=request.digest, code="unknown-job"))
    assert courier.ask(OfferRound(parts=(spec.encode(),))).code == "unknown-job"
    assert courier.ask(AskAgenda()).jobs == ()
    assert courier.charged() == []


def test_whoever_leaves_while_a_courier_hides_it_answers_no_more(courier: Courier) -> None:
    request = joined(courier)
    spec = courier.world.announce(request)
    courier.ask(OfferRound(parts=(spec.encode(),)))
    courier.ask(AskAgenda())
    answer = courier.vault.answer(frames.encode(messages.Ask(question="leave", job=request.digest)))
    assert frames.decode(answer, messages.kinds_of(messages.Told)).parts
    assert courier.ask(Prepare(round_id=spec.digest)).code == "unknown-round"
    assert courier.charged() == []


def test_what_is_no_message_is_refused_and_changes_nothing(courier: Courier) -> None:
    spec = courier.world.announce(joined(courier))
    for frame in (b"", b"\0" * 40, frames.encode(OfferRound(parts=(b"{}",)))):
        answer = frames.decode(courier.vault.answer(frame), ANSWERS)
        assert isinstance(answer, Refusal)
    assert courier.ask(OfferRound(parts=(spec.encode(),))).taken


def _messages(world: World, documents: Sequence[tuple[Any, Any]]) -> st.SearchStrategy[Any]:
    """Return any message about these jobs and rounds that a courier may send, true or not."""
    jobs, specs = [each for each, _ in documents], [each for _, each in documents]
    job, spec = st.sampled_from(jobs), st.sampled_from(specs)
    outcomes, nodes = st.sampled_from(LIES), st.integers(0, NODES)
    return st.one_of(
        job.map(lambda each: OfferJob(job=each.digest, parts=(each.encode(),))),
        spec.map(lambda each: OfferRound(parts=(each.encode(),))),
        st.just(AskAgenda()),
        spec.map(lambda each: Prepare(round_id=each.digest)),
        st.builds(
            lambda each, told, node: Receipt(
                what="envelope", about=each.digest, outcome=told, node=node
            ),
            spec,
            outcomes,
            nodes,
        ),
        st.builds(
            lambda each, told: Receipt(what="join", about=each.digest, outcome=told),
            job,
            outcomes,
        ),
        job.map(lambda each: EndJob(job=each.digest, code="wrong-phase")),
        st.floats(1.0, 40.0),  # in which time passes
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_order_of_messages_spends_more_than_the_policy_or_answers_twice(
    data: st.DataObject,
) -> None:
    with TemporaryDirectory() as directory:
        world = World(Path(directory), CLIENTS)
        courier = Courier(world)
        documents = []
        for _ in range(4):  # of which the policy allows three
            request = world.submit()
            documents.append((request, world.announce(request)))
        sent = data.draw(st.lists(_messages(world, documents), max_size=40))
        for each in sent:
            if isinstance(each, float):
                world.clock.move(each)
            else:
                courier.ask(each)
            for _, spec in documents:
                courier.look(spec.digest)
        charged = courier.charged()
        assert len(charged) == len(set(charged))
        rounds = {spec.digest: request.digest for request, spec in documents}
        paid = {(job, slot) for job, _, slot in charged}
        handed_over = {rounds[round_id] for round_id, _ in courier.envelopes}
        assert {(job, slot) for job in handed_over for slot in range(CLIENTS)} <= paid
        for costs in spending.spent(state_of(courier.holder).file).values():
            assert POLICY.cap.allows(compose(costs))
        courier.vault.close()
