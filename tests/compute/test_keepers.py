"""A node that lost statements of its journal is told by keepers, and signs no others."""

import asyncio
import re
import shutil
from pathlib import Path

import httpx
import pytest
from nacl.signing import SigningKey
from sqlalchemy import select
from structlog.testing import capture_logs

from shoal_compute.assembly import Service
from shoal_compute.schema import kept
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import GENESIS, Chain, Link, content_hash, entry_hash
from shoal_protocol.keeping import HEADS_PATH, Advance, HeadsAsked, JournalHead, KeptHeads, Loss
from shoal_protocol.trust.succession import ManifestStatement
from shoal_protocol.wire.documents import Signed, decode, sign
from tests.compute.test_announcing import announce
from tests.compute.test_manifest_signing import ask, check_signed, journal, version
from tests.compute.test_totals import OTHER_JOB, end_of, total_of
from tests.world import examples
from tests.world.around_node import Federation
from tests.world.parties import client_of, problem_code, reachable
from tests.world.wire import Fault, Rule

pytestmark = pytest.mark.essential

NONCE = "ab" * 16


def cut(*keepers: str) -> list[Rule]:
    return [Rule(Fault.LOST, receiver=each, path=f"{HEADS_PATH}$") for each in keepers]


def back_up(federation: Federation, to: Path, node: int = 0) -> None:
    shutil.copytree(federation.directory / f"{node}", to)


async def set_back(federation: Federation, to: Path, node: int = 0) -> None:
    """Replace a node's directory by an older copy of it, and start it."""
    await federation.services[node].close()
    shutil.rmtree(federation.directory / f"{node}")
    shutil.copytree(to, federation.directory / f"{node}")
    federation.crash(node)


def start_accepting(federation: Federation, token: str) -> Service:
    service = federation.start(0, federation.directory / "0", accept_loss=token)
    federation.services[0] = service
    federation.take_place("compute-0", service)
    return service


async def heads_at(federation: Federation, node: int, asked: HeadsAsked | None = None) -> KeptHeads:
    encoded = (asked or HeadsAsked(nonce=NONCE)).encode()
    reply = await federation.request(node, "POST", HEADS_PATH, encoded)
    assert reply.status_code == 200, reply.text
    signed = decode(reply.content, KeptHeads)
    federation.consortium.verify(signed)
    assert signed.body.nonce == NONCE
    return signed.body


async def kept_at(federation: Federation, keeper: int, service: str = "compute-0") -> int:
    found = (await heads_at(federation, keeper)).of(service)
    return 0 if found is None else found.body.number


async def test_R1_a_statement_leaves_once_more_than_half_acknowledged_it(
    federation: Federation,
) -> None:
    signed = version(federation.consortium)
    await federation.step([0])  # it has begun
    federation.wire.rules += cut("compute-1")
    refusal = await ask(federation, signed)
    assert problem_code(refusal) == "not-ready"  # 2 of 4: there is no trainer
    assert "Silent are compute-1, trainer:" in refusal.json()["detail"]
    [entry] = await journal(federation)
    federation.wire.rules.clear()
    federation.clock.move(6.0)
    answer = await ask(federation, signed)
    check_signed(federation, answer, signed)
    assert entry.statement is not None
    assert entry.statement.document == answer.json()
    assert [await kept_at(federation, keeper) for keeper in (1, 2)] == [1, 1]


@pytest.mark.parametrize("what", ["manifest", "total"])
async def test_R1_nothing_is_signed_until_more_than_half_answered(
    federation: Federation, what: str
) -> None:
    async def sign() -> httpx.Response:
        if what == "manifest":
            return await ask(federation, version(federation.consortium))
        return await federation.request(0, "POST", "/v1/totals", end_of(federation).encode())

    federation.wire.rules += cut("compute-1", "aggregator")
    await federation.step([0])
    assert problem_code(await sign()) == "not-ready"
    assert await journal(federation) == []
    assert await announce(federation, federation.spec()) == (201, "")  # rounds go on
    federation.wire.rules.clear()
    federation.clock.move(6.0)
    assert (await sign()).status_code == 200


