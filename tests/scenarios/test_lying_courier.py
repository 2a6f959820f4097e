"""The vault against a courier that shows old documents, reorders, repeats, forges and lies."""

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from shoal_consortium.parties import next_manifest
from shoal_holder import frames, spending
from shoal_holder.charge_comparison import AFTER_NONSENSE
from shoal_holder.crowds import memory
from shoal_holder.jobs import MOST_AT_ONCE, Jobs
from shoal_holder.mark import Mark
from shoal_holder.messages import Letter, answer_to, question_about
from shoal_holder.vault import Vault
from shoal_protocol.crowds.draws import Submission
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.roster_changes import with_enrolled, with_grown, with_revoked
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.encoding import canonical_json
from tests.world.around_holder import NODES, POLICY, World, charged_on, state_of, vault_of
from tests.world.around_holder_crowds import CrowdWorld
from tests.world.examples import AUTHORITY, signing_key

pytestmark = pytest.mark.essential

CLIENTS = 12
LIES = ("acknowledged", "lost", "pending", "unsent", "conflicting-document")


@dataclass(frozen=True)
class Taken:
    """Whether a document was taken; `why` is a refusal's code, or the vault's reason."""

    yes: bool
    why: str = ""


@dataclass(frozen=True)
class Refused:
    """That the vault refuses, and the code why."""

    code: str


@dataclass(frozen=True)
class Due:
    """A letter, and what its id says of it."""

    letter: Letter
    what: str
    about: str
    node: int

    @classmethod
    def of(cls, letter: Letter) -> "Due":
        what, about, node, *_ = (*letter.id.split("/"), "", "0")
        return cls(letter, what, about, int(node or 0))

    @property
    def content(self) -> bytes:
        return self.letter.body


class Courier:
    """What is on the other side of a vault's mailbox; the vault runs in this process."""

    def __init__(self, world: World, *, hears_nodes: bool = False, **changes: Any) -> None:
        nodes = [f"compute-{node}" for node in range(NODES)]
        self.world = world
        self.holder = world.holder(without_nodes=() if hears_nodes else nodes, **changes)
        self.vault = vault_of(self.holder)
        self.interests()
        self.envelopes: dict[tuple[str, int], bytes] = {}
        """By round and node: what the vault handed over first."""

    def interests(self) -> list[str]:
        """Return the jobs of which the vault wants a round."""
        wanted = [Due.of(each) for each in self.ask(Vault.due) or ()]
        return [each.about for each in wanted if each.what == "round"]

    def asked(self) -> tuple[str, ...]:
        """Return the jobs that owners have yet to decide about."""
        waiting: tuple[str, ...] = self.ask(Jobs.judged)[1]
        return waiting

    def questions(self) -> dict[str, bytes]:
        """Return what the vault would ask nodes about their charges, by node."""
        return {each.about: each.content for each in self.due() if each.what == "charges"}

    def take(self, *documents: bytes) -> Taken:
        """Put in a manifest with its roster, or an owner's decision."""
        answer = self.ask(Vault.take, **dict(zip(("document", "roster"), documents, strict=False)))
        return Taken(False, answer.code) if isinstance(answer, Refused) else Taken(True)

    def answer(self, letter: str, document: bytes) -> Taken:
        """Hand over a document as the answer to a letter, whether or not that was sent."""
        answer = self.ask(Vault.settle, letter=letter, status=200, body=document)
        if isinstance(answer, Refused):
            return Taken(False, answer.code)
        told = {each.name: each.facts.get("reason") for each in self.events}
        why = told.get("job refused") or told.get("round taken")
        is_put_off = why is not None or "job waits for its owners' approval" in told
        return Taken(not is_put_off, str(why or ""))

    def announce(self, spec: Signed[RoundSpec]) -> Taken:
        """Hand over a round as the trainer's answer."""
        return self.answer(f"round/{spec.body.job}/{spec.body.number}", spec.encode())

    def due(self) -> list[Due]:
        """Return all that the vault has to send, without what it asks for."""
        found: dict[str, Letter] = {}
        while (letters := self.ask(Vault.due, without=("jobs", *found))) != ():
            found |= {each.id: each for each in letters or ()}
        return [Due.of(each) for each in found.values() if each.body]

    def settle(self, what: str, about: str, outcome: str, *, node: int | None = None) -> None:
        """Say what became of a letter; nobody can tell whether that is so."""
        letter = f"{what}/{about}" if node is None else f"{what}/{about}/{node}"
        if outcome == "lost" and what == "envelope":
            letter, outcome = letter.replace("envelope", "receipt"), "acknowledged"
        status, body = 200, b'{"stored":false}'
        if outcome != "acknowledged":
            status, body = 409, b'{"type":"urn:shoal:problem:%s"}' % outcome.encode()
        self.ask(Vault.settle, letter=letter, status=status, body=body)

    def call_over(self, job: str) -> None:
        """Say that the trainer says that a job is over."""
        said = b'{"type":"urn:shoal:problem:wrong-phase"}'
        self.ask(Vault.settle, letter=f"round/{job}/0", status=410, body=said)

    def ask(self, verb: Callable[..., Any], **about: Any) -> Any:
        """Return what a verb returns, or that it is `Refused`."""
        question = frames.encode(question_about(verb)(**about))
        answer = frames.decode(self.vault.answer(question), {"Answer": answer_to(verb)})
        assert not answer.failed
        self.events = answer.events
        return answer.value if answer.refused is None else Refused(answer.refused)

    def version(self) -> tuple[int, int]:
        """Return the number of the manifest in force, and how many slots are enrolled under it."""
        opened = self.ask(Vault.opened)
        return opened.sequence, opened.enrolled

    def close(self) -> None:
        """Close the vault, as a process that is killed would."""
        self.vault.close()

    def look(self) -> None:
        """Take all that is to be sent; no envelope may ever be other bytes."""
        for each in self.due():
            if each.what == "envelope":
                first = self.envelopes.setdefault((each.about, each.node), each.content)
                assert first == each.content, "two answers to one round"

    def charged(self) -> list[tuple[str, str, int]]:
        return charged_on(state_of(self.holder))

    def offer(self, request: Any) -> Taken:
        """Hand over a job's request as the trainer's answer."""
        return self.answer(f"job/{request.digest}", request.encode())


