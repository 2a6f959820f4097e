"""What a node charged a data holder's slots is told to it alone, by a query of its own key."""

from typing import Any

import pytest
from pyroaring import BitMap
from sqlalchemy import select

from shoal_compute import charges as answering
from shoal_compute.schema import journal, shares
from shoal_protocol.jobs.charges import Charges, ChargesQuery, check_charges
from shoal_protocol.wire.documents import Role, Signed, decode, from_json, sign
from shoal_protocol.wire.encoding import canonical_json
from tests.world.around_node import SECOND, Federation, envelopes
from tests.world.examples import client_key

NONCE = "0a" * 16


def query(federation: Federation, holder: int, *, by: int | None = None, **changes: Any) -> bytes:
    fields = {
        "manifest": federation.consortium.digest,
        "holder": holder,
        "node": "compute-0",
        "epoch": 0,
        "instance": "0b" * 16,
        "nonce": NONCE,
        "at": federation.clock(),
    }
    body = ChargesQuery(**(fields | changes))
    return sign(body, Role.HOLDER, client_key(holder if by is None else by)).encode()


async def ask(federation: Federation, body: bytes, *, after: int = 0, node: int = 0) -> Any:
    reply = await federation.request(node, "POST", f"/v1/charges?after={after}", body)
    return reply.status_code, reply.json()


async def told(
    federation: Federation, holder: int, *, after: int = 0, nonce: str = NONCE
) -> Signed[Charges]:
    asked = query(federation, holder, nonce=nonce)
    status, answer = await ask(federation, asked, after=after)
    assert status == 200, answer
    return from_json(answer, Charges)


async def test_a_holder_is_told_of_every_round_in_which_its_share_came_also_once_it_is_erased(
    federation: Federation,
) -> None:
    first, second = federation.spec(), federation.spec(job="ab" * 32)
    for spec, clients in ((first, range(10)), (second, range(3, 12))):
        await federation.announce(spec)
        await federation.upload_all(spec, clients)
    federation.clock.move(61)
    await federation.step(times=6)
    assert (await federation.phases(first))[0] == "published"
    storage = federation.services[0].resources.storage
    kept = storage.run_here(lambda db: db.execute(select(shares.c.payload)).scalars().all())
    assert set(kept) == {None}

    for holder, expected in ((2, [first]), (3, [first, second]), (11, [second])):
        nonce = f"{holder:032x}"
        signed = await told(federation, holder, nonce=nonce)
        found = check_charges(
            signed,
            federation.consortium,
            node="compute-0",
            nonce=nonce,
            after=0,
            holder=holder,
            slots=BitMap([holder]),
            caps=[federation.consortium.manifest.policy.cap],
        )
        assert [(each.round, each.job, each.number, set(whose)) for each, whose in found] == [
            (spec.digest, spec.body.job, 0, {holder}) for spec in expected
        ]
        assert [each.cost for each, _ in found] == [spec.body.cost for spec in expected]
    head = storage.run_here(journal.newest)
    assert (signed.body.through, signed.body.head) == (head.number, head.number)


async def test_a_round_to_which_no_share_came_is_none(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    federation.clock.move(61)
    await federation.step(times=4)
    assert (await federation.phases(spec))[0] == "abandoned"
    answer = await told(federation, 3)
    assert (answer.body.rounds, answer.body.through) == ((), answer.body.head)


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"by": 5}, 403, "bad-signature"),
        ({"holder": 1000}, 403, "unknown-holder"),
        ({"node": "compute-1"}, 409, "wrong-node"),
        ({"manifest": "ab" * 32}, 404, "unknown-manifest"),
        ({"ahead": -601}, 409, "stale-query"),
        ({"ahead": 601}, 409, "stale-query"),
    ],
)
async def test_a_query_that_is_no_good_is_refused(
    federation: Federation, changes: dict[str, Any], status: int, code: str
) -> None:
    if "ahead" in changes:
        changes = {"at": federation.clock() + changes["ahead"] * SECOND}
    found, problem = await ask(federation, query(federation, **({"holder": 3} | changes)))
    assert (found, problem["type"]) == (status, f"urn:shoal:problem:{code}")


async def test_a_request_may_be_sent_again_and_is_soon_too_old(
    federation: Federation,
) -> None:
    asked = query(federation, 3)
    assert (await ask(federation, asked))[0] == 200
    assert (await ask(federation, asked))[0] == 200  # the answer may have been lost
    federation.clock.move(601)
    assert (await ask(federation, asked))[0] == 409


async def test_many_charges_are_told_stretch_by_stretch(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_MOST_ENTRIES", 2)
    specs = [federation.spec(job=f"{job:02x}" * 32) for job in range(5)]
    for spec in specs:
        await federation.announce(spec, [0])
        await federation.upload_all(spec, (3,), [0])
    after, found = 0, list[str]()
    while True:
        answer = (await told(federation, 3, after=after, nonce=f"{after:032x}")).body
        found += [each.round for each in answer.rounds]
        assert len(answer.rounds) <= 2
        after = answer.through
        if after == answer.head:
            break
    assert found == [spec.digest for spec in specs]
    beyond = (await told(federation, 3, after=99, nonce="0c" * 16)).body
    assert (beyond.rounds, beyond.through) == ((), 5)


async def test_of_two_machines_the_first_counts_until_one_of_a_higher_epoch_comes(
    federation: Federation,
) -> None:
    old, new = {"instance": "1c" * 16}, {"instance": "2d" * 16}
    first = query(federation, 3, nonce="01" * 16, **old)
    assert decode((await told_by(federation, first)), Charges)
    for epoch in (0, 1):
        other = query(federation, 3, nonce=f"{epoch + 2:032x}", epoch=epoch, **new)
        answer = await told_by(federation, other)
        assert (answer == first) == (epoch == 0)
    federation.crash(0)
    late = query(federation, 3, nonce="04" * 16, **old)
    assert decode(await told_by(federation, late), ChargesQuery).body.epoch == 1


async def told_by(federation: Federation, asked: bytes) -> bytes:
    status, answer = await ask(federation, asked)
    assert status == 200, answer
    return canonical_json(answer)


async def test_answers_of_a_superseded_machine_and_to_rounds_before_a_restore_are_void(
    federation: Federation,
) -> None:
    before = federation.spec()
    await federation.announce(before, [0])
    restored = query(federation, 3, epoch=2)
    assert decode(await told_by(federation, restored), Charges)
    after = federation.spec(job="ab" * 32)
    await federation.announce(after, [0])
    outcomes = []
    for spec in (before, after):
        for epoch in (1, 2, 3):
            envelope = envelopes(spec.body, 3, epoch=epoch)[0]
            reply = await federation.upload(0, spec, envelope)
            outcomes.append((reply.status_code, reply.json().get("type", "").rpartition(":")[2]))
            if reply.status_code == 201:
                break
    assert outcomes == [
        (410, "superseded"),
        (409, "before-restore"),
        (201, ""),  # of a machine that this node, itself restored, has not heard of
        (410, "superseded"),
        (201, ""),
    ]