async def test_R1_a_node_that_was_set_back_signs_no_other_version(
    federation: Federation, tmp_path: Path
) -> None:
    one, other = version(federation.consortium), version(federation.consortium, 12)
    back_up(federation, tmp_path / "backup")
    check_signed(federation, await ask(federation, one), one)
    await set_back(federation, tmp_path / "backup")
    assert problem_code(await ask(federation, other)) == "ledger-broken"
    assert await journal(federation) == []
    # one honest keeper that more than half must include is enough
    federation.crash(0)
    federation.wire.rules += cut("compute-1", "compute-2")
    assert problem_code(await ask(federation, other)) in ("ledger-broken", "not-ready")
    assert await journal(federation) == []


async def test_R7_after_an_accepted_loss_it_signs_what_it_cannot_have_signed_before(
    federation: Federation, tmp_path: Path
) -> None:
    one, other = version(federation.consortium), version(federation.consortium, 12)
    zeroth = federation.spec(mu=0.1)
    await announce(federation, zeroth)
    back_up(federation, tmp_path / "backup")
    check_signed(federation, await ask(federation, one), one)
    await total_of(federation, end_of(federation))
    await set_back(federation, tmp_path / "backup")
    with capture_logs() as said:
        await federation.step([0])
    [token] = [
        found[1]
        for each in said
        if (found := re.search("SHOAL_ACCEPT_LOSS=([0-9a-f]{16})", each["event"]))
    ]
    other_replica = federation.services[0]
    federation.discarded.append(other_replica)
    federation.clock.move(6.0)
    async with client_of(other_replica.app) as http:
        assert problem_code(await http.get("/readyz")) == "ledger-broken"
    service = start_accepting(federation, token)
    await service.step()
    async with client_of(other_replica.app) as http:
        assert (await http.get("/readyz")).status_code == 200
    charge, entry = await journal(federation)
    chain = Chain(Loss, JobTotal, ManifestStatement)
    assert chain.follow(charge) is None
    loss = chain.follow(entry)
    assert loss is not None and isinstance(loss.body, Loss)
    federation.consortium.verify(loss)
    assert (entry.number, entry.epoch[:2], loss.body.lost.number) == (2, "2-", 3)
    for signed in (one, other):
        assert problem_code(await ask(federation, signed)) == "ledger-broken"
    end = end_of(federation).encode()
    reply = await federation.request(0, "POST", "/v1/totals", end)
    assert problem_code(reply) == "ledger-broken"
    # keepers go on from the loss, and what is new is signed
    book = federation.books[0]
    federation.consortium = book.accept(one.encode(), book.current.roster.encode())
    federation.clock.move(6.0)
    later = version(federation.consortium)
    check_signed(federation, await ask(federation, later), later)
    assert [await kept_at(federation, keeper) for keeper in (1, 2)] == [3, 3]
    federation.crash(0)
    assert (await ask(federation, later)).status_code == 200  # the loss is known


async def test_R7_a_loss_names_the_highest_version_that_was_shown(
    federation: Federation, tmp_path: Path
) -> None:
    """The manifest of a restored node is as old as its journal."""
    back_up(federation, tmp_path / "backup")
    book, first = federation.books[0], federation.consortium
    for _ in range(3):
        signed = version(federation.consortium)
        check_signed(federation, await ask(federation, signed), signed)
        federation.consortium = book.accept(signed.encode(), book.current.roster.encode())
        federation.clock.move(6.0)
    federation.books[0] = ManifestBook(first, tmp_path / "backup")
    await set_back(federation, tmp_path / "backup")
    with capture_logs() as said:
        await federation.step([0])
    [token] = re.findall("SHOAL_ACCEPT_LOSS=([0-9a-f]{16})", str(said))
    await federation.services[0].close()
    await start_accepting(federation, token).step()
    [entry] = await journal(federation)
    loss = Chain(Loss).follow(entry)
    assert loss is not None and isinstance(loss.body, Loss)
    assert loss.body.sequence == 4