@pytest.fixture
def courier(tmp_path: Path) -> Iterator[Courier]:
    opened = Courier(World(tmp_path, CLIENTS))
    yield opened
    opened.close()


def joined(courier: Courier, **changes: Any) -> Any:
    request = courier.world.submit(**changes)
    assert courier.offer(request).yes
    return request


def test_a_round_that_is_offered_again_is_answered_once_with_the_same_bytes(
    courier: Courier,
) -> None:
    spec = courier.world.announce(joined(courier))
    for _ in range(3):
        courier.announce(spec)
        courier.look()
    assert Counter(courier.charged()).most_common(1)[0][1] == 1
    assert len(courier.charged()) == CLIENTS
    assert len(courier.envelopes) == NODES


def test_nothing_is_made_of_what_the_right_party_did_not_sign(courier: Courier) -> None:
    world = courier.world
    request = world.submit()
    forged = sign(request.body, "analyst", SigningKey(b"x" * 32))
    assert courier.offer(forged) == Taken(False, "The signature does not verify")
    honest = world.announce(joined(courier))
    for lie in (
        sign(honest.body, "trainer", SigningKey(b"x" * 32)),
        sign(honest.body, "compute-0", signing_key("compute-0")),
        replace(honest, body=honest.body.model_copy(update={"number": 1})),
    ):
        assert not courier.announce(lie).yes
    courier.look()
    assert (courier.charged(), courier.envelopes) == ([], {})
    assert courier.announce(honest).yes


def test_the_vault_goes_by_its_own_clock(courier: Courier) -> None:
    """A spec that was kept back until its deadline is worth nothing, whatever else is said."""
    world = courier.world
    spec = world.announce(joined(courier))
    world.clock.move(60)
    assert courier.announce(spec) == Taken(False, "missed")
    late = world.submit()
    world.clock.move(60)
    assert "the time to join has passed" in courier.offer(late).why
    assert courier.charged() == []


def test_a_round_that_waits_too_long_is_not_answered_any_more(courier: Courier) -> None:
    world = courier.world
    spec = world.announce(joined(courier))
    assert courier.announce(spec).yes
    courier.interests()
    world.clock.move(60)
    courier.look()
    assert (courier.charged(), courier.envelopes) == ([], {})


