"""What a node charged clients is told to them alone, each by a query of its own key."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from pyroaring import BitMap
from sqlalchemy import select

from shoal_compute import charges as answering
from shoal_compute.schema import ledger, shares
from shoal_protocol.jobs.charges import MOST_QUERIES, Charges, ChargesQuery, check_charges
from shoal_protocol.wire.documents import Role, Signed, from_json, sign
from shoal_protocol.wire.encoding import canonical_json, decode_clients
from tests.world.around_node import SECOND, Federation
from tests.world.examples import client_key

NONCE = "0a" * 16


def query(federation: Federation, client: int, *, by: int | None = None, **changes: Any) -> Any:
    fields = {
        "manifest": federation.consortium.digest,
        "client": client,
        "nonce": NONCE,
        "at": federation.clock(),
    }
    body = ChargesQuery(**(fields | changes))
    return sign(body, Role.CLIENT, client_key(client if by is None else by)).to_json()


async def ask(
    federation: Federation, queries: Iterable[Any], *, after: int = 0, node: int = 0
) -> Any:
    body = canonical_json({"documents": list(queries)})
    reply = await federation.request(node, "POST", f"/v1/charges?after={after}", body)
    return reply.status_code, reply.json()


async def told(
    federation: Federation, clients: Iterable[int], *, after: int = 0, nonce: str = NONCE
) -> Signed[Charges]:
    status, answer = await ask(
        federation, [query(federation, each, nonce=nonce) for each in clients], after=after
    )
    assert status == 200, answer
    assert answer["outcomes"] == [{"status": 200} for _ in clients]
    return from_json(answer["charges"], Charges)


async def test_a_client_is_told_of_every_round_in_which_its_share_came_also_once_it_is_erased(
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

    signed = await told(federation, (2, 3, 11))
    found = check_charges(
        signed,
        federation.consortium,
        node="compute-0",
        nonce=NONCE,
        after=0,
        asked=BitMap((2, 3, 11)),
    )
    assert [(each.round, each.job, each.number, set(whose)) for each, whose in found] == [
        (first.digest, first.body.job, 0, {2, 3}),
        (second.digest, second.body.job, 0, {3, 11}),
    ]
    assert [each.cost for each, _ in found] == [first.body.cost, second.body.cost]
    head = storage.run_here(lambda db: ledger.hold(db, lock=False))
    assert (signed.body.through, signed.body.head, signed.body.head_digest) == (2, *head)


async def test_a_round_to_which_no_share_came_is_none(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    federation.clock.move(61)
    await federation.step(times=4)
    assert (await federation.phases(spec))[0] == "abandoned"
    answer = await told(federation, (3,))
    assert (answer.body.rounds, answer.body.through) == ((), answer.body.head)


async def test_nobody_is_told_of_another_client_and_each_query_stands_by_itself(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec, (3, 4, 5, 6))
    asked = [
        query(federation, 3),
        query(federation, 4, by=5),
        query(federation, 5, manifest="ab" * 32),
        query(federation, 6, at=federation.clock() - timedelta(minutes=6)),
        query(federation, 6, nonce="0b" * 16),
        {"body": "junk"},
        query(federation, 6),
    ]
    status, answer = await ask(federation, asked)
    assert status == 200
    codes = [
        each["problem"]["type"].removeprefix("urn:shoal:problem:") if "problem" in each else None
        for each in answer["outcomes"]
    ]
    assert codes == [
        None,
        "bad-signature",
        "unknown-manifest",
        "stale-query",
        "malformed-document",
        "malformed-document",
        None,
    ]
    body = from_json(answer["charges"], Charges).body
    assert set(decode_clients(body.clients)) == {3, 6}
    assert [set(decode_clients(each.clients)) for each in body.rounds] == [{3, 6}]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"by": 5}, 403, "bad-signature"),
        ({"client": 1000}, 403, "unknown-client"),
        ({"manifest": "ab" * 32}, 404, "unknown-manifest"),
        ({"ahead": -301}, 409, "stale-query"),
        ({"ahead": 301}, 409, "stale-query"),
    ],
)
async def test_a_query_that_is_no_good_is_refused(
    federation: Federation, changes: dict[str, Any], status: int, code: str
) -> None:
    if "ahead" in changes:
        changes = {"at": federation.clock() + changes["ahead"] * SECOND}
    found, problem = await ask(federation, [query(federation, **({"client": 3} | changes))])
    assert (found, problem["type"]) == (status, f"urn:shoal:problem:{code}")


async def test_a_recorded_request_is_answered_to_nobody_else_and_is_soon_too_old(
    federation: Federation,
) -> None:
    asked = [query(federation, 3)]
    assert (await ask(federation, asked))[0] == 200
    status, problem = await ask(federation, asked)
    assert (status, problem["type"]) == (409, "urn:shoal:problem:stale-query")
    federation.crash(0)  # which forgets it: then its age alone counts
    assert (await ask(federation, asked))[0] == 200
    federation.crash(0)
    federation.clock.move(301)
    assert (await ask(federation, asked))[0] == 409


async def test_a_request_has_so_many_queries_and_no_more(federation: Federation) -> None:
    one = query(federation, 3)
    for documents in ([one] * (MOST_QUERIES + 1), [], one, None):
        body = canonical_json({"documents": documents})
        reply = await federation.request(0, "POST", "/v1/charges", body)
        assert reply.status_code == 422
    status, answer = await ask(federation, [one] * MOST_QUERIES)
    assert (status, len(answer["outcomes"])) == (200, MOST_QUERIES)


@pytest.mark.parametrize("bound", ["_MOST_ENTRIES", "_MOST_LOOKUPS"])
async def test_a_long_ledger_is_told_stretch_by_stretch(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(answering, bound, 2)
    specs = [federation.spec(job=f"{job:02x}" * 32) for job in range(5)]
    for spec in specs:
        await federation.announce(spec, [0])
        await federation.upload_all(spec, (3,), [0])
    after, found = 0, list[str]()
    while True:
        answer = (await told(federation, (3,), after=after, nonce=f"{after:032x}")).body
        found += [each.round for each in answer.rounds]
        assert len(answer.rounds) <= 2
        after = answer.through
        if after == answer.head:
            break
    assert found == [spec.digest for spec in specs]
    beyond = (await told(federation, (3,), after=99, nonce="0c" * 16)).body
    assert (beyond.rounds, beyond.through) == ((), 5)


def test_no_index_by_client_makes_an_upload_dearer() -> None:
    assert not shares.indexes
    assert [column.name for column in shares.primary_key.columns] == ["round", "client"]