async def test_R1_a_keeper_that_lost_all_is_silent_until_it_copied_the_others(
    federation: Federation,
) -> None:
    signed = version(federation.consortium)
    check_signed(federation, await ask(federation, signed), signed)
    await federation.services[1].close()
    shutil.rmtree(federation.directory / "1")
    federation.wire.rules += [Rule(Fault.LOST, sender="compute-1", path=f"{HEADS_PATH}$")]
    federation.crash(1)
    body = JournalHead(
        service="compute-0", epoch=examples.LINK.epoch, number=5, hash="d" * 64, sequence=0
    )
    head: Signed[JournalHead] = examples.named("compute-0", body)
    leads_nowhere = Advance(head=head, after=4, entries=())
    answer = await heads_at(federation, 1, HeadsAsked(nonce=NONCE, advance=leads_nowhere))
    assert (answer.is_new, answer.heads) == (True, ())
    # nor does anybody who shows it its own head make it one that copied the others
    own = examples.named("compute-1", body.model_copy(update={"service": "compute-1"}))
    shown = HeadsAsked(nonce=NONCE, advance=leads_nowhere.model_copy(update={"head": own}))
    reply = await federation.request(1, "POST", HEADS_PATH, shown.encode())
    assert problem_code(reply) == "wrong-signer"
    assert (await heads_at(federation, 1)).is_new
    federation.wire.rules.clear()
    federation.clock.move(6.0)
    both_asked = asyncio.Barrier(2)

    async def wait(_request: httpx.Request) -> None:
        await both_asked.wait()

    federation.wire.scripts |= {"compute-0": wait, "compute-2": wait}  # one holds up no other
    async with asyncio.timeout(60.0):
        answer = await heads_at(federation, 1)
    found = answer.of("compute-0")
    assert found is not None
    assert (answer.is_new, found.body.number) == (False, 1)


def entry_after(head: tuple[int, str], job: str) -> tuple[tuple[int, str], tuple[str, str]]:
    number, previous = head
    link = Link(epoch=examples.LINK.epoch, number=number + 1, previous=previous)
    content = content_hash("00" * 16, "vote", job, b"")
    return (link.number, entry_hash(link, content)), (link.epoch, content)


def history(jobs: list[str]) -> list[tuple[str, str]]:
    head, entries = (0, GENESIS), []
    for job in jobs:
        head, entry = entry_after(head, job)
        entries.append(entry)
    return entries


def advance(jobs: list[str], after: int) -> HeadsAsked:
    head = (0, GENESIS)
    for job in jobs:
        head, (epoch, _) = entry_after(head, job)
    body = JournalHead(service="compute-1", epoch=epoch, number=head[0], hash=head[1], sequence=0)
    signed: Signed[JournalHead] = examples.named("compute-1", body)
    entries = tuple(history(jobs)[after:])
    return HeadsAsked(nonce=NONCE, advance=Advance(head=signed, after=after, entries=entries))


async def test_R2_a_keeper_goes_on_along_all_entries_and_keeps_a_rival_head_as_evidence(
    federation: Federation,
) -> None:
    jobs = [f"{number:064x}" for number in range(5)]
    assert (await heads_at(federation, 0, advance(jobs[:2], 0))).of("compute-1") is not None
    for asked, number in (
        (advance(jobs[:4], 3), 2),  # without the third
        (advance([jobs[0], jobs[2], jobs[3]], 2), 2),  # another history
        (advance(jobs[:1], 0), 2),  # older
        (advance(jobs, 2), 5),
    ):
        found = (await heads_at(federation, 0, asked)).of("compute-1")
        assert found is not None
        assert found.body.number == number
    storage = federation.services[0].resources.storage
    rivals = select(kept.c.rival).where(kept.c.rival.is_not(None))
    [rival] = storage.run_here(lambda db: [*db.execute(rivals).scalars()])
    assert decode(rival, JournalHead).body.number == 3