def test_an_older_manifest_is_never_gone_back_to(courier: Courier) -> None:
    world, first = courier.world, courier.world.consortium
    world.announce(joined(courier))
    roster = with_grown(first.roster, 0, 1)
    second = next_manifest(first, roster=roster, authority=AUTHORITY)
    assert courier.take(second.encode(), roster.encode()).yes
    rivals = with_grown(first.roster, 0, 2)
    rival = next_manifest(first, roster=rivals, authority=AUTHORITY)  # of the same number
    for manifest, its_roster in ((rival, rivals), (first.signed_manifest, first.roster)):
        courier.take(manifest.encode(), its_roster.encode())
        assert courier.version() == (2, CLIENTS + 1)
    assert courier.offer(world.submit()).yes  # bound to the first, and judged by both
    assert courier.offer(world.submit(manifest="f" * 64)).why == "unknown-manifest"


def test_an_older_request_is_worth_what_its_analyst_is_now(courier: Courier) -> None:
    """An older manifest, shown anew, gives an analyst who is gone, or has another key, nothing."""
    world, first = courier.world, courier.world.consortium
    [analyst] = first.manifest.analysts
    replaced = analyst.model_copy(update={"verify_key": "ab" * 32})
    manifest = next_manifest(first, analysts=(replaced,), authority=AUTHORITY)
    courier.take(manifest.encode(), first.roster.encode())
    assert "has another key now" in courier.offer(world.submit()).why


@pytest.fixture
def among_nodes(tmp_path: Path) -> Iterator[Courier]:
    """A courier that the vault has ask the nodes what they charged."""
    opened = Courier(World(tmp_path, CLIENTS), hears_nodes=True)
    yield opened
    opened.close()


def said_by(courier: Courier, node: int, question: bytes, after: int = 0) -> bytes:
    """Return what a node answers to a question about its charges."""
    url = f"https://compute-{node}.example/v1/charges?after={after}"
    return courier.world.nodes[node].answer(httpx.Request("POST", url, content=question)).content


def test_whoever_keeps_back_what_nodes_charged_has_nothing_joined(among_nodes: Courier) -> None:
    courier = among_nodes
    assert courier.offer(courier.world.submit()).why == "not-ready"
    [first] = [each for each in courier.due() if each.about == "compute-0"]
    old, newer = first.content, courier.questions()["compute-0"]
    assert old != newer
    for lie in (said_by(courier, 0, old), said_by(courier, 1, newer), b"{}"):
        assert not courier.answer("charges/compute-0", lie).yes
        assert courier.offer(courier.world.submit()).why == "not-ready"
        courier.world.clock.move(AFTER_NONSENSE.total_seconds())
        newer = courier.questions()["compute-0"]
    for node, question in courier.questions().items():
        assert courier.answer(f"charges/{node}", said_by(courier, int(node[-1]), question)).yes
    courier.due()
    assert courier.offer(courier.world.submit()).yes


def test_a_data_holder_that_was_revoked_between_two_questions_asks_nobody_any_more(
    among_nodes: Courier,
) -> None:
    first = among_nodes.world.consortium
    assert len(among_nodes.questions()) == NODES
    roster = with_revoked(with_enrolled(first.roster, [(signing_key("other").verify_key, 1)]), [0])
    second = next_manifest(first, roster=roster, authority=AUTHORITY)
    among_nodes.take(second.encode(), roster.encode())
    assert among_nodes.questions() == {}


def test_a_job_that_the_courier_calls_over_is_over_and_costs_nobody_anything(
    courier: Courier,
) -> None:
    request = joined(courier)
    spec = courier.world.announce(request)
    courier.call_over(request.digest)
    assert courier.announce(spec).why == "unknown-job"
    assert courier.interests() == []
    assert courier.charged() == []


def test_whoever_leaves_while_a_courier_hides_it_answers_no_more(courier: Courier) -> None:
    request = joined(courier)
    spec = courier.world.announce(request)
    courier.announce(spec)
    courier.interests()
    courier.ask(Jobs.leave, job=request.digest)
    courier.look()
    assert (courier.charged(), courier.envelopes) == ([], {})


def test_what_is_no_document_is_refused_and_changes_nothing(courier: Courier) -> None:
    spec = courier.world.announce(joined(courier))
    for content in (b"", b"\0" * 40, b"{}"):
        assert not courier.take(content).yes
        assert not courier.answer(f"round/{spec.body.job}/0", content).yes
        assert not courier.answer("job/" + "a" * 64, content).yes
    assert courier.announce(spec).yes


