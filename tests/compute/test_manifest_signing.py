"""A Compute node signs one version of the manifest of each number, whatever it is sent."""

import asyncio
from typing import Any

import httpx
import pytest

from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import Chain, Shown
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Consortium, Manifest
from shoal_protocol.trust.succession import SIGNATURES_PATH, ManifestStatement
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.journal import Journal
from tests.compute.test_replicas import Replicas, replicas  # noqa: F401 -- a fixture
from tests.world.around_node import Federation
from tests.world.examples import AUTHORITY, signing_key
from tests.world.parties import problem_code

OK, CONFLICT = 200, "conflicting-document"


def version(before: Consortium, cohort: int = 11, **changes: Any) -> Signed[Manifest]:
    """Return a version after this one; the cohort tells one from another."""
    now = before.manifest
    policy = now.policy.model_copy(update={"minimum_cohort": cohort})
    place = {"sequence": now.sequence + 1, "previous": before.digest, "policy": policy}
    return sign(now.model_copy(update=place | changes), AUTHORITY_NAME, AUTHORITY)


async def ask(federation: Federation, signed: Signed[Manifest], node: int = 0) -> httpx.Response:
    return await federation.request(node, "POST", SIGNATURES_PATH, signed.encode())


def check_signed(federation: Federation, answer: httpx.Response, signed: Signed[Manifest]) -> None:
    assert answer.status_code == OK, answer.text
    statement = decode(answer.content, ManifestStatement)
    federation.consortium.verify(statement)
    assert statement.body.following == signed.digest


async def journal(federation: Federation, node: int = 0) -> list[Shown]:
    reply = await federation.request(node, "GET", "/v1/journal")
    return [Shown.model_validate(each) for each in reply.json()["entries"]]


async def test_R8_a_node_signs_one_version_of_a_number(federation: Federation) -> None:
    one, other = version(federation.consortium), version(federation.consortium, 12)
    first = await ask(federation, one)
    check_signed(federation, first, one)
    assert problem_code(await ask(federation, other)) == CONFLICT
    federation.crash(0)
    assert (await ask(federation, one)).content == first.content
    assert problem_code(await ask(federation, other)) == CONFLICT
    [entry] = await journal(federation)
    statement = Chain(ManifestStatement).follow(entry)
    assert statement == decode(first.content, ManifestStatement)
    # the one that it signed comes into force, and the next number is free
    book = federation.books[0]
    federation.consortium = book.accept(one.encode(), book.current.roster.encode())
    assert (await ask(federation, one)).content == first.content
    third = version(federation.consortium)
    check_signed(federation, await ask(federation, third), third)
    assert problem_code(await ask(federation, other)) == "wrong-manifest"
    chain = Chain(ManifestStatement, JobTotal)
    for each in await journal(federation):
        chain.follow(each)
    assert chain.head.number == 2


async def test_R8_an_emergency_is_signed_beside_a_version_of_its_number(
    federation: Federation,
) -> None:
    usual = version(federation.consortium)
    check_signed(federation, await ask(federation, usual), usual)
    first, *lost = federation.consortium.manifest.compute_nodes
    nodes = (first, *(node.model_copy(update={"name": f"{node.name}-new"}) for node in lost))
    emergency, second = (
        version(federation.consortium, cohort, compute_nodes=nodes, emergency="two sites burnt")
        for cohort in (11, 12)
    )
    check_signed(federation, await ask(federation, emergency), emergency)
    assert problem_code(await ask(federation, second)) == CONFLICT
    no_reason = version(federation.consortium, emergency="no reason")
    assert problem_code(await ask(federation, no_reason)) == "malformed-document"
    assert len(await journal(federation)) == 2


async def test_R8_a_node_signs_nothing_that_does_not_follow(federation: Federation) -> None:
    now = federation.consortium
    good = version(now)
    for signed, code in (
        (sign(good.body, AUTHORITY_NAME, signing_key("trainer")), "bad-signature"),
        (sign(good.body, "trainer", signing_key("trainer")), "wrong-signer"),
        (version(now, sequence=3), "wrong-manifest"),
        (version(now, previous="0" * 64), "wrong-manifest"),
        (version(now, authority="0" * 64), "malformed-document"),
    ):
        assert problem_code(await ask(federation, signed)) == code
    assert await journal(federation) == []


async def test_R8_a_crash_between_appending_and_answering_signs_nothing_else(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = version(federation.consortium), version(federation.consortium, 12)
    run = Journal.run

    async def durable_and_silent(*arguments: Any) -> bytes:
        await run(*arguments)
        raise StorageUnavailable

    monkeypatch.setattr(Journal, "run", durable_and_silent)
    assert problem_code(await ask(federation, one)) == "storage-unavailable"
    monkeypatch.undo()
    [entry] = await journal(federation)
    assert entry.statement is not None
    federation.crash(0)
    assert problem_code(await ask(federation, other)) == CONFLICT
    again = await ask(federation, one)
    assert again.json() == entry.statement.document


async def test_R10_of_two_versions_at_two_replicas_one_is_signed(
    replicas: Replicas,  # noqa: F811
) -> None:
    versions = [version(replicas.consortium, 11 + number) for number in range(4)]
    answers = await asyncio.gather(
        *(
            replicas.at(place % 2, "POST", SIGNATURES_PATH, signed.encode())
            for place, signed in enumerate(versions)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert replicas.sql("SELECT COUNT(*) FROM journal") == [(1,)]