async def test_R2_a_keeper_takes_no_head_that_the_service_did_not_sign(
    federation: Federation,
) -> None:
    asked = advance([OTHER_JOB], 0)
    assert asked.advance is not None
    body = asked.advance.head.body
    for forged, code in (
        (examples.named("compute-2", body), "wrong-signer"),
        (examples.named("analyst", body.model_copy(update={"service": "analyst"})), "wrong-signer"),
    ):
        changed = asked.advance.model_copy(update={"head": forged})
        encoded = asked.model_copy(update={"advance": changed}).encode()
        assert problem_code(await federation.request(0, "POST", HEADS_PATH, encoded)) == code
    assert (await heads_at(federation, 0)).of("compute-1") is None


async def test_R11_a_key_that_was_replaced_moves_no_head(federation: Federation) -> None:
    before, replaced, after = federation.consortium.manifest.compute_nodes
    key = examples.signing_key("new-compute-1")
    renewed = replaced.model_copy(update={"verify_key": bytes(key.verify_key).hex()})
    later = version(federation.consortium, compute_nodes=(before, renewed, after))
    book = federation.books[0]
    federation.consortium = book.accept(later.encode(), book.current.roster.encode())
    asked = advance([OTHER_JOB], 0)
    reply = await federation.request(0, "POST", HEADS_PATH, asked.encode())
    assert problem_code(reply) == "bad-signature"
    assert asked.advance is not None
    head = sign(asked.advance.head.body, "compute-1", key)
    changed = asked.advance.model_copy(update={"head": head})
    found = await heads_at(federation, 0, asked.model_copy(update={"advance": changed}))
    assert found.of("compute-1") == head


async def test_R11_a_new_keeper_copies_the_head_of_a_key_that_was_replaced(
    federation: Federation,
) -> None:
    def signed_by_trainer(number: int, key: SigningKey) -> HeadsAsked:
        link = Link(epoch=examples.LINK.epoch, number=number, previous=GENESIS)
        last = {"epoch": link.epoch, "number": number, "hash": entry_hash(link, "0" * 64)}
        head = sign(JournalHead(service="trainer", sequence=0, **last), "trainer", key)
        entries = ((link.epoch, "0" * 64),) * number
        return HeadsAsked(nonce=NONCE, advance=Advance(head=head, after=0, entries=entries))

    old, new = examples.signing_key("trainer"), examples.signing_key("new-trainer")
    for keeper in (0, 2):
        await heads_at(federation, keeper, signed_by_trainer(1, old))
    trainer = federation.consortium.manifest.trainer
    renewed = trainer.model_copy(update={"verify_key": bytes(new.verify_key).hex()})
    later = version(federation.consortium, trainer=renewed)
    for book in (*federation.books, federation.aggregator.resources.book):
        book.accept(later.encode(), book.current.roster.encode())
    await federation.services[1].close()
    shutil.rmtree(federation.directory / "1")
    federation.crash(1)
    federation.consortium = federation.books[1].current
    answer = await heads_at(federation, 1)
    found = answer.of("trainer")
    assert (answer.is_new, found and found.body.number) == (False, 1)


async def test_R1_of_two_nodes_each_signs_and_is_told_by_the_other(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "two", trust=reachable(nodes=2))
    one, other = version(federation.consortium), version(federation.consortium, 12)
    back_up(federation, tmp_path / "backup")
    for node in range(2):
        check_signed(federation, await ask(federation, one, node), one)
    await set_back(federation, tmp_path / "backup")
    assert problem_code(await ask(federation, other)) == "ledger-broken"
    await federation.close()