def test_of_very_many_jobs_a_part_is_judged_at_a_time(courier: Courier) -> None:
    """One answer may list as many as it has room for, and each asks for a letter."""
    listed = [f"{each:064x}" for each in range(3 * MOST_AT_ONCE)]
    answer = canonical_json({"jobs": [{"job": each} for each in listed]})
    judged = list[str]()
    for _ in range(4):
        courier.answer("jobs", answer)
        letters = [Due.of(each) for each in courier.ask(Vault.due)]
        wanted = [each.about for each in letters if each.what == "job"]
        assert len(wanted) <= MOST_AT_ONCE
        for job in wanted:
            courier.ask(Vault.settle, letter=f"job/{job}", status=410, body=b"")
        judged += wanted
    assert judged == listed


def test_no_noise_is_used_twice_though_a_mark_failed_and_the_courier_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second answer to a draw is on another weight: their difference would be without noise."""
    world, honest, sent = CrowdWorld(tmp_path), memory.charge, dict[str, set[str]]()
    nodes = [f"compute-{node}" for node in range(NODES)]
    vault = vault_of(world.holder(without_nodes=nodes))

    def asked(verb: Callable[..., Any], **about: Any) -> Any:
        answer = vault.answer(frames.encode(question_about(verb)(**about)))
        return frames.decode(answer, {"Answer": answer_to(verb)})

    def unmarked(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(memory, "charge", honest)
        with monkeypatch.context() as failing:
            failing.setattr(Mark, "write", fails)
            return honest(*given, **named)

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk does not answer")

    monkeypatch.setattr(memory, "charge", unmarked)
    has_failed = False
    for _ in range(100):
        tried = set[str]()
        while (answer := asked(Vault.due, without=tuple(tried))).value != ():
            has_failed |= answer.failed
            for letter in answer.value or ():
                tried.add(letter.id)
                if letter.id.startswith("contribution/"):
                    body = decode(letter.body, Submission).body
                    sent.setdefault(body.draw.body.nonce, set()).add(body.digest)
                url, method = f"https://trainer{letter.path}", "POST" if letter.body else "GET"
                reply = world.crowds.answer(httpx.Request(method, url, content=letter.body))
                told = {"status": reply.status_code, "body": reply.content}
                asked(Vault.settle, letter=letter.id, **told)
        world.clock.move(10)
    vault.close()
    assert has_failed and len(sent) > 2
    assert all(len(each) == 1 for each in sent.values())


def _deeds(documents: Sequence[tuple[Any, Any]]) -> st.SearchStrategy[Any]:
    """Return anything that a courier may do with these jobs and rounds, true or not."""
    jobs, specs = [each for each, _ in documents], [each for _, each in documents]
    job, spec = st.sampled_from(jobs), st.sampled_from(specs)
    outcomes, nodes = st.sampled_from(LIES), st.integers(0, NODES)
    settled = st.tuples(spec, outcomes, nodes)
    return st.one_of(
        job.map(lambda each: lambda courier: courier.offer(each)),
        spec.map(lambda each: lambda courier: courier.announce(each)),
        st.just(Courier.interests),
        st.just(Courier.look),
        settled.map(
            lambda said: (
                lambda courier: courier.settle("envelope", said[0].digest, said[1], node=said[2])
            )
        ),
        st.tuples(job, outcomes).map(
            lambda said: lambda courier: courier.settle("join", said[0].digest, said[1])
        ),
        job.map(lambda each: lambda courier: courier.call_over(each.digest)),
        st.floats(1.0, 40.0).map(lambda each: lambda courier: courier.world.clock.move(each)),
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_order_of_deeds_spends_more_than_the_policy_or_answers_twice(
    data: st.DataObject,
) -> None:
    with TemporaryDirectory() as directory:
        world = World(Path(directory), CLIENTS)
        courier = Courier(world)
        documents = []
        for _ in range(4):  # of which the policy allows three
            request = world.submit()
            documents.append((request, world.announce(request)))
        for deed in data.draw(st.lists(_deeds(documents), max_size=40)):
            deed(courier)
        courier.look()
        charged = courier.charged()
        assert len(charged) == len(set(charged))
        rounds = {spec.digest: request.digest for request, spec in documents}
        paid = {(job, slot) for _, job, slot in charged}
        handed_over = {rounds[round_id] for round_id, _ in courier.envelopes}
        assert {(job, slot) for job in handed_over for slot in range(CLIENTS)} <= paid
        sums = spending.spent(state_of(courier.holder).file)
        for cost in sums.of(sums.charged).values():
            assert POLICY.cap.allows(cost)
        courier.close()
